"""Settlements of an endpoint's records, collected during one iteration of the event loop and sent
in one call.
"""

from __future__ import annotations

import asyncio
import logging
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import NotLeased, Overloaded, SparrowError
from sparrow.broker.queues.rules.settlement import Settlement, Verb

if TYPE_CHECKING:
    from sparrow.broker.queues.consumer import QueueConsumer

_LOG = logging.getLogger(__name__)
_RETRY_S: Final = 0.05
"""Delay before settlements are sent again that were refused because the queue is being changed."""


class Settler:
    """The settlements of one consumer. Loop thread only."""

    def __init__(self, consumer: QueueConsumer) -> None:
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Settlement] = []
        self._handle: asyncio.Handle | None = None
        self._under_way: set[asyncio.Future[list[SparrowError | None]]] = set()
        self._changed = asyncio.Event()
        self.lost = 0
        """Records that could not be settled."""

    def add(self, settlement: Settlement) -> None:
        """Send a settlement, together with all others of this iteration of the event loop."""
        self._waiting.append(settlement)
        if self._handle is None:
            self._handle = self._loop.call_soon(self._flush)

    async def settled(self) -> None:
        """Wait until every settlement is on stable storage or has failed."""
        while self._waiting or self._under_way:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Drop waiting settlements."""
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
        self._changed.set()

    def _flush(self) -> None:
        self._handle = None
        settlements = _merge(self._waiting)
        try:
            settling = self._consumer.settle(settlements)
        except Overloaded:
            self._handle = self._loop.call_later(_RETRY_S, self._flush)
            return
        # The consumer was closed: its records are leased by others, or will be.
        except SparrowError as error:
            _LOG.debug("%d settlements were lost: %s", len(settlements), error.text)
            self.lost += len(settlements)
            self._waiting.clear()
            self._changed.set()
            return
        self._waiting.clear()
        self._under_way.add(settling)
        settling.add_done_callback(self._completed)

    def _completed(self, settling: asyncio.Future[list[SparrowError | None]]) -> None:
        self._under_way.discard(settling)
        self._changed.set()
        if settling.cancelled():
            return
        failure = settling.exception()
        # it is in effect in memory, and is stored as soon as that is possible
        if failure is not None:
            _LOG.warning("queue %r: settlements are not on stable storage yet: %s", self._queue, failure)
            return
        for error in settling.result():
            if error is not None:
                self.lost += 1
                if not isinstance(error, NotLeased):
                    _LOG.warning("queue %r: a settlement had no effect: %s", self._queue, error.text)

    @property
    def _queue(self) -> str:
        return self._consumer.queue_name


def _merge(settlements: list[Settlement]) -> list[Settlement]:
    """Return the settlements with acknowledgements of adjacent offsets merged."""
    acks = sorted(
        (each for each in settlements if each.verb is Verb.ACK), key=attrgetter("topic", "partition", "first")
    )
    joined: list[Settlement] = []
    for each in acks:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.last + 1 == each.first
            and (last.topic, last.partition, last.delivery) == (each.topic, each.partition, each.delivery)
        ):
            joined[-1] = replace(last, last=each.last)
        else:
            joined.append(each)
    return joined + [each for each in settlements if each.verb is not Verb.ACK]
