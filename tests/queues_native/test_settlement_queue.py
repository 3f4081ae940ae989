"""The settlements of a channel against a queue that answers when the test says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import NotLeased, Overloaded, SparrowError, StaleMember
from sparrow.broker.queues.rules.settlement import Settlement
from sparrow.frontends.native import settlement_queue
from sparrow.frontends.native.settlement_queue import MAX_RANGES_PER_CALL, SettlementQueue
from sparrow.protocol.native.messages import Settle, SettleFailure, SettleVerb
from tests.queues_native.raw_queues import Range, settlement

Answer = asyncio.Future[list[SparrowError | None]]


class FakeConsumer:
    """Odd offsets are not leased."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Settlement], Answer]] = []
        self.refusals: list[SparrowError] = []
        self.seen: list[tuple[int, int]] = []

    def settle(self, settlements: Sequence[Settlement]) -> Answer:
        if self.refusals:
            raise self.refusals.pop(0)
        answer: Answer = asyncio.get_running_loop().create_future()
        self.calls.append((list(settlements), answer))
        self.seen += [(each.first, each.last) for each in settlements]
        return answer

    def answer(self, index: int = 0, error: SparrowError | None = None) -> None:
        """Answer the call at `index` of those that wait."""
        settlements, answer = self.calls.pop(index)
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result([NotLeased("odd") if each.first % 2 else None for each in settlements])


class Bench:
    """A `SettlementQueue`, and its responses and failures."""

    def __init__(self) -> None:
        self.consumer = FakeConsumer()
        self.answers: dict[int, list[tuple[int, int, str]]] = {}
        self.charged = 0
        self.failures: list[SparrowError] = []
        self.settlement_queue = SettlementQueue(
            cast(Any, self.consumer),
            self._answer,
            self._charge,
            self.failures.append,
            logging.getLogger("test"),
        )

    def _answer(self, ref: int, failures: list[SettleFailure]) -> None:
        assert ref not in self.answers
        self.answers[ref] = sorted((each.settlement, each.range, each.code) for each in failures)

    def _charge(self, change: int) -> None:
        self.charged += change

    def add(self, ref: int, *settlements: Sequence[Range | int]) -> None:
        self.settlement_queue.add(
            Settle(ref, [settlement(SettleVerb.ACK, *ranges) for ranges in settlements])
        )

    async def turns(self, count: int = 5) -> None:
        for _ in range(count):
            await asyncio.sleep(0)


async def test_the_first_settle_of_an_iteration_is_a_call_and_the_others_are_one() -> None:
    bench = Bench()
    for ref in range(100):
        bench.add(ref, [ref * 2])
        assert [len(settlements) for settlements, _ in bench.consumer.calls] == [1]
    await bench.turns()
    assert [len(settlements) for settlements, _ in bench.consumer.calls] == [1, 99]
    assert bench.answers == {}
    bench.consumer.answer()
    bench.consumer.answer()
    await bench.turns()
    assert bench.answers == {ref: [] for ref in range(100)}
    assert bench.settlement_queue.is_idle
    assert bench.charged == 0


async def test_a_settle_goes_at_once_if_no_other_is_unanswered() -> None:
    bench = Bench()
    for ref in range(3):
        bench.add(ref, [ref * 2])
        assert bench.consumer.seen[-1] == (ref * 2, ref * 2)
        bench.consumer.answer()
        await bench.turns(1)
        assert bench.answers[ref] == []
    bench.add(3, [6])
    await bench.turns(1)
    bench.add(4, [8])
    assert bench.consumer.seen[-1] == (6, 6)
    await bench.turns(1)
    assert bench.consumer.seen[-1] == (8, 8)


