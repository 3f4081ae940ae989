"""Records of a wait graph that wait for themselves, and those behind them. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.broker.queues.waits import WaitGraph

_ON_PATH: Final = 1
_CLEAR: Final = 2
_STUCK: Final = 3


def reaches(graph: WaitGraph, start: Sequence[int], target: int, budget: int) -> bool:
    """Whether one of `start` waits for `target`, directly or through others; looks at no more than `budget` nodes."""
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


def stuck(graph: WaitGraph, nodes: Iterable[int]) -> set[int]:
    """Those of the nodes that are on a cycle, or wait for one that is.

    Follows the edges upward from the nodes, each node and edge of what they wait for once: about 0.5 s per million.
    """
    marks = bytearray(len(graph.refs))
    found = set()
    for node in nodes:
        if not marks[node]:
            _walk(graph, node, marks)
        if marks[node] == _STUCK:
            found.add(node)
    return found


def _walk(graph: WaitGraph, node: int, marks: bytearray) -> None:
    """Mark a node, and everything it waits for, as clear or stuck.

    Depth first. A node on the path that is met again closes a cycle; then everything on the path is on it or behind it.
    """
    parent, child, edges, waits = graph.parent, graph.child, graph.edges, graph.waits
    path = array("i", [node])
    following = array("i", [edges[node] if waits[node] else 0])
    marks[node] = _ON_PATH
    while path:
        edge = following[-1]
        if not edge:
            marks[path.pop()] = _CLEAR
            following.pop()
            continue
        following[-1] = edge + 1 if child[edge] >= 0 else 0
        above = parent[edge]
        mark = marks[above] if above else _CLEAR
        if not mark:
            marks[above] = _ON_PATH
            path.append(above)
            following.append(edges[above] if waits[above] else 0)
        elif mark != _CLEAR:
            for each in path:
                marks[each] = _STUCK
            return
