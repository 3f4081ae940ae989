"""Random records, ends, failures and forgotten ones against dictionaries: which record waits for
which.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sparrow.broker.queues.maps import hash_map, position_map
from sparrow.broker.queues.rules import dependencies, wait_graph
from sparrow.broker.queues.rules.dependencies import Admission, Freed, ParentIndex
from tests.repetitions import repetitions

IDS = 12


@dataclass
class Known:
    """A record in the model."""

    ref: int
    id_hash: int
    waits_for: set[int] = field(default_factory=set)
    """Ids."""


class Model:
    """The guarantees of the index, with dictionaries."""

    def __init__(self, *, release_failed: bool) -> None:
        self.release_failed = release_failed
        self.records: dict[int, Known] = {}
        """Unfinished, by ref."""
        self.holders: dict[int, int] = {}
        """By id: the ref of the unfinished record that counts."""
        self.ended: dict[int, tuple[int, bool]] = {}
        """By id: ref, and whether it failed."""
        self.floors: dict[int, int] = {}

    def is_forgotten(self, ref: int) -> bool:
        return ref & ((1 << 48) - 1) < self.floors.get(ref >> 48, 0)

    def outcome(self, id_hash: int) -> bool | None:
        """Return True if the record of an id failed, None if that is not known."""
        ref, failed = self.ended.get(id_hash, (0, None))
        return None if failed is None or self.is_forgotten(ref) else failed

    def add(self, ref: int, id_hash: int, parents: list[int]) -> set[Admission]:
        """Add the admissions that are valid (a cycle may be found now or later)."""
        record = self.records[ref] = Known(ref, id_hash)
        if id_hash and id_hash not in self.holders and self.outcome(id_hash) is not False:
            self.holders[id_hash] = ref
        if id_hash and id_hash in parents:
            return {Admission.SELF}
        if any(each not in self.holders and self.outcome(each) for each in parents):
            return {Admission.FAILED}
        record.waits_for = {
            each for each in parents if each in self.holders or self.outcome(each) is not False
        }
        if not record.waits_for:
            return {Admission.FREE}
        if self.holders.get(id_hash) == ref and self.reaches(record.waits_for, ref):
            return {Admission.CYCLE, Admission.WAITS}
        return {Admission.WAITS}

    def ancestors(self, ids: set[int]) -> set[int]:
        """Return the refs of all unfinished records that a record waits for."""
        found: set[int] = set()
        todo = [self.holders[each] for each in ids if each in self.holders]
        while todo:
            ref = todo.pop()
            if ref not in found:
                found.add(ref)
                todo += [self.holders[each] for each in self.records[ref].waits_for if each in self.holders]
        return found

    def reaches(self, ids: set[int], ref: int) -> bool:
        return ref in self.ancestors(ids)

    def is_stuck(self, ref: int) -> bool:
        """Return True if a record is on a cycle or behind one."""
        waits_for = self.records[ref].waits_for
        return any(
            self.reaches(self.records[each].waits_for, each) for each in self.ancestors(waits_for) | {ref}
        )

    def end(self, id_hash: int, ref: int, *, failed: bool) -> set[tuple[int, bool]]:
        failed = failed and not self.release_failed
        self.ended[id_hash] = (ref, failed)
        freed = set()
        for each in self.records.values():
            if id_hash in each.waits_for:
                each.waits_for = set() if failed else each.waits_for - {id_hash}
                if not each.waits_for:
                    freed.add((each.ref, failed))
        return freed

    def add_finished(self, ref: int, id_hash: int, *, failed: bool) -> set[tuple[int, bool]]:
        if not id_hash or id_hash in self.holders or self.outcome(id_hash) is False:
            return set()
        return self.end(id_hash, ref, failed=failed)

    def finish(self, ref: int, *, failed: bool) -> set[tuple[int, bool]]:
        record = self.records.pop(ref)
        if self.holders.get(record.id_hash) != ref:
            return set()
        del self.holders[record.id_hash]
        return self.end(record.id_hash, ref, failed=failed)

    def missing(self, ref: int) -> bool:
        return any(each not in self.holders for each in self.records[ref].waits_for)


class Beside:
    """The index beside the model: each step is taken in both, and they must agree."""

    def __init__(self, *, release_failed: bool) -> None:
        self.index = ParentIndex(release_failed=release_failed)
        self.model = Model(release_failed=release_failed)
        self.offsets = [0, 0]

    def new_ref(self, source: int, skipped: int) -> int:
        self.offsets[source] += 1 + skipped
        return source << 48 | self.offsets[source] - 1

    def add(self, source: int, skipped: int, id_hash: int, parents: list[int]) -> None:
        ref = self.new_ref(source, skipped)
        admission = self.index.add(ref, id_hash, parents)
        assert admission in self.model.add(ref, id_hash, parents)
        if admission is Admission.CYCLE:
            self.model.records[ref].waits_for = set()

    def add_finished(self, source: int, id_hash: int, *, failed: bool) -> None:
        ref = self.new_ref(source, 0)
        freed = self.index.add_finished(ref, id_hash, failed=failed)
        assert len(freed) == len(set(freed))
        assert set(freed) == self.model.add_finished(ref, id_hash, failed=failed)

    def candidates(self, *, waiting: bool) -> list[int]:
        return [ref for ref, each in self.model.records.items() if waiting or not each.waits_for]

    def finish_one(self, ref: int, *, failed: bool) -> list[Freed]:
        freed = self.index.finish(ref, failed=failed)
        assert len(freed) == len(set(freed))
        assert set(freed) == self.model.finish(ref, failed=failed)
        return freed

    def finish(self, ref: int, *, failed: bool, follow: bool) -> None:
        freed = self.finish_one(ref, failed=failed)
        while follow and freed:
            each = freed.pop()
            if each.is_failed:
                freed += self.finish_one(each.ref, failed=True)

    def forget(self, source: int, back: int) -> None:
        before = max(0, self.offsets[source] - back)
        self.index.forget(source, before)
        self.model.floors[source] = max(self.model.floors.get(source, 0), before)

    def search(self, refs: Iterable[int]) -> set[int]:
        """Search: every record found is stuck, but not all are found at once."""
        found = self.index.in_cycle(refs)
        assert found <= self.stuck()
        return found

    def end_the_search(self) -> None:
        while self.index.is_searching:
            self.search(())
        found = self.search(self.model.records)
        while self.index.is_searching:
            found |= self.search(())
        assert found == self.stuck()

    def finish_everything(self) -> None:
        for ref in list(self.model.records):
            self.finish_one(ref, failed=False)
            self.check()
        assert len(self.index) == 0

    def stuck(self) -> set[int]:
        return {ref for ref in self.model.records if self.model.is_stuck(ref)}

    def check(self) -> None:
        index, records = self.index, self.model.records
        assert index.waiting == sum(bool(each.waits_for) for each in records.values())
        for ref, each in records.items():
            assert index.is_waiting(ref) == bool(each.waits_for)
            assert index.missing(ref) == self.model.missing(ref)
        held = [
            ref
            for ref, each in records.items()
            if each.waits_for or self.model.holders.get(each.id_hash) == ref
        ]
        awaited = {each for one in records.values() for each in one.waits_for} - set(self.model.holders)
        assert len(index) == len(held)
        assert index._graph.used == len(held) + len(awaited)


SOURCES = st.integers(0, 1)


class Parents(RuleBasedStateMachine):
    """Steps that hypothesis chooses."""

    @initialize(release_failed=st.booleans())
    def start(self, release_failed: bool) -> None:
        self.both = Beside(release_failed=release_failed)

    @rule(
        source=SOURCES,
        skipped=st.sampled_from([0, 0, 0, 1, 3, 600]),
        id_hash=st.integers(-1, IDS),
        parents=st.lists(st.integers(1, IDS), max_size=6),
    )
    def add(self, source: int, skipped: int, id_hash: int, parents: list[int]) -> None:
        self.both.add(source, skipped, id_hash, parents)

    @rule(source=SOURCES, id_hash=st.integers(0, IDS), failed=st.booleans())
    def add_finished(self, source: int, id_hash: int, failed: bool) -> None:
        self.both.add_finished(source, id_hash, failed=failed)

    @rule(data=st.data(), failed=st.booleans(), follow=st.booleans(), waiting=st.booleans())
    def finish(self, data: st.DataObject, failed: bool, follow: bool, waiting: bool) -> None:
        refs = self.both.candidates(waiting=waiting)
        if refs:
            self.both.finish(data.draw(st.sampled_from(refs)), failed=failed, follow=follow)

    @rule(source=SOURCES, back=st.integers(0, 10))
    def forget(self, source: int, back: int) -> None:
        self.both.forget(source, back)

    @rule(data=st.data())
    def search(self, data: st.DataObject) -> None:
        refs = sorted(self.both.model.records)
        self.both.search(data.draw(st.lists(st.sampled_from(refs))) if refs else [])

    @rule()
    def end_the_search(self) -> None:
        self.both.end_the_search()

    @rule()
    def write_again(self) -> None:
        self.both.index._rewrite()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "both"):
            self.both.check()

    def teardown(self) -> None:
        if hasattr(self, "both"):
            self.both.finish_everything()


@pytest.fixture(autouse=True)
def small_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make structures small, so that few records cover cases that otherwise need thousands."""
    monkeypatch.setattr(hash_map, "_FULL", 3)
    monkeypatch.setattr(hash_map, "_FEW", 2)
    monkeypatch.setattr(wait_graph, "FEW", 2)
    monkeypatch.setattr(wait_graph, "_MANY", 6)
    monkeypatch.setattr(position_map, "_KEPT", 2)
    monkeypatch.setattr(dependencies, "FEW", 2)
    monkeypatch.setattr(dependencies, "_CYCLE_BUDGET", 2)
    monkeypatch.setattr(dependencies, "_SWEPT_AT_ONCE", 1)
    monkeypatch.setattr(dependencies, "_SEARCH_BUDGET", 3)


