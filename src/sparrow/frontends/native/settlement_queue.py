"""Settlements of one consumer: SETTLE in, SETTLED out when it is on stable storage.

The first SETTLE of an iteration of the event loop goes to the queue at once, all others of the
iteration together in the next one: a client that acknowledges single records costs little more than
one that batches, and one that waits for each response gets it sooner. A call has at most
`MAX_RANGES_PER_CALL` ranges; the rest waits for the next iterations, in order, so that no client
blocks the loop. Unanswered ranges are charged to the connection, and reading pauses above its
limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from sparrow.base.errors import Overloaded, SparrowError
from sparrow.broker.queues.rules.settlement import Settlement
from sparrow.frontends.native.failures import failure_of, translate
from sparrow.protocol.native.messages import SettleFailure

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Verb
    from sparrow.protocol.native.messages import Settle

MAX_RANGES_PER_CALL: Final = 512
RETRY_S: Final = 0.02
"""Delay before a call is repeated that failed because the queue is being changed."""
MAX_RETRIES: Final = 250

Outcomes: TypeAlias = "list[SparrowError | None]"


class _Frame:
    """A SETTLE in progress."""

    __slots__ = ("_range_indexes", "calls", "charge", "failures", "head", "rest", "submitted")

    def __init__(self, head: Settle) -> None:
        self.head = head
        self.charge = 1 + sum(len(each.ranges) for each in head.settlements)
        """The number of ranges, plus one for the frame itself."""
        self.rest: Iterator[Settlement] | None = _settlements(head)
        """Settlements not yet passed to the queue; None when all have been passed."""
        self.submitted = 0
        self.calls = 0
        """Calls without a result of the queue."""
        self.failures: list[SettleFailure] = []
        self._range_indexes: list[tuple[int, int]] | None = None

    def fail(self, index: int, error: SparrowError) -> None:
        """Record the failure of a range; `index` counts through all settlements."""
        if self._range_indexes is None:
            self._range_indexes = [
                (s, r) for s, each in enumerate(self.head.settlements) for r in range(len(each.ranges))
            ]
        failure = failure_of(error)
        self.failures.append(
            SettleFailure(*self._range_indexes[index], failure.code, failure.text, failure.retriable)
        )


class _Part(NamedTuple):
    """The ranges of one frame within one call."""

    frame: _Frame
    first: int
    """Index of the first range among the ranges of the frame."""
    start: int
    stop: int
    """The slice of the call: `start` to `stop`."""


class _Call(NamedTuple):
    settlements: list[Settlement]
    parts: list[_Part]


class SettlementQueue:
    """The settlements of one channel. Loop thread only.

    Args:
        respond: sends SETTLED.
        charge: receives each change of the number of unanswered ranges.
        fail: called when the consumer can settle nothing any more.
    """

    __slots__ = (
        "_charge",
        "_consumer",
        "_done",
        "_fail",
        "_frames",
        "_is_due",
        "_logger",
        "_open",
        "_respond",
        "_retried",
        "_tries",
    )

    def __init__(
        self,
        consumer: QueueConsumer,
        respond: Callable[[int, list[SettleFailure]], None],
        charge: Callable[[int], None],
        fail: Callable[[SparrowError], None],
        logger: logging.Logger,
    ) -> None:
        self._consumer = consumer
        self._respond = respond
        self._charge = charge
        self._fail = fail
        self._logger = logger
        self._frames: deque[_Frame] = deque()
        """Frames that have not been passed to the queue completely."""
        self._open = 0
        """The number of unanswered frames."""
        self._is_due = False
        self._retried: _Call | None = None
        self._tries = 0
        self._done: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if every SETTLE is answered."""
        return not self._open

    def add(self, head: Settle) -> None:
        """Accept a SETTLE."""
        frame = _Frame(head)
        self._open += 1
        self._frames.append(frame)
        self._charge(frame.charge)
        if self._is_due:
            return
        self._submit()
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    async def finished(self) -> None:
        """Wait until every SETTLE is answered."""
        while self._open:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)

    # ── to the queue ──────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        """Pass on the settlements that came since the last call."""
        self._is_due = False
        if self._retried is not None or self._frames:
            self._submit()

    def _submit(self) -> None:
        call, self._retried = self._retried or self._next_call(), None
        try:
            future = self._consumer.settle(call.settlements)
        except Overloaded as error:  # the queue is being changed
            self._retry(call, error)
            return
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            failure = translate(error, "settling", self._logger)
            self._fail_all(call, failure)
            self._fail(failure)
        else:
            self._tries = 0
            future.add_done_callback(partial(self._completed, call))
        self._submit_soon()

    def _submit_soon(self) -> None:
        if self._frames and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _next_call(self) -> _Call:
        """Return the ranges for one call, from as many frames as there is room for."""
        settlements: list[Settlement] = []
        parts: list[_Part] = []
        while self._frames and len(settlements) < MAX_RANGES_PER_CALL:
            frame = self._frames[0]
            assert frame.rest is not None
            start = len(settlements)
            settlements += islice(frame.rest, MAX_RANGES_PER_CALL - start)
            stop = len(settlements)
            parts.append(_Part(frame, frame.submitted, start, stop))
            frame.submitted += stop - start
            frame.calls += 1
            if frame.submitted == frame.charge - 1:
                frame.rest = None
                self._frames.popleft()
        return _Call(settlements, parts)

    def _retry(self, call: _Call, error: SparrowError) -> None:
        self._tries += 1
        if self._tries > MAX_RETRIES:
            self._tries = 0
            self._fail_all(call, error)
            self._submit_soon()
            return
        self._retried = call
        self._is_due = True
        asyncio.get_running_loop().call_later(RETRY_S, self._go_on)

    # ── from the queue ────────────────────────────────────────────────────────────────────────────

    def _completed(self, call: _Call, future: asyncio.Future[Outcomes]) -> None:
        if future.cancelled():
            self._fail_all(
                call,
                Overloaded("The settlement was interrupted and may have taken effect or not; settle again."),
            )
            return
        error = future.exception()
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            self._fail_all(call, translate(error, "settling", self._logger))
            return
        outcomes = future.result()
        for frame, first, start, stop in call.parts:
            for index, outcome in enumerate(outcomes[start:stop]):
                if outcome is not None:
                    frame.fail(first + index, outcome)
            self._part_completed(frame)

    def _fail_all(self, call: _Call, error: SparrowError) -> None:
        """Fail all ranges of a call: none took effect, or none is known to."""
        for frame, first, start, stop in call.parts:
            for index in range(stop - start):
                frame.fail(first + index, error)
            self._part_completed(frame)

    def _part_completed(self, frame: _Frame) -> None:
        frame.calls -= 1
        if frame.rest is not None or frame.calls:
            return
        self._open -= 1
        self._respond(frame.head.ref, frame.failures)
        self._charge(-frame.charge)
        if not self._open and self._done is not None:
            done, self._done = self._done, None
            done.set_result(None)


def _settlements(head: Settle) -> Iterator[Settlement]:
    """Yield one settlement for each range. The queue refuses unknown verbs."""
    for each in head.settlements:
        verb, topic, partition = cast("Verb", each.verb), each.topic, each.partition
        for first, last in each.ranges:
            yield Settlement(verb, topic, partition, first, last, each.delay_ms, each.text, each.delivery)