async def test_a_turn_gives_the_queue_a_bounded_number_of_ranges_in_order() -> None:
    bench = Bench()
    bench.add(1, range(MAX_RANGES_PER_CALL + 100))
    bench.add(2, range(5000, 5010))
    await bench.turns()
    assert [len(settlements) for settlements, _ in bench.consumer.calls] == [MAX_RANGES_PER_CALL, 110]
    assert bench.consumer.seen == [(n, n) for n in [*range(MAX_RANGES_PER_CALL + 100), *range(5000, 5010)]]


async def test_a_settle_gets_its_response_when_all_of_its_calls_have() -> None:
    bench = Bench()
    bench.add(1, range(0, 4 * MAX_RANGES_PER_CALL, 2))
    await bench.turns()
    bench.consumer.answer(1)
    await bench.turns()
    assert bench.answers == {}
    bench.consumer.answer(0)
    await bench.turns()
    assert bench.answers == {1: []}


async def test_a_storage_that_fails_is_reported_for_each_range() -> None:
    bench = Bench()
    bench.add(1, [0, 2], [4])
    await bench.turns()
    bench.consumer.answer(error=Overloaded("busy"))
    await bench.turns()
    assert bench.answers == {1: [(0, 0, "OVERLOADED"), (0, 1, "OVERLOADED"), (1, 0, "OVERLOADED")]}


async def test_a_queue_that_is_being_changed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement_queue, "RETRY_S", 0.0)
    bench = Bench()
    bench.consumer.refusals = [Overloaded("being changed")] * 3
    bench.add(1, [0])
    bench.add(2, [2])
    await bench.turns(20)
    assert bench.consumer.seen == [(0, 0), (2, 2)]
    bench.consumer.answer()
    bench.consumer.answer()
    await bench.settlement_queue.finished()
    assert bench.answers == {1: [], 2: []}


async def test_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement_queue, "RETRY_S", 0.0)
    monkeypatch.setattr(settlement_queue, "MAX_RETRIES", 3)
    bench = Bench()
    bench.consumer.refusals = [Overloaded("being changed")] * 4
    bench.add(1, [0])
    await bench.settlement_queue.finished()
    assert bench.answers == {1: [(0, 0, "OVERLOADED")]}
    assert bench.failures == []


async def test_a_consumer_that_is_closed_ends_the_channel_and_leaves_nothing_open() -> None:
    bench = Bench()
    bench.consumer.refusals = [StaleMember("opened elsewhere")] * 2
    bench.add(1, range(MAX_RANGES_PER_CALL + 1))
    await bench.settlement_queue.finished()
    assert [error.code for error in bench.failures] == ["STALE_MEMBER", "STALE_MEMBER"]
    assert bench.charged == 0


_pair = st.tuples(st.integers(0, 50), st.integers(0, 50))
_step = st.one_of(
    st.lists(st.lists(_pair, max_size=6), max_size=4),
    st.integers(0, 3),  # answer this one of the calls that wait
    st.just("turn"),
)


@settings(deadline=None)
@given(st.lists(_step, max_size=25))
def test_every_settle_gets_one_response_with_exactly_its_failures(steps: list[Any]) -> None:
    async def run() -> None:
        bench = Bench()
        expected: dict[int, list[tuple[int, int, str]]] = {}
        sent: list[tuple[int, int]] = []
        for ref, step in enumerate(steps):
            if isinstance(step, list):
                bench.add(ref, *step)
                sent += [pair for ranges in step for pair in ranges]
                expected[ref] = [
                    (s, r, "NOT_LEASED")
                    for s, ranges in enumerate(step)
                    for r, (first, _) in enumerate(ranges)
                    if first % 2
                ]
            elif step == "turn":
                await bench.turns(1)
            elif step < len(bench.consumer.calls):
                bench.consumer.answer(step)
        while not bench.settlement_queue.is_idle:
            await bench.turns(1)
            while bench.consumer.calls:
                bench.consumer.answer()
        assert bench.answers == expected
        assert bench.consumer.seen == sent
        assert bench.charged == 0
        assert bench.failures == []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settlement_queue, "MAX_RANGES_PER_CALL", 5)
        asyncio.run(run())
