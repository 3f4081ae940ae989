"""Parents: a record is delivered when every record that it names is finished, in whatever order
they come.

Three things are known of a record: the records that it waits for and those that wait for it, as
long as it is not finished (`wait_graph.py`); and how it ended, as long as the log keeps it. A
parent that was never seen is a node of the graph too, until it comes or the last record that waits
for it gives up.

Ids are 64-bit hashes. One map leads from an id to the *fate* of its record:

    0                            nothing is known
    1 + ref                      handled
    -node        > -2**32        not finished: its node in the graph
    ref - 2**63                  failed

Of several records with one id the first counts; but one that comes after the first has failed
replaces it (it was sent again from the dead letters), so that those sent again with it may follow
it.

Pure. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from sparrow.broker.queues.maps.hash_map import HashMap
from sparrow.broker.queues.rules.cycles import CycleSearch, reaches
from sparrow.broker.queues.rules.wait_graph import AWAITED, FEW, WaitGraph

_NODES: Final = -(1 << 32)
_FAILED: Final = -(1 << 63)
_OFFSET_MASK: Final = (1 << 48) - 1
_SOURCE_SHIFT: Final = 48
_CYCLE_BUDGET: Final = 64
"""Maximum number of records that are checked when a record that others wait for begins to wait."""
_SEARCH_BUDGET: Final = 5_000
"""Number of edges that one call of `in_cycle` follows, about 3 ms."""
_SWEPT_AT_ONCE: Final = 64
"""Number of shards that one call of `forget` cleans, about 2 ms."""


class Admission(Enum):
    """Result of adding a record."""

    FREE = "free"
    """Waits for nothing."""
    WAITS = "waits"
    """Waits for at least one parent."""
    FAILED = "failed"
    """Fails because a parent failed."""
    SELF = "self"
    """Names itself as parent."""
    CYCLE = "cycle"
    """Waits for itself through others."""


_FREE: Final = Admission.FREE
_WAITS: Final = Admission.WAITS
"""Looking up a member of an enumeration takes as long as an access to an array."""


class Freed(NamedTuple):
    """A record that does not wait any more."""

    ref: int
    is_failed: bool
    """True: fails because a parent failed. False: all its parents are finished."""


_freed: Final = partial(tuple.__new__, Freed)
"""Half the price of `Freed(...)`."""


class ParentIndex:
    """Parents and children of the records of a queue whose order is "parented".

    An unfinished record costs 72 bytes with one parent and 17 for each more, a finished one with an
    id about 20. A record without id and parents costs nothing. A call takes time in proportion to
    the records that it frees and the parents that it names (0.7 µs for each), and at most about 3
    ms beside that.

    Args:
        release_failed: True if a parent that failed counts as finished (policy `parent_failed` =
            "release").
    """

    def __init__(self, *, release_failed: bool) -> None:
        self._releases_failed = release_failed
        self._graph = WaitGraph()
        self._search = CycleSearch(self._graph)
        self._fates = HashMap("q")
        self._floors: dict[int, int] = {}
        """For each source, the offset before which the fates of records are forgotten."""
        self._swept = 0
        """The shard of the fates to sweep next."""
        self._unswept = 0
        """Number of shards left to sweep."""

    def __len__(self) -> int:
        """Return the number of unfinished records that have an id or wait."""
        return self._graph.used - self._graph.awaited

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for at least one parent."""
        return self._graph.waiting

    @property
    def memory(self) -> int:
        """Number of bytes that the index takes, roughly."""
        return self._graph.memory + self._fates.memory

    # ── records come ──────────────────────────────────────────────────────────────────────────────

    def add(self, ref: int, id_hash: int, parents: Sequence[int]) -> Admission:
        """Add a record that is not finished, once.

        Args:
            ref: its source and offset.
            id_hash: the hash of its id; 0: it has none.
            parents: the hashes of its parents' ids; duplicates count once.
        """
        graph = self._graph
        node = 0
        if id_hash:
            node = graph.free_node or graph.fresh_node
            fate = self._fates.setdefault(id_hash, -node)
            if fate:
                node = self._claim(ref, id_hash, fate)
            else:
                graph.add(ref, id_hash)
        if not parents:
            return _FREE
        if id_hash and id_hash in parents:
            return Admission.SELF
        return self._wait(ref, node, parents)

    def _wait(self, ref: int, node: int, parents: Sequence[int]) -> Admission:
        graph = self._graph
        known: list[int] = []
        unseen: list[int] = []
        for number, fate in enumerate(self._fates.get_all(parents)):
            if _NODES < fate < 0:
                known.append(-fate)
            elif not fate or (self._floors and self._is_forgotten(fate)):
                unseen.append(parents[number])
            elif fate < 0:
                return Admission.FAILED
        if node and known and graph.children[node] and reaches(graph, known, node, _CYCLE_BUDGET):
            return Admission.CYCLE
        if unseen:
            known += [self._await(each) for each in dict.fromkeys(unseen)]
        elif not known:
            return _FREE
        graph.link(node or graph.add(ref, 0), known)
        return _WAITS

    def _claim(self, ref: int, id_hash: int, fate: int) -> int:
        """Return the node of a record whose id is known; 0 if another record has the id."""
        graph = self._graph
        if _NODES < fate < 0:
            if graph.refs[-fate] != AWAITED:
                return 0
            graph.appear(-fate, ref)
            return -fate
        if fate > 0 and not self._is_forgotten(fate):
            return 0
        self._fates.set(id_hash, -(graph.free_node or graph.fresh_node))
        return graph.add(ref, id_hash)

    def _await(self, id_hash: int) -> int:
        """Return a node for a parent that was never seen."""
        node = self._graph.add(AWAITED, id_hash)
        self._fates.set(id_hash, -node)
        return node

    def add_finished(self, ref: int, id_hash: int, *, failed: bool) -> list[Freed]:
        """Add a record that was finished before the index knew of it. Return the records that do
        not wait any more.
        """
        if not id_hash:
            return []
        fate = self._fates.get(id_hash)
        failed = failed and not self._releases_failed
        if _NODES < fate < 0:
            if self._graph.refs[-fate] != AWAITED:
                return []
            self._graph.appear(-fate, ref)
            self._graph.by_ref.pop(ref)
            return self._end(-fate, ref, failed)
        if not self._is_gone(ref) and (fate <= 0 or self._is_forgotten(fate)):
            self._fates.set(id_hash, ref + _FAILED if failed else ref + 1)
        return []

    # ── records end ───────────────────────────────────────────────────────────────────────────────

    def finish(self, ref: int, *, failed: bool = False) -> list[Freed]:
        """Finish a record that was added, even if it waited. Return the records that do not wait
        any more.

        The caller must finish those with `is_failed` as failed, so that their children fail, too.
        """
        graph = self._graph
        node = graph.by_ref.pop(ref)
        if not node:
            return []
        if graph.waits[node]:
            self._give_up(node)
        return self._end(node, ref, failed and not self._releases_failed)

    def _end(self, node: int, ref: int, failed: bool) -> list[Freed]:
        graph = self._graph
        freed: list[Freed] = []
        if graph.children[node]:
            refs, ids = graph.refs, graph.ids
            for each in self._abandon(node) if failed else graph.release(node):
                child_ref = refs[each]
                freed.append(_freed((child_ref, failed)))
                if not ids[each]:
                    graph.by_ref.pop(child_ref)
                    graph.remove(each)
        id_hash = graph.ids[node]
        if id_hash:
            if self._floors and self._is_gone(ref):
                self._fates.pop(id_hash)
            else:
                self._fates.set(id_hash, ref + _FAILED if failed else ref + 1)
        graph.remove(node)
        if graph.used <= FEW and graph.is_wasteful:
            self._rewrite()
        return freed

    def _abandon(self, node: int) -> list[int]:
        """Fail a node: its children do not wait for anything any more."""
        children: list[int] = []
        while child := self._graph.a_child(node):
            self._give_up(child)
            children.append(child)
        children.reverse()
        return children

    def _give_up(self, node: int) -> None:
        """End the wait of a node, and drop the unseen parents that it alone waited for."""
        graph = self._graph
        self._search.gave_up(node)
        for each in graph.unlink(node):
            self._fates.pop(graph.ids[each])
            graph.disregard(each)

    def _rewrite(self) -> None:
        self._graph = graph = self._graph.copy()
        for node, id_hash in enumerate(graph.ids):
            if id_hash:
                self._fates.set(id_hash, -node)
        self._search.moved_to(graph)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────

    def is_waiting(self, ref: int) -> bool:
        """Return True if a record waits for at least one parent."""
        return self._graph.waits[self._graph.by_ref.get(ref)] > 0

    def missing(self, ref: int) -> bool:
        """Return True if a record waits for a parent that was never seen."""
        graph = self._graph
        return any(graph.refs[each] == AWAITED for each in graph.parents_of(graph.by_ref.get(ref)))

    def in_cycle(self, refs: Iterable[int]) -> set[int]:
        """Return records that can never be freed, because they are on or behind a cycle of records
        that are all there.

        It checks `refs`, and what these wait for, for about 3 ms. If that does not suffice, later
        calls continue (with the refs that they bring) as long as `is_searching`, and return what
        they find.
        """
        self._search.suspect(refs)
        return self._search.run(_SEARCH_BUDGET)

    @property
    def is_searching(self) -> bool:
        """True if `in_cycle` has not checked all records yet."""
        return not self._search.is_done

    # ── forgetting ────────────────────────────────────────────────────────────────────────────────

    def forget(self, source: int, before_offset: int) -> None:
        """Forget how a source's records before the offset ended: the log does not keep them any
        more.

        A record that names one of them from now on names a parent that was never seen. Memory is
        freed bit by bit: here, and by `sweep`.
        """
        if before_offset > self._floors.get(source, 0):
            self._floors[source] = before_offset
            self._unswept = self._fates.shards
        self.sweep()

    def sweep(self) -> bool:
        """Free some memory of forgotten records, in about 2 ms. Return True if there is more to
        do.
        """
        for _ in range(min(self._unswept, _SWEPT_AT_ONCE)):
            self._swept = (self._swept + 1) % self._fates.shards
            self._fates.sweep(self._swept, self._is_forgotten)
            self._unswept -= 1
        return self._unswept > 0

    def _is_forgotten(self, fate: int) -> bool:
        """Return True if a fate is that of a record which the log does not keep any more."""
        if _NODES < fate < 0:
            return False
        return self._is_gone(fate - 1 if fate > 0 else fate - _FAILED)

    def _is_gone(self, ref: int) -> bool:
        return ref & _OFFSET_MASK < self._floors.get(ref >> _SOURCE_SHIFT, 0)