def test_parents_behave_like_dictionaries() -> None:
    run_state_machine_as_test(
        Parents, settings=settings(max_examples=repetitions(30), stateful_step_count=40, deadline=None)
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_parents_behave_like_dictionaries_in_long_runs(seed: int) -> None:
    chance = random.Random(seed)
    ids = 4 << seed % 4
    both = Beside(release_failed=seed % 3 == 2)
    for _ in range(600):
        step = chance.random()
        refs = both.candidates(waiting=step < 0.5)
        source = chance.randrange(2)
        if step < 0.4 and len(both.model.records) < 2 * ids:
            named = [chance.randint(1, ids) for _ in range(chance.choice((0, 0, 1, 1, 1, 2, 3, 9)))]
            both.add(source, chance.choice((0, 0, 0, 0, 300)), chance.randint(-1, ids), named)
        elif step < 0.45:
            both.add_finished(source, chance.randint(0, ids), failed=chance.random() < 0.4)
        elif step < 0.8:
            if refs:
                both.finish(chance.choice(refs), failed=chance.random() < 0.3, follow=chance.random() < 0.7)
        elif step < 0.86:
            both.forget(source, chance.randrange(12))
        elif step < 0.98:
            both.search(chance.sample(refs, min(len(refs), 2)))
        elif step < 0.99:
            both.index._rewrite()
        else:
            both.end_the_search()
        both.check()
    both.finish_everything()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_search_for_cycles_finds_no_false_ones_however_records_come_and_go_meanwhile(seed: int) -> None:
    chance = random.Random(seed)
    ids = 30
    both = Beside(release_failed=False)
    for _ in range(700):
        missing = [each for each in range(1, ids + 1) if each not in both.model.holders]
        step = chance.random()
        both.forget(0, 0)  # so that returning records are waited for
        if missing and step < 0.4:
            named = chance.sample(range(1, ids + 1), chance.choice((1, 1, 2)))
            both.add(0, 0, chance.choice(missing), named)
        elif step < 0.55 and both.model.records:
            both.finish(chance.choice(list(both.model.records)), failed=chance.random() < 0.1, follow=False)
        elif not both.index.is_searching:
            both.search(chance.sample(list(both.model.records), min(len(both.model.records), 3)))
        else:
            both.search(())
    both.end_the_search()


def search_to_the_end(index: ParentIndex) -> set[int]:
    found = index.in_cycle(())
    while index.is_searching:
        found |= index.in_cycle(())
    return found


def test_the_end_of_the_path_of_a_search_may_be_finished_before_it_goes_on() -> None:
    index = ParentIndex(release_failed=False)
    for each in range(1, 8):
        index.add(each, each, (4, 99) if each == 3 else (each + 1,))
    index.add(8, 8, ())
    assert index.in_cycle([1]) == index.in_cycle(()) == set()
    assert index.is_searching
    for each in (8, 7, 6, 5, 4):
        index.finish(each)
    for each in (20, 21, 22, 23):  # they reuse the space of those
        assert index.add(each, each, (2,)) is Admission.WAITS
    assert search_to_the_end(index) == set()


def test_a_suspect_stays_one_when_another_record_of_the_path_gives_up() -> None:
    index = ParentIndex(release_failed=False)
    for each, named in (
        (1, (2, 10)),
        (2, (3,)),
        (3, (4,)),
        (4, (5,)),
        (10, (11,)),
        (11, (12,)),
        (12, (13,)),
        (13, (10,)),
    ):
        assert index.add(each, each, named) is Admission.WAITS
    assert index.in_cycle([1]) == set()
    assert index.is_searching
    index.finish(3)
    assert search_to_the_end(index) == {1}
