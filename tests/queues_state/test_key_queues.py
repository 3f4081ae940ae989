"""Order per key, against a dictionary of lists."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sparrow.broker.queues.maps import hash_map, position_map
from sparrow.broker.queues.rules import key_queues
from sparrow.broker.queues.rules.key_queues import KeyQueues
from tests.queues_state.memory import traced_bytes
from tests.repetitions import repetitions

SOURCE = 1 << 48


class KeyQueuesMachine(RuleBasedStateMachine):
    """Keys and refs beside a dictionary of lists."""

    @initialize()
    def start(self) -> None:
        self.queues = KeyQueues()
        self.model: dict[int, list[int]] = {}
        self.offset = 0

    def heads(self) -> list[int]:
        return [refs[0] for refs in self.model.values()]

    @rule(
        key=st.integers(1, 8) | st.sampled_from([-1, (1 << 63) - 1, 1 - (1 << 63)]),
        source=st.integers(0, 2),
        step=st.sampled_from([1, 1, 1, 300]),
    )
    def enter(self, key: int, source: int, step: int) -> None:
        self.offset += step
        refs = self.model.setdefault(key, [])
        refs.append(source * SOURCE + self.offset)
        assert self.queues.enter(key, refs[-1]) == (len(refs) == 1)

    @rule(data=st.data())
    def enter_a_head_again(self, data: st.DataObject) -> None:
        if self.model:
            key = data.draw(st.sampled_from(sorted(self.model)))
            assert self.queues.enter(key, self.model[key][0])

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.model:
            key = data.draw(st.sampled_from(sorted(self.model)))
            refs = self.model[key]
            heir = self.queues.leave(refs.pop(0))
            assert heir == (refs[0] if refs else None)
            if not refs:
                del self.model[key]

    @rule(data=st.data())
    def leave_without_being_a_head(self, data: st.DataObject) -> None:
        waiting = [ref for refs in self.model.values() for ref in refs[1:]]
        ref = data.draw(st.sampled_from(waiting)) if waiting else 12345678
        assert self.queues.leave(ref) is None

    @rule()
    def clear(self) -> None:
        self.queues.clear()
        self.model.clear()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "queues"):
            assert len(self.queues) == len(self.model)
            assert self.queues.waiting() == sum(len(refs) - 1 for refs in self.model.values())
            for key, refs in self.model.items():
                assert self.queues.enter(key, refs[0])


@pytest.fixture
def small_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_map, "_FULL", 3)
    monkeypatch.setattr(position_map, "_KEPT", 2)
    monkeypatch.setattr(key_queues, "_FEW", 1)


@pytest.mark.usefixtures("small_structures")
def test_key_queues_behave_like_a_dictionary_of_lists() -> None:
    run_state_machine_as_test(
        KeyQueuesMachine,
        settings=settings(max_examples=repetitions(30), stateful_step_count=40, deadline=None),
    )


@pytest.mark.usefixtures("small_structures")
@pytest.mark.parametrize("seed", range(4))
def test_key_queues_behave_like_a_dictionary_of_lists_in_long_runs(seed: int) -> None:
    chance = random.Random(seed)
    queues, model = KeyQueues(), dict[int, list[int]]()
    offset = 0
    for number in range(4_000):
        grows = number // 500 % 2 == 0
        if chance.random() < (0.6 if grows else 0.4):
            offset += chance.choice((1, 1, 1, 300))
            refs = model.setdefault(chance.choice((1, 1, 1, chance.randint(2, 60))), [])
            refs.append(chance.randrange(2) * SOURCE + offset)
            key = next(key for key, each in model.items() if each is refs)
            assert queues.enter(key, refs[-1]) == (len(refs) == 1)
        elif model:
            key = chance.choice(list(model))
            refs = model[key]
            assert queues.enter(key, refs[0])
            assert queues.leave(refs.pop(0)) == (refs[0] if refs else None)
            if not refs:
                del model[key]
        assert len(queues) == len(model)
        assert queues.waiting() == sum(map(len, model.values())) - len(model)


def test_a_key_whose_head_is_alone_takes_less_than_50_bytes_and_a_waiting_record_12_more() -> None:
    count = 8_000
    chance = random.Random(1)
    hashes = [chance.getrandbits(63) + 1 for _ in range(count)]
    tracemalloc.start()
    before = traced_bytes()
    queues = KeyQueues()
    for ref, key in enumerate(hashes):
        queues.enter(key, ref)
    alone = traced_bytes() - before
    for ref, key in enumerate(hashes, count):
        queues.enter(key, ref)
    waiting = traced_bytes() - before - alone
    for ref in range(2 * count):
        queues.leave(ref)
    left = traced_bytes() - before
    tracemalloc.stop()
    assert alone < 50 * count
    assert waiting < 13 * count
    assert left < 200_000  # mostly freed tuples that Python keeps for later ones


def test_a_hot_key_that_drains_leaves_no_room_behind() -> None:
    queues = KeyQueues()
    queues.enter(5, 0)
    for ref in range(1, 20_000):
        queues.enter(6, ref)
    for ref in range(1, 20_000):
        queues.leave(ref)
    assert len(queues) == 1
    assert queues.memory < 50_000
