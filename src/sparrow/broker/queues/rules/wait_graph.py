"""Graph of records that wait for others, in flat arrays, as parented queues need it.

A *node* is a record that is not finished, or one that others name and that was never seen
("awaited"). An *edge* says that one node waits for another, its parent. The edges of one child are
side by side, and each is also an element of the list of its parent's children, so that both ends
find it and it can be taken out of the middle:

    node   ref  id  waits  children ──▶ first edge of the list     edges ──▶ first of its own edges
    edge   parent     0: finished
           child      complement: the last of the child's edges
           next       in the parent's list; 0: none
           previous   in the parent's list; complement of the parent: it is the first

A node costs 28 bytes, an edge 16, and finding a node by its ref about 5. Number 0 means "none" for
nodes and edges. Freed nodes and blocks of edges are chained for the next ones. Rejected: objects
(500 bytes), lists of children per parent (as much again for the many that have one child), singly
linked lists (a child that gives up could leave its parent's list only by walking it).

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from sparrow.broker.queues.maps.position_map import PositionMap

AWAITED: Final = -1
"""Ref of a node whose record was never seen."""
_EXACT: Final = 4
FEW: Final = 512
"""A graph of so few nodes may be rebuilt at once, in about 3 ms."""
_SIZES: Final = _EXACT + 32
_MANY: Final = 16 * FEW


class WaitGraph:
    """Nodes, found by ref, and the edges between them.

    The columns are open to the modules beside this one, which follow edges by themselves; only
    methods change them.
    """

    def __init__(self) -> None:
        self.by_ref = PositionMap()
        self.refs = array("q", [AWAITED])
        self.ids = array("q", [0])
        self.waits = array("i", [0])
        self.children = array("i", [0])
        self.edges = array("i", [0])
        self.parent = array("i", [0])
        self.child = array("i", [0])
        self.next = array("i", [0])
        self._previous = array("i", [0])
        self.waiting = 0
        """Number of nodes that wait for at least one other."""
        self.used = 0
        """Number of nodes."""
        self.awaited = 0
        """Number of nodes whose record was never seen."""
        self.free_node = 0
        """The node to use next, if not 0; `children` has the next free one."""
        self.fresh_node = 1
        """Nodes from here on were never used."""
        self._fresh_edge = 1
        self._free_blocks = [0] * _SIZES
        """By kind of block, the first free one; `next` has the next."""
        self._large_blocks = 0
        """Number of edges in blocks of more than a few."""

    @property
    def memory(self) -> int:
        """Number of bytes, roughly."""
        return (len(self.refs) * 28 + len(self.parent) * 16) * 17 // 16 + self.by_ref.memory

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────

    def add(self, ref: int, id_hash: int) -> int:
        """Add a node. `ref` may be AWAITED, `id_hash` 0."""
        node = self.free_node
        if node:
            self.free_node = self.children[node]
            self.children[node] = 0
        else:
            node = self.fresh_node
            self.fresh_node = node + 1
            if node == len(self.refs):
                _extend(node, self.refs, self.ids, self.waits, self.children, self.edges)
        self.refs[node] = ref
        self.ids[node] = id_hash
        self.used += 1
        if ref == AWAITED:
            self.awaited += 1
        else:
            self.by_ref.put(ref, node)
        return node

    def appear(self, node: int, ref: int) -> None:
        """Set the ref of an awaited node: its record is there."""
        self.awaited -= 1
        self.refs[node] = ref
        self.by_ref.put(ref, node)

    def remove(self, node: int) -> None:
        """Remove a node that waits for nothing, that nothing waits for and that no ref leads to any
        more.
        """
        self.children[node] = self.free_node
        self.free_node = node
        self.used -= 1

    def disregard(self, node: int) -> None:
        """Remove an awaited node that nothing waits for."""
        self.awaited -= 1
        self.remove(node)

    # ── edges ─────────────────────────────────────────────────────────────────────────────────────

    def link(self, node: int, parents: Sequence[int]) -> None:
        """Let a node that waits for nothing wait for these. (A duplicate is waited for twice, which
        is no harm.)
        """
        count = len(parents)
        if count > _EXACT or self._free_blocks[count]:
            edge = self._block(count)
        else:
            edge = self._fresh_edge
            self._fresh_edge = edge + count
            if edge + count > len(self.parent):
                self._extend_edges()
        self.edges[node] = edge
        self.waits[node] = count
        self.waiting += 1
        children, parent, child = self.children, self.parent, self.child
        following, previous = self.next, self._previous
        for each in parents:
            first = children[each]
            if first:
                previous[first] = edge
            children[each] = edge
            parent[edge] = each
            child[edge] = node
            following[edge] = first
            previous[edge] = ~each
            edge += 1
        child[edge - 1] = ~node

    def unlink(self, node: int) -> list[int]:
        """End the wait of a node, whatever its parents do. Return the awaited ones that nothing
        waits for now.
        """
        orphans = []
        start = edge = self.edges[node]
        while True:
            parent = self.parent[edge]
            if parent:
                self._leave(edge)
                if not self.children[parent] and self.refs[parent] == AWAITED:
                    orphans.append(parent)
            if self.child[edge] < 0:
                break
            edge += 1
        self._free_block(start)
        self.waits[node] = 0
        self.waiting -= 1
        return orphans

    def _leave(self, edge: int) -> None:
        """Remove an edge from the list of its parent's children."""
        following, previous = self.next[edge], self._previous[edge]
        if previous < 0:
            self.children[~previous] = following
        else:
            self.next[previous] = following
        if following:
            self._previous[following] = previous

    def release(self, node: int) -> list[int]:
        """Finish a node. Return those of its children that wait for nothing now."""
        free: list[int] = []
        edge = self.children[node]
        self.children[node] = 0
        parent, child, waits, following = self.parent, self.child, self.waits, self.next
        while edge:
            after = following[edge]
            each = child[edge]
            if each < 0:
                each = ~each
            waits[each] = left = waits[each] - 1
            if left:
                parent[edge] = 0
            else:
                self._free_block(self.edges[each])
                free.append(each)
            edge = after
        self.waiting -= len(free)
        free.reverse()
        return free

    def a_child(self, node: int) -> int:
        """Return a node that waits for this one, 0 if none does."""
        child = self.child[self.children[node]]
        return ~child if child < 0 else child

    def parents_of(self, node: int) -> Iterator[int]:
        """Return the nodes that a node still waits for."""
        edge = self.edges[node] if self.waits[node] else 0
        while edge:
            if self.parent[edge]:
                yield self.parent[edge]
            edge = edge + 1 if self.child[edge] >= 0 else 0

    # ── room ──────────────────────────────────────────────────────────────────────────────────────

    def _block(self, count: int) -> int:
        """Return a block for `count` edges side by side."""
        kind = size = count
        if count > _EXACT:
            kind, size = _large(count)
            self._large_blocks += size
        block = self._free_blocks[kind]
        if block:
            self._free_blocks[kind] = self.next[block]
            return block
        block = self._fresh_edge
        self._fresh_edge = block + size
        if block + size > len(self.parent):
            self._extend_edges()
        return block

    def _extend_edges(self) -> None:
        _extend(self._fresh_edge, self.parent, self.child, self.next, self._previous)

    def _free_block(self, block: int) -> None:
        """Free the edges of a node that does not wait any more. None of them may be in a list."""
        child = self.child
        last = block
        while child[last] >= 0:
            last += 1
        kind = last + 1 - block
        if kind > _EXACT:
            kind, size = _large(kind)
            self._large_blocks -= size
        self.next[block] = self._free_blocks[kind]
        self._free_blocks[kind] = block

    @property
    def is_wasteful(self) -> bool:
        """Return True if a copy would be much smaller, and takes some milliseconds at most."""
        if not self.used:
            return len(self.refs) > FEW
        return len(self.refs) > _MANY and self.used <= FEW and self._large_blocks <= _MANY

    def copy(self) -> WaitGraph:
        """Return the same nodes and edges, without what was freed. Nodes get other numbers."""
        new = WaitGraph()
        numbers: dict[int, int] = {}

        def number_of(node: int) -> int:
            if node not in numbers:
                numbers[node] = new.add(self.refs[node], self.ids[node])
            return numbers[node]

        for _, node in self.by_ref.entries():
            number = number_of(node)
            parents = [number_of(each) for each in self.parents_of(node)]
            if parents:
                new.link(number, parents)
        return new


def _large(count: int) -> tuple[int, int]:
    """Return kind and size of a block for more than a few edges: a power of two, so that a freed
    block fits many others.
    """
    bits = (count - 1).bit_length()
    return _EXACT + bits, 1 << bits


def _extend(used: int, *columns: array[int]) -> None:
    """Extend columns of which `used` entries are taken, or are about to be."""
    for column in columns:
        missing = used + max(used >> 6, 16) - len(column)
        column.frombytes(bytes(missing * column.itemsize))
