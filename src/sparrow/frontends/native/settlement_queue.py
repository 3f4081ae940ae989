"""Settlements of one consumer: SETTLE in, SETTLED out when it is on stable storage.

A SETTLE goes to the queue at once if no other is unanswered, else in the next iteration of the
event loop, together with all that came in this one: a client that acknowledges single records costs
little more than one that batches, and one that waits for each response gets it sooner. A call has
at most
`MAX_RANGES_PER_CALL` ranges; the rest waits for the next iterations, in order, so that no client
blocks the loop. Unanswered ranges are charged to the connection, and reading pauses above its
limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from sparrow.base.errors import Overloaded, SparrowError
from sparrow.broker.queues.rules.settlement import Settlement
from sparrow.frontends.native.failures import failure_of, translate
from sparrow.protocol.native.messages import Settle, SettleFailure

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from sparrow.broker.queues.consumer import QueueConsumer

MAX_RANGES_PER_CALL: Final = 512
RETRY_S: Final = 0.02
"""Delay before a call is repeated that failed because the queue is being changed."""
MAX_RETRIES: Final = 250

Outcomes: TypeAlias = "list[SparrowError | None]"


class _Frame(msgspec.Struct, eq=False):
    """A SETTLE in progress."""

    head: Settle
    charge: int
    """The number of ranges, plus one for the frame itself."""
    submitted: int = 0
    """The number of ranges that were passed to the queue."""
    next_settlement: int = 0
    next_range: int = 0
    """Where the ranges begin that were not."""
    calls: int = 0
    """Calls without a result of the queue."""
    failures: list[SettleFailure] = []
    range_indexes: list[tuple[int, int]] | None = None

    def take(self, room: int) -> list[Settlement]:
        """Return one settlement for each of the next ranges, at most `room`. The queue refuses
        unknown verbs.
        """
        taken: list[Settlement] = []
        settlements = self.head.settlements
        while room > 0 and self.next_settlement < len(settlements):
            each = settlements[self.next_settlement]
            topic, partition = each.topic, each.partition
            ranges = each.ranges[self.next_range : self.next_range + room]
            for first, last in ranges:
                one = Settlement(
                    each.verb, topic, partition, first, last, each.delay_ms, each.text, each.delivery
                )
                taken.append(one)
            room -= len(ranges)
            self.next_range += len(ranges)
            if self.next_range == len(each.ranges):
                self.next_settlement += 1
                self.next_range = 0
        self.submitted += len(taken)
        return taken

    def fail(self, index: int, error: SparrowError) -> None:
        """Record the failure of a range; `index` counts through all settlements."""
        if self.range_indexes is None:
            self.range_indexes = [
                (s, r) for s, each in enumerate(self.head.settlements) for r in range(len(each.ranges))
            ]
        failure = failure_of(error)
        self.failures.append(
            SettleFailure(*self.range_indexes[index], failure.code, failure.text, failure.retriable)
        )


class _Part(msgspec.Struct, eq=False):
    """The ranges of one frame within one call."""

    frame: _Frame
    first: int
    """Index of the first range among the ranges of the frame."""
    start: int
    stop: int
    """The slice of the call: `start` to `stop`."""


class _Call(msgspec.Struct, eq=False):
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
        "_respond",
        "_retried",
        "_tries",
        "unanswered",
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
        self.unanswered = 0
        """The number of unanswered frames."""
        self._is_due = False
        self._retried: _Call | None = None
        self._tries = 0
        self._done: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if every SETTLE is answered."""
        return not self.unanswered

    def add(self, head: Settle) -> None:
        """Accept a SETTLE."""
        charge = 1
        for each in head.settlements:
            charge += len(each.ranges)
        self._frames.append(_Frame(head, charge))
        self._charge(charge)
        self.unanswered += 1
        if self.unanswered == 1:
            self._submit()
        else:
            self._submit_soon()

    async def finished(self) -> None:
        """Wait until every SETTLE is answered."""
        while self.unanswered:
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
        if self._frames:
            self._submit_soon()

    def _submit_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _next_call(self) -> _Call:
        """Return the ranges for one call, from as many frames as there is room for."""
        settlements: list[Settlement] = []
        parts: list[_Part] = []
        while self._frames and len(settlements) < MAX_RANGES_PER_CALL:
            frame, start = self._frames[0], len(settlements)
            first = frame.submitted
            settlements += frame.take(MAX_RANGES_PER_CALL - start)
            parts.append(_Part(frame, first, start, len(settlements)))
            frame.calls += 1
            if frame.submitted == frame.charge - 1:
                self._frames.popleft()
        return _Call(settlements, parts)

    def _retry(self, call: _Call, error: SparrowError) -> None:
        self._tries += 1
        if self._tries > MAX_RETRIES:
            self._tries = 0
            self._fail_all(call, error)
            if self._frames:
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
        for part in call.parts:
            for index, outcome in enumerate(outcomes[part.start : part.stop], part.first):
                if outcome is not None:
                    part.frame.fail(index, outcome)
            self._part_completed(part.frame)

    def _fail_all(self, call: _Call, error: SparrowError) -> None:
        """Fail all ranges of a call: none took effect, or none is known to."""
        for part in call.parts:
            for index in range(part.stop - part.start):
                part.frame.fail(part.first + index, error)
            self._part_completed(part.frame)

    def _part_completed(self, frame: _Frame) -> None:
        frame.calls -= 1
        if frame.calls or frame.submitted < frame.charge - 1:
            return
        self.unanswered -= 1
        self._respond(frame.head.ref, frame.failures)
        self._charge(-frame.charge)
        if not self.unanswered and self._done is not None:
            done, self._done = self._done, None
            done.set_result(None)
