"""States of a page of records as they were kept, on their way back into a `SubscriberState`. Pure.

They stay columns, as in their persisted form: a million records of different states come back
after a restart by a few calls of C for each page.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from sparrow.broker.queues.maps.range_map import RangeMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.queues.rules.leases import Lease

KeptRun = tuple[int, int, int, "Lease | None"]
"""(first offset, end, value without its lease, the lease)."""

_SHORT: Final = 64
"""Holes up to this many offsets are part of a piece: who looks for the records of a piece passes
over no more than this for each.
"""
_NOWHERE: Final = -_SHORT - 1


@dataclass(slots=True, frozen=True)
class KeptPage:
    """Runs of equal states that cover one page of a `RangeMap`."""

    number: int
    starts: array[int]
    """Where each run begins within the page, ascending; the first is 0."""
    kinds: array[int]
    """The kind of each run: an index of `values` and `leases`. Kind 0: nothing was kept."""
    values: Sequence[int]
    """The value of each kind, without its lease."""
    leases: Sequence[Lease | None]
    """The lease of each kind."""

    @property
    def base(self) -> int:
        """Offset at which the page begins."""
        return self.number << RangeMap.PAGE_BITS

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield (kind, first, end) of each run, within the page."""
        return zip(self.kinds, self.starts, chain(self.starts[1:], (RangeMap.PAGE,)), strict=True)

    def runs(self) -> Iterator[KeptRun]:
        """Yield the runs that were kept."""
        base = self.base
        for kind, first, end in self.spans():
            if kind:
                yield base + first, base + end, self.values[kind], self.leases[kind]

    def extents(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return for each kind the number of its records, and where they are: pieces (first, end)
        that have holes where these are short, so that a page of a thousand runs is few pieces.
        """
        records = [0] * len(self.values)
        pieces: list[list[tuple[int, int]]] = [[] for _ in self.values]
        ends = [_NOWHERE] * len(self.values)
        begins = [0] * len(self.values)
        base = self.base
        for kind, first, end in self.spans():
            records[kind] += end - first
            if first - ends[kind] > _SHORT:
                if ends[kind] >= 0:
                    pieces[kind].append((base + begins[kind], base + ends[kind]))
                begins[kind] = first
            ends[kind] = end
        for kind, end in enumerate(ends):
            if end >= 0:
                pieces[kind].append((base + begins[kind], base + end))
        return list(zip(records, pieces, strict=True))

    def reaches_beyond(self, offset: int) -> bool:
        """Return True if states of records from `offset` on were kept."""
        if self.base + RangeMap.PAGE <= offset:
            return False
        return any(kind and self.base + end > offset for kind, _, end in self.spans())

    def before(self, offset: int) -> KeptPage:
        """Return the page without the states of records from `offset` on."""
        rest = max(0, offset - self.base)
        if rest >= RangeMap.PAGE:
            return self
        low = bisect_left(self.starts, rest)
        starts, kinds = self.starts[:low], self.kinds[:low]
        starts.append(rest)
        kinds.append(0)
        return KeptPage(self.number, starts, kinds, self.values, self.leases)
