"""The stop of a queue at a batch that nobody can read, for the policy `on_corrupt=fail`.

A stopped queue leases nothing. Its consumers can still settle what they have leased; then they get
the error, once the response to their last settlement has left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import split
from sparrow.records.readable import FAIL, corruption_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.queue_policy import QueuePolicy
    from sparrow.broker.queues.rules.subscriber import SubscriberState
    from sparrow.broker.queues.source import QueueSource

_RESPONSE_S: Final = 0.02
"""Time for a response to leave before its consumer gets the error that the queue is stopped."""


class CorruptionStop:
    """The stop of one queue, while `error` is set. Loop thread only.

    Args:
        wake_all: wakes the waiting consumers, which then ask `check`.
    """

    def __init__(self, queue_name: str, policy: QueuePolicy, wake_all: Callable[[], None]) -> None:
        self._queue_name = queue_name
        self._wake_all = wake_all
        self.applies = policy.on_corrupt == FAIL
        """True if a batch that cannot be read stops the queue."""
        self.error: CorruptBatch | None = None
        """The reason why nothing is leased."""
        self._pending_responses = 0
        """Number of settlements whose responses may not have left yet."""

    def redefine(self, policy: QueuePolicy) -> None:
        """Set the queue's policy. One that skips such batches ends the stop."""
        self.applies = policy.on_corrupt == FAIL
        if not self.applies:
            self.error = None

    async def maybe_corrupt(
        self, source: QueueSource, data: Sequence[bytes | memoryview]
    ) -> CorruptBatch | None:
        """Return the error of the first batch in `data` that cannot be read. It looks at every
        record, so it runs in a thread.
        """

        def look() -> CorruptBatch | None:
            for part in data:
                for header, batch in split(part):
                    error = corruption_of(header, batch, source.topic, source.index)
                    if error is not None:
                        return error
            return None

        return await asyncio.to_thread(look)

    def halt(self, source: QueueSource, error: CorruptBatch) -> None:
        """Stop until `on_corrupt` is `skip`, or the batch is removed."""
        if self.error is None:
            self.error = _with_text(
                error,
                f"queue {self._queue_name!r} is stopped (on_corrupt=fail): {error.text}. Set "
                "on_corrupt=skip to make dead letters of its"
                f" records and go on, or remove it with `sparrow log skip {error.topic} "
                f"{error.partition} {error.base_offset}`",
            )
            source.partition.corrupt_batches.met("queue", FAIL, self.error)
            self._wake_all()

    def refuses(self, subscriber: SubscriberState, consumer_id: str) -> bool:
        """Return True if a consumer of the stopped queue gets the error: it has nothing left to
        settle.
        """
        return not self._pending_responses and next(iter(subscriber.leased_by(consumer_id)), None) is None

    def check(self, subscriber: SubscriberState, consumer_id: str) -> None:
        """Raise the error that stopped the queue, unless the consumer has records to settle."""
        if self.error is not None and self.refuses(subscriber, consumer_id):
            raise _with_text(self.error, self.error.text)

    def settled(self, response: asyncio.Future[Any]) -> None:
        """Hold the error back until the response to a settlement has left."""
        self._pending_responses += 1
        response.add_done_callback(self._responded)

    def _responded(self, _: asyncio.Future[Any]) -> None:
        asyncio.get_running_loop().call_later(_RESPONSE_S, self._look_again)

    def _look_again(self) -> None:
        self._pending_responses -= 1
        if self.error is not None:
            self._wake_all()


def _with_text(error: CorruptBatch, text: str) -> CorruptBatch:
    return CorruptBatch(
        text,
        error.offset,
        topic=error.topic,
        partition=error.partition,
        base_offset=error.base_offset,
        next_offset=error.next_offset,
    )
