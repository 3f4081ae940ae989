"""Settlements of one consumer: SETTLE in, SETTLED out when it is on stable storage.

All SETTLEs that come in one turn of the loop go to the queue in one call, so a client that acknowledges one record at a time costs
little more than one that gathers. A call has at most `MAX_RANGES_PER_TURN` ranges; what is more waits for the next turns, in order, so
that nobody holds up the loop. What is not answered yet is charged to the connection, which is not read from above its limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from sparrow.base.errors import Overloaded, SparrowError
from sparrow.broker.queues.settlement import Settlement
from sparrow.frontends.native.failures import failure_of, translate
from sparrow.protocol.native.messages import SettleFailure

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Verb
    from sparrow.protocol.native.messages import Settle

MAX_RANGES_PER_TURN: Final = 512
RETRY_S: Final = 0.02
"""How soon a queue is asked again that is being changed."""
MAX_RETRIES: Final = 250

Outcomes: TypeAlias = "list[SparrowError | None]"


class _Frame:
    """A SETTLE under way."""

    __slots__ = ("_places", "calls", "charge", "failures", "handed", "head", "rest")

    def __init__(self, head: Settle) -> None:
        self.head = head
        self.charge = 1 + sum(len(each.ranges) for each in head.settlements)
        """In ranges; the frame itself counts as one."""
        self.rest: Iterator[Settlement] | None = _settlements(head)
        """What the queue has not been given yet; None when it has been given all."""
        self.handed = 0
        self.calls = 0
        """How many are not answered by the queue."""
        self.failures: list[SettleFailure] = []
        self._places: list[tuple[int, int]] | None = None

    def fail(self, index: int, error: SparrowError) -> None:
        """A range has failed, counted through all settlements."""
        if self._places is None:
            self._places = [
                (s, r) for s, each in enumerate(self.head.settlements) for r in range(len(each.ranges))
            ]
        told = failure_of(error)
        self.failures.append(SettleFailure(*self._places[index], told.code, told.text, told.retriable))


class _Part(NamedTuple):
    """Ranges of one frame within one call."""

    frame: _Frame
    first: int
    """Index of the first among the ranges of the frame."""
    start: int
    stop: int
    """Where they are in the call."""


class _Call(NamedTuple):
    settlements: list[Settlement]
    parts: list[_Part]


class Settling:
    """The settlements of one channel. Loop thread only.

    Args:
        answer: send SETTLED.
        charge: told each change of what is not answered, in ranges.
        fail: the consumer can settle nothing any more.
    """

    __slots__ = (
        "_answer",
        "_charge",
        "_consumer",
        "_done",
        "_fail",
        "_frames",
        "_is_due",
        "_logger",
        "_open",
        "_repeated",
        "_tries",
    )

    def __init__(
        self,
        consumer: QueueConsumer,
        answer: Callable[[int, list[SettleFailure]], None],
        charge: Callable[[int], None],
        fail: Callable[[SparrowError], None],
        logger: logging.Logger,
    ) -> None:
        self._consumer = consumer
        self._answer = answer
        self._charge = charge
        self._fail = fail
        self._logger = logger
        self._frames: deque[_Frame] = deque()
        """Those that the queue has not been given wholly."""
        self._open = 0
        """Frames that are not answered."""
        self._is_due = False
        self._repeated: _Call | None = None
        self._tries = 0
        self._done: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not self._open

    def add(self, head: Settle) -> None:
        """Take a SETTLE."""
        frame = _Frame(head)
        self._open += 1
        self._frames.append(frame)
        self._charge(frame.charge)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    async def finished(self) -> None:
        """Until everything is answered."""
        while self._open:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)

    # ── to the queue ──────────────────────────────────────────────────────────────────────────────

    def _hand_over(self) -> None:
        self._is_due = False
        call, self._repeated = self._repeated or self._next_call(), None
        try:
            answer = self._consumer.settle(call.settlements)
        except Overloaded as error:  # the queue is being changed
            self._repeat(call, error)
            return
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            told = translate(error, "settling", self._logger)
            self._refused(call, told)
            self._fail(told)
        else:
            self._tries = 0
            answer.add_done_callback(partial(self._answered, call))
        self._go_on()

    def _go_on(self) -> None:
        if self._frames and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _next_call(self) -> _Call:
        """The ranges for one call: of as many frames as there is room for."""
        settlements: list[Settlement] = []
        parts: list[_Part] = []
        while self._frames and len(settlements) < MAX_RANGES_PER_TURN:
            frame = self._frames[0]
            assert frame.rest is not None
            start = len(settlements)
            settlements += islice(frame.rest, MAX_RANGES_PER_TURN - start)
            stop = len(settlements)
            parts.append(_Part(frame, frame.handed, start, stop))
            frame.handed += stop - start
            frame.calls += 1
            if frame.handed == frame.charge - 1:
                frame.rest = None
                self._frames.popleft()
        return _Call(settlements, parts)

    def _repeat(self, call: _Call, error: SparrowError) -> None:
        self._tries += 1
        if self._tries > MAX_RETRIES:
            self._tries = 0
            self._refused(call, error)
            self._go_on()
            return
        self._repeated = call
        self._is_due = True
        asyncio.get_running_loop().call_later(RETRY_S, self._hand_over)

    # ── from the queue ────────────────────────────────────────────────────────────────────────────

    def _answered(self, call: _Call, answer: asyncio.Future[Outcomes]) -> None:
        if answer.cancelled():
            self._refused(
                call, Overloaded("The settlement was cut off; whether it holds is undecided. Ask again.")
            )
            return
        error = answer.exception()
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            self._refused(call, translate(error, "settling", self._logger))
            return
        outcomes = answer.result()
        for frame, first, start, stop in call.parts:
            for index, outcome in enumerate(outcomes[start:stop]):
                if outcome is not None:
                    frame.fail(first + index, outcome)
            self._part_answered(frame)

    def _refused(self, call: _Call, error: SparrowError) -> None:
        """No range of a call holds, or none is known to."""
        for frame, first, start, stop in call.parts:
            for index in range(stop - start):
                frame.fail(first + index, error)
            self._part_answered(frame)

    def _part_answered(self, frame: _Frame) -> None:
        frame.calls -= 1
        if frame.rest is not None or frame.calls:
            return
        self._open -= 1
        self._answer(frame.head.ref, frame.failures)
        self._charge(-frame.charge)
        if not self._open and self._done is not None:
            done, self._done = self._done, None
            done.set_result(None)


def _settlements(head: Settle) -> Iterator[Settlement]:
    """One for each range. A verb that does not exist is the queue's to refuse."""
    for each in head.settlements:
        verb, topic, partition = cast("Verb", each.verb), each.topic, each.partition
        for first, last in each.ranges:
            yield Settlement(verb, topic, partition, first, last, each.delay_ms, each.text, each.delivery)
