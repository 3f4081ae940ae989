"""Search for records of a wait graph that wait for themselves, and for those behind them. Pure."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.broker.queues.rules.wait_graph import WaitGraph

_ON_PATH: Final = 1
_CLEAR: Final = 2
_STUCK: Final = 3


def reaches(graph: WaitGraph, start: Sequence[int], target: int, budget: int) -> bool:
    """Return True if one of `start` waits for `target`, directly or through others. It checks at
    most `budget` nodes.
    """
    seen = set(start)
    waiting = list(start)
    while waiting and budget:
        budget -= 1
        for parent in graph.parents_of(waiting.pop()):
            if parent == target:
                return True
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return False


class CycleSearch:
    """A search for suspects that are on a cycle, or wait for one that is. It may be interrupted
    while the graph changes.

    Depth first, from the suspects upward, each node once. A node on the path that is met again
    closes a cycle; then everything on the path is on it or behind it. Interruptions are harmless
    because a node cannot be finished before those that it waits for, so that the path stays as it
    is except that its end is finished, unless a node on it gives up, which the caller must report
    (`gave_up`). A node that was found clear may become part of a cycle before all suspects were
    checked. It is overlooked until it is suspected again.
    """

    def __init__(self, graph: WaitGraph) -> None:
        self._graph = graph
        self._suspects: deque[int] = deque()
        """Refs of the suspects."""
        self._marks = bytearray()
        self._path = array("i")
        self._refs = array("q")
        """Refs of the nodes on the path."""
        self._following = array("i")
        """For each node on the path, the edge to follow next."""

    @property
    def is_done(self) -> bool:
        """True if all suspects were checked."""
        return not self._suspects and not self._path

    def suspect(self, refs: Iterable[int]) -> None:
        """Add suspects."""
        self._suspects.extend(refs)

    def gave_up(self, node: int) -> None:
        """Note that a node is about to give up although others that it waits for are not
        finished.
        """
        if self._path and self._marks[node : node + 1] == _PATH_MARK:
            self._start_over()

    def moved_to(self, graph: WaitGraph) -> None:
        """Continue in a copy of the graph, in which nodes have other numbers."""
        self._start_over()
        self._graph = graph

    def _start_over(self) -> None:
        if self._path:
            self._suspects.appendleft(self._refs[0])
        self._marks = bytearray()
        del self._path[:], self._refs[:], self._following[:]

    def run(self, budget: int) -> set[int]:
        """Continue for about as many edges and suspects as `budget`. Return the refs of suspects
        that were found stuck.
        """
        graph, marks = self._graph, self._marks
        marks += bytes(len(graph.refs) - len(marks))
        self._drop_finished()
        stuck: list[int] = []
        found: set[int] = set()
        while budget > 0:
            if not self._path:
                if not self._suspects:
                    break
                budget -= 1
                self._begin(self._suspects.popleft(), found)
                continue
            budget = self._climb(budget)
            if budget < 0:
                break
            if self._path:  # the node at its end waits for one that is stuck
                found.add(self._refs[0])
                for node in self._path:
                    marks[node] = _STUCK
                stuck += self._path
                del self._path[:], self._refs[:], self._following[:]
        # They may be finished before the next run, and other nodes may get their numbers.
        for node in stuck:
            marks[node] = 0
        if self.is_done:
            self._marks = bytearray()
        return found

    def _drop_finished(self) -> None:
        graph, path = self._graph, self._path
        while path and (graph.refs[path[-1]] != self._refs[-1] or not graph.waits[path[-1]]):
            self._marks[path.pop()] = 0
            self._refs.pop()
            self._following.pop()

    def _begin(self, ref: int, found: set[int]) -> None:
        node = self._graph.by_ref.get(ref)
        if self._marks[node] == _STUCK:
            found.add(ref)
        elif self._graph.waits[node] and not self._marks[node]:
            self._step(node)

    def _step(self, node: int) -> None:
        self._marks[node] = _ON_PATH
        self._path.append(node)
        self._refs.append(self._graph.refs[node])
        self._following.append(self._graph.edges[node])

    def _climb(self, budget: int) -> int:
        """Follow edges until the path is clear, or its end waits for a node that is stuck or on the
        path. Return the rest of the budget, -1 if it did not suffice.
        """
        graph, marks, path, following = self._graph, self._marks, self._path, self._following
        parent, child, waits = graph.parent, graph.child, graph.waits
        while path:
            edge = following[-1]
            if not edge:
                marks[path.pop()] = _CLEAR
                following.pop()
                self._refs.pop()
                continue
            if not budget:
                return -1
            budget -= 1
            above = parent[edge]
            mark = marks[above] if above and waits[above] else _CLEAR
            if mark and mark != _CLEAR:
                return budget
            following[-1] = edge + 1 if child[edge] >= 0 else 0
            if not mark:
                self._step(above)
        return budget


_PATH_MARK: Final = bytes([_ON_PATH])
