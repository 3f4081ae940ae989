"""Random records, ends, failures and forgetting against dictionaries: who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparrow.broker.queues import idmap, parents, refmap, waits
from sparrow.broker.queues.cycles import CycleSearch
from sparrow.broker.queues.parents import Admission, ParentIndex

IDS = 12


@dataclass
class Known:
    """A record in the model."""

    ref: int
    id_hash: int
    waits_for: set[int] = field(default_factory=set)
    """Ids."""


class Model:
    """What the index promises, with dictionaries."""

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
        """Whether the record of an id failed, None if that is not known."""
        ref, failed = self.ended.get(id_hash, (0, None))
        return None if failed is None or self.is_forgotten(ref) else failed

    def add(self, ref: int, id_hash: int, parents: list[int]) -> set[Admission]:
        """The admissions that are right (a cycle may be found now or later)."""
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
        """Refs of all unfinished records that are waited for."""
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
        """Whether a record is on a cycle or behind one."""
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


class Parents(RuleBasedStateMachine):
    """The index beside the model."""

    @initialize(release_failed=st.booleans())
    def start(self, release_failed: bool) -> None:
        self.index = ParentIndex(release_failed=release_failed)
        self.model = Model(release_failed=release_failed)
        self.offsets = [0, 0]

    def new_ref(self, source: int, skipped: int) -> int:
        self.offsets[source] += 1 + skipped
        return source << 48 | self.offsets[source]

    @rule(
        source=st.integers(0, 1),
        skipped=st.sampled_from([0, 0, 0, 1, 3, 600]),
        id_hash=st.integers(-1, IDS),
        parents=st.lists(st.integers(1, IDS), max_size=6),
    )
    def add(self, source: int, skipped: int, id_hash: int, parents: list[int]) -> None:
        ref = self.new_ref(source, skipped)
        admission = self.index.add(ref, id_hash, parents)
        assert admission in self.model.add(ref, id_hash, parents)
        if admission is Admission.CYCLE:
            self.model.records[ref].waits_for = set()

    @rule(
        source=st.integers(0, 1),
        skipped=st.sampled_from([0, 2]),
        id_hash=st.integers(0, IDS),
        failed=st.booleans(),
    )
    def add_finished(self, source: int, skipped: int, id_hash: int, failed: bool) -> None:
        ref = self.new_ref(source, skipped)
        freed = self.index.add_finished(ref, id_hash, failed=failed)
        assert len(freed) == len(set(freed))
        assert set(freed) == self.model.add_finished(ref, id_hash, failed=failed)

    def finish_one(self, ref: int, *, failed: bool) -> list[tuple[int, bool]]:
        freed = self.index.finish(ref, failed=failed)
        assert len(freed) == len(set(freed))
        assert set(freed) == self.model.finish(ref, failed=failed)
        return list(freed)

    @rule(data=st.data(), failed=st.booleans(), follow=st.booleans(), waiting=st.booleans())
    def finish(self, data: st.DataObject, failed: bool, follow: bool, waiting: bool) -> None:
        refs = [ref for ref, each in self.model.records.items() if waiting or not each.waits_for]
        if not refs:
            return
        freed = self.finish_one(data.draw(st.sampled_from(refs)), failed=failed)
        while follow and freed:
            ref, is_failed = freed.pop()
            if is_failed:
                freed += self.finish_one(ref, failed=True)

    @rule(source=st.integers(0, 1), back=st.integers(0, 10))
    def forget(self, source: int, back: int) -> None:
        before = max(0, self.offsets[source] - back)
        self.index.forget(source, before)
        self.model.floors[source] = max(self.model.floors.get(source, 0), before)

    @rule()
    def finish_everything(self) -> None:
        for ref in list(self.model.records):
            self.finish_one(ref, failed=False)
        assert len(self.index) == 0

    @rule(data=st.data())
    def search_for_cycles(self, data: st.DataObject) -> None:
        refs = data.draw(st.lists(st.sampled_from(sorted(self.model.records)))) if self.model.records else []
        assert all(self.model.is_stuck(ref) for ref in self.index.in_cycle(refs))

    @rule()
    def end_the_search(self) -> None:
        while self.index.is_searching:
            assert all(self.model.is_stuck(ref) for ref in self.index.in_cycle(()))
        stuck = {ref for ref in self.model.records if self.model.is_stuck(ref)}
        found = self.index.in_cycle(stuck)
        while self.index.is_searching:
            found |= self.index.in_cycle(())
        assert found == stuck

    @rule()
    def write_anew(self) -> None:
        self.index._rewrite()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "index"):
            return
        records = self.model.records
        assert self.index.waiting == sum(bool(each.waits_for) for each in records.values())
        for ref, each in records.items():
            assert self.index.is_waiting(ref) == bool(each.waits_for)
            assert self.index.missing(ref) == self.model.missing(ref)
        search = CycleSearch(self.index._graph)
        search.suspect(records)
        assert search.run(100_000) == {ref for ref in records if self.model.is_stuck(ref)}
        assert search.is_done
        held = {
            ref
            for ref, each in records.items()
            if each.waits_for or self.model.holders.get(each.id_hash) == ref
        }
        assert len(self.index) == len(held)
        awaited = {each for one in records.values() for each in one.waits_for} - set(self.model.holders)
        assert self.index._graph.used == len(held) + len(awaited)


@pytest.fixture(autouse=True)
def small_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records reach what else takes thousands."""
    monkeypatch.setattr(idmap, "_FULL", 3)
    monkeypatch.setattr(idmap, "_FEW", 2)
    monkeypatch.setattr(waits, "FEW", 2)
    monkeypatch.setattr(waits, "_MANY", 6)
    monkeypatch.setattr(refmap, "_KEPT", 2)
    monkeypatch.setattr(parents, "FEW", 2)
    monkeypatch.setattr(parents, "_CYCLE_BUDGET", 2)
    monkeypatch.setattr(parents, "_SWEPT_AT_ONCE", 1)
    monkeypatch.setattr(parents, "_SEARCH_BUDGET", 3)


def test_parents_behave_like_dictionaries() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Parents, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
