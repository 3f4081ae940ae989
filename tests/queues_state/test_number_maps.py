"""The maps that the indices of a queue are made of, against dictionaries."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.broker.queues.maps import hash_map, position_map
from sparrow.broker.queues.maps.hash_map import HashMap
from sparrow.broker.queues.maps.position_map import PositionMap
from tests.queues_state.memory import traced_bytes
from tests.repetitions import repetitions

EDGES = [0, 1, -1, (1 << 63) - 1, 1 - (1 << 63), 1 << 62, -(1 << 62)]
KEYS = st.sampled_from(EDGES) | st.integers(-20, 20) | st.integers(1 - (1 << 63), (1 << 63) - 1)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_map, "_FULL", 4)
    monkeypatch.setattr(hash_map, "_FEW", 3)


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("deepest", [3, 16])
def test_ids_map_like_a_dictionary(deepest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_map, "_MAX_DEPTH", deepest)
    steps = st.tuples(
        st.sampled_from(["set", "setdefault", "pop", "get", "sweep"]), KEYS, st.integers(1, (1 << 31) - 1)
    )

    @settings(max_examples=repetitions(100), deadline=None)
    @given(st.lists(steps, max_size=120))
    def check(steps: list[tuple[str, int, int]]) -> None:
        ids, model = HashMap("i"), dict[int, int]()
        for verb, key, value in steps:
            if verb == "set":
                ids.set(key, value)
                model[key] = value
            elif verb == "setdefault":
                assert ids.setdefault(key, value) == model.get(key, 0)
                model.setdefault(key, value)
            elif verb == "pop":
                assert ids.pop(key) == model.pop(key, 0)
            elif verb == "get":
                assert ids.get(key) == model.get(key, 0)
            else:
                for number in range(ids.shards):
                    ids.sweep(number, lambda each: each % 3 == 0)
                model = {each: kept for each, kept in model.items() if kept % 3}
            assert ids.count == len(model)
        assert dict(ids.entries()) == model
        assert ids.get_all([*model, 77]) == [*model.values(), model.get(77, 0)]

    check()


@pytest.mark.usefixtures("small_shards")
def test_refs_map_like_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_map, "_KEPT", 2)
    steps = st.tuples(
        st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 7, 400]), st.booleans(), st.integers(0, 60)
    )

    @settings(max_examples=repetitions(100), deadline=None)
    @given(st.lists(steps, max_size=150))
    def check(steps: list[tuple[int, int, bool, int]]) -> None:
        refs, model = PositionMap(), dict[int, int]()
        ends = [0, 0, 0]
        for number, (source, step, comes_late, popped) in enumerate(steps):
            ref = source << 48 | max(0, ends[source] + (-step if comes_late else step))
            ends[source] = max(ends[source], (ref & 0xFFFFFFFFFFFF) + 1)
            if ref not in model:
                refs.put(ref, number + 1)
                model[ref] = number + 1
            if popped < len(model):
                gone = sorted(model)[popped]
                assert refs.pop(gone) == model.pop(gone)
                assert refs.pop(gone) == refs.get(gone) == 0
            assert all(refs.get(each) == value for each, value in model.items())
        assert dict(refs.entries()) == model

    check()


@pytest.mark.usefixtures("small_shards")
def test_refs_of_many_sources_in_any_order_map_like_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_map, "_KEPT", 2)
    chance = random.Random(8)
    refs, model = PositionMap(), dict[int, int]()
    for number in range(1, 6_000):
        ref = chance.randrange(5) << 48 | chance.choice((number, chance.randrange(number)))
        if ref not in model:
            refs.put(ref, number)
            model[ref] = number
        if chance.random() < 0.4:
            gone = chance.choice((ref, next(iter(model))))
            assert refs.pop(gone) == model.pop(gone)
            assert refs.get(gone) == 0
    assert dict(refs.entries()) == model
    assert all(refs.get(ref) == value for ref, value in model.items())


def test_refs_that_are_far_apart_cost_little_too() -> None:
    tracemalloc.start()
    before = traced_bytes()
    refs = PositionMap()
    for number in range(8_000):
        refs.put(number * 1000, number + 1)
    taken = traced_bytes() - before
    tracemalloc.stop()
    assert taken < 25 * 8_000


def test_keys_that_are_not_spread_neither_break_a_map_nor_blow_up_its_directory() -> None:
    ids = HashMap("i")
    for key in range(1, 3_001):
        ids.set(key, key)
    assert ids.shards < 10
    assert all(ids.get(key) == key for key in range(1, 3_001))
    assert ids.get(0) == ids.get(3_001) == 0


def test_a_map_that_is_nearly_emptied_frees_its_memory() -> None:
    chance = random.Random(3)
    keys = [chance.getrandbits(64) - (1 << 63) for _ in range(40_000)]
    ids = HashMap("q")
    for key in keys:
        ids.set(key, 7)
    full = ids.memory
    for key in keys[100:]:
        ids.pop(key)
    assert full > 19 * len(keys)
    assert ids.memory < 10_000
    assert sorted(ids.entries()) == sorted((key, 7) for key in keys[:100])
