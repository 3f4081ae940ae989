"""Parents: blocked records, freed ones, failed children, and the cost."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

import pytest

from sparrow.broker.queues.rules.dependencies import Admission, Freed, ParentIndex
from tests.queues_state.memory import traced_bytes

FREE, WAITS, FAILED = Admission.FREE, Admission.WAITS, Admission.FAILED
SOURCE = 1 << 48


@pytest.fixture
def index() -> ParentIndex:
    return ParentIndex(release_failed=False)


def handled(*refs: int) -> list[Freed]:
    return [Freed(ref, is_failed=False) for ref in refs]


def follow(*refs: int) -> list[Freed]:
    return [Freed(ref, is_failed=True) for ref in refs]


def test_a_child_waits_until_all_its_parents_are_finished(index: ParentIndex) -> None:
    assert [index.add(ref, ref, ()) for ref in (1, 2, 3)] == [FREE] * 3
    assert index.add(4, 0, (1, 2, 3)) is WAITS
    assert index.finish(2) == index.finish(1) == []
    assert index.is_waiting(4)
    assert index.finish(3) == handled(4)
    assert not index.is_waiting(4)
    assert index.waiting == 0


def test_children_may_come_before_their_parents_and_from_other_sources(index: ParentIndex) -> None:
    assert index.add(5, 50, (70,)) is WAITS
    assert index.missing(5)
    assert index.add(SOURCE + 5, 60, (50, 70)) is WAITS
    assert not index.missing(6)
    assert index.add(7, 70, ()) is FREE
    assert not index.missing(5)
    assert index.finish(7) == handled(5)
    assert index.finish(5) == handled(SOURCE + 5)


def test_a_parent_that_was_finished_long_ago_is_not_waited_for(index: ParentIndex) -> None:
    index.add(1, 10, ())
    index.finish(1)
    assert index.add_finished(2, 20, failed=False) == []
    assert index.add(3, 0, (10, 20)) is FREE


def test_a_parent_found_finished_while_the_index_is_rebuilt_frees_those_that_came_before(
    index: ParentIndex,
) -> None:
    index.add(5, 0, (10,))
    index.add(6, 0, (10, 20))
    index.add(7, 0, (30,))
    assert index.add_finished(8, 10, failed=False) == handled(5)
    assert index.add_finished(9, 30, failed=True) == follow(7)
    assert index.is_waiting(6)
    assert index.add_finished(10, 20, failed=False) == handled(6)


def test_a_parent_named_twice_counts_once(index: ParentIndex) -> None:
    index.add(1, 10, ())
    assert index.add(2, 0, (10, 10, 20, 20)) is WAITS
    assert index.finish(1) == []
    assert index.add(3, 20, ()) is FREE
    assert index.finish(3) == handled(2)


def test_a_failed_parent_takes_its_children_along_each_once_though_they_wait_for_others(
    index: ParentIndex,
) -> None:
    index.add(1, 10, ())
    index.add(2, 20, ())
    index.add(3, 30, (10, 20, 99))
    index.add(4, 0, (30,))
    assert index.finish(1, failed=True) == follow(3)
    assert not index.is_waiting(3)
    assert index.finish(2, failed=True) == []
    assert index.finish(3, failed=True) == follow(4)
    assert index.add(5, 0, (20, 77)) is FAILED
    assert index.finish(5, failed=True) == []


def test_a_failed_parent_counts_as_finished_where_the_policy_releases_its_children() -> None:
    index = ParentIndex(release_failed=True)
    index.add(1, 10, ())
    index.add(2, 0, (10,))
    assert index.finish(1, failed=True) == handled(2)
    assert index.add(3, 0, (10,)) is FREE


def test_a_record_that_was_sent_again_after_it_failed_replaces_the_first(
    index: ParentIndex,
) -> None:
    index.add(1, 10, ())
    index.finish(1, failed=True)
    assert index.add(2, 10, ()) is FREE
    assert index.add(3, 0, (10,)) is WAITS
    assert index.finish(2) == handled(3)
    assert index.add(4, 0, (10,)) is FREE


def test_children_wait_for_the_first_of_two_records_with_one_id(index: ParentIndex) -> None:
    index.add(1, 10, ())
    assert index.add(2, 10, (20,)) is WAITS
    index.add(3, 0, (10,))
    index.add(4, 20, ())
    assert index.finish(4) == handled(2)
    assert index.finish(2) == []
    assert index.finish(1) == handled(3)


def test_a_record_that_names_itself_is_reported_and_blocks_no_other_for_good(index: ParentIndex) -> None:
    assert index.add(1, 10, (20, 10)) is Admission.SELF
    assert not index.is_waiting(1)
    index.add(2, 0, (10,))
    assert index.finish(1, failed=True) == follow(2)


@pytest.mark.parametrize("length", [2, 3, 50])
def test_a_small_cycle_is_found_when_it_closes(index: ParentIndex, length: int) -> None:
    for each in range(1, length):
        assert index.add(each, each, (each + 1,)) is WAITS
    assert index.add(length, length, (1,)) is Admission.CYCLE
    failed, todo = [], follow(length)
    while todo:
        failed.append(todo.pop().ref)
        todo += index.finish(failed[-1], failed=True)
    assert sorted(failed) == list(range(1, length + 1))
    assert len(index) == 0


def test_large_cycles_are_found_by_a_search_with_those_behind_them_only(index: ParentIndex) -> None:
    length = 300
    for each in range(1, length + 1):
        assert index.add(each, each, (each % length + 1,)) is WAITS
    index.add(1000, 1000, (7,))
    index.add(1001, 1001, (9999,))
    index.add(1002, 1002, (1001,))
    index.add(1003, 1003, (1000, 1001))
    assert not index.missing(5)
    assert search(index, [5, 299, 1000, 1001, 1002, 1003]) == {5, 299, 1000, 1003}


def search(index: ParentIndex, refs: Iterable[int]) -> set[int]:
    found = index.in_cycle(refs)
    while index.is_searching:
        found |= index.in_cycle(())
    return found


def test_a_search_goes_on_in_slices_while_records_end_and_come(index: ParentIndex) -> None:
    length = 20_000
    index.add(1, 1, ())
    for each in range(2, length):
        index.add(each, each, (each - 1,))
    for each in range(length, length + 100):
        index.add(each, each, (each + 1,))
    index.add(length + 100, length + 100, (length - 1, length))
    found = index.in_cycle([length - 1, length])
    assert index.is_searching
    slices = 0
    while index.is_searching:
        slices += 1
        assert index.finish(slices) == handled(slices + 1)
        index.add(50_000 + slices, 50_000 + slices, (length,))
        found |= index.in_cycle(())
    assert found == {length}
    assert slices > 2


def test_a_record_that_gives_up_leaves_its_parents_lists(index: ParentIndex) -> None:
    index.add(1, 10, ())
    for ref in (2, 3, 4):
        index.add(ref, 0, (10, 99))
    assert index.finish(3, failed=True) == []
    assert not index.is_waiting(3)
    assert index.finish(1) == []
    index.finish(2, failed=True)
    assert index.add(5, 99, ()) is FREE
    assert index.finish(5) == handled(4)


def test_nothing_is_left_of_parents_that_never_came(index: ParentIndex) -> None:
    empty = index.memory
    for ref in range(2_000):
        assert index.add(ref, 0, (100_000 + 2 * ref, 100_001 + 2 * ref)) is WAITS
    for ref in range(2_000):
        assert index.missing(ref)
        assert index.finish(ref, failed=True) == []
    assert len(index) == index.waiting == 0
    assert index.memory < empty + 50_000


def test_dependencies_of_removed_records_are_forgotten(index: ParentIndex) -> None:
    for ref in (1, 2, SOURCE + 1):
        index.add(ref, 10 + ref, ())
        index.finish(ref)
    index.forget(0, 2)
    assert index.add(5, 0, (11,)) is WAITS
    assert index.missing(5)
    assert index.add(6, 0, (12, 11 + SOURCE)) is FREE
    index.add(7, 70, ())
    index.forget(0, 8)
    index.finish(7)
    assert index.add(9, 0, (70,)) is WAITS


def test_the_memory_of_forgotten_ids_is_freed_bit_by_bit(index: ParentIndex) -> None:
    chance = random.Random(2)
    for ref in range(30_000):
        index.add_finished(ref, chance.getrandbits(62) + 1, failed=ref % 2 == 0)
    full = index.memory
    index.forget(0, 29_000)
    while index.sweep():
        pass
    assert index.memory < full / 4


def test_finishing_an_unknown_record_has_no_effect(index: ParentIndex) -> None:
    assert index.add(1, 0, ()) is FREE
    assert index.finish(1) == index.finish(2) == []
    assert not index.is_waiting(1)
    assert not index.missing(1)
    assert index.in_cycle([1, 2]) == set()
    assert len(index) == 0


def graph(kind: str, count: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return (id, parents) of records that each have parents, but the first."""
    chance = random.Random(4)
    ids = [chance.getrandbits(64) - (1 << 63) | 1 for _ in range(count)]
    if kind == "chain":
        return [(ids[each], (ids[each - 1],) if each else ()) for each in range(count)]
    return [
        (ids[each], tuple({ids[chance.randrange(each)] for _ in range(chance.randint(1, 3))}) if each else ())
        for each in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chain", "random"])
def test_an_unfinished_record_takes_less_than_100_bytes_and_a_finished_one_less_than_25(kind: str) -> None:
    count = 10_000
    records = graph(kind, count)
    tracemalloc.start()
    before = traced_bytes()
    index = ParentIndex(release_failed=False)
    for ref, (id_hash, parents) in enumerate(records):
        index.add(ref, id_hash, parents)
    unfinished = traced_bytes() - before
    assert index.waiting == count - 1
    assert unfinished < 100 * count
    assert abs(index.memory - unfinished) < unfinished / 10
    for ref in range(count):
        index.finish(ref)
    finished = traced_bytes() - before
    tracemalloc.stop()
    assert finished < 25 * count


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chain", "random"])
def test_thousands_of_records_drain_in_any_order_of_arrival_parents_first(kind: str) -> None:
    records = list(enumerate(graph(kind, 30_000)))
    ref_of = {id_hash: ref for ref, (id_hash, _) in records}
    random.Random(5).shuffle(records)
    index = ParentIndex(release_failed=False)
    parents_of = dict[int, tuple[int, ...]]()
    todo = []
    for ref, (id_hash, parents) in records:
        parents_of[ref] = parents
        if index.add(ref, id_hash, parents) is FREE:
            todo.append(ref)
    finished = set[int]()
    while todo:
        ref = todo.pop()
        assert all(ref_of[each] in finished for each in parents_of[ref])
        finished.add(ref)
        todo += [each.ref for each in index.finish(ref)]
    assert len(finished) == len(records)
    assert len(index) == 0
