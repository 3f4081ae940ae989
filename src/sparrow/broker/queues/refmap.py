"""A map from refs (source and offset of a record) to small numbers, made for refs that come in order and lie close together.

256 neighbouring refs share a page, an array that is indexed by the low bits of the ref: 5 bytes per entry where most refs have one, and
no search. Each time a page is begun, two old ones are looked at in turn; one that holds few is dissolved: its entries go to an
`IdMap`, where each costs 15 bytes however far apart they are. A ref that comes late, before the newest page of its source, goes there too.

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Final

from sparrow.broker.queues.idmap import IdMap

_BITS: Final = 8
_SIZE: Final = 1 << _BITS
_MASK: Final = _SIZE - 1
_FEW: Final = _SIZE // 8
_KEPT: Final = 16
"""So many pages are kept whatever they hold: those that are being filled are among them."""
_SOURCE_SHIFT: Final = 48 - _BITS
_EMPTY: Final = bytes(4 * _SIZE)
_SPREAD: Final = 0x9E3779B97F4A7C15
"""Odd: different refs stay different, and close ones come far apart."""
_GATHER: Final = pow(_SPREAD, -1, 1 << 64)
_BITS_64: Final = (1 << 64) - 1


class RefMap:
    """Values (1 … 2**31 - 1) of refs."""

    __slots__ = ("_newest", "_order", "_pages", "_sparse")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        """By ref >> 8: the values."""
        self._order: deque[int] = deque()
        """The pages in the order in which they are looked at."""
        self._newest: dict[int, int] = {}
        """Of each source: the last page that was begun."""
        self._sparse = IdMap("i")

    @property
    def memory(self) -> int:
        """Bytes, about."""
        return len(self._pages) * (4 * _SIZE + 200) + self._sparse.memory

    def entries(self) -> Iterator[tuple[int, int]]:
        """All refs with their values, in no order; the map may not be changed meanwhile."""
        for number, page in self._pages.items():
            if page.tobytes() != _EMPTY:
                for low, value in enumerate(page):
                    if value:
                        yield number << _BITS | low, value
        for key, value in self._sparse.entries():
            yield ((key + (1 << 63)) * _GATHER & _BITS_64) - 1, value

    def get(self, ref: int) -> int:
        """The value of a ref, 0 if it has none."""
        page = self._pages.get(ref >> _BITS)
        if page is not None and (value := page[ref & _MASK]):
            return value
        return self._sparse.get(_spread(ref)) if self._sparse.count else 0

    def put(self, ref: int, value: int) -> None:
        """Give a ref, which has no value, one."""
        page = self._pages.get(ref >> _BITS)
        if page is None:
            page = self._begin(ref >> _BITS)
        if page is None:
            self._sparse.set(_spread(ref), value)
        else:
            page[ref & _MASK] = value

    def pop(self, ref: int) -> int:
        """Take a ref out; returns the value it had, 0 if none."""
        page = self._pages.get(ref >> _BITS)
        if page is not None and (value := page[ref & _MASK]):
            page[ref & _MASK] = 0
            return value
        return self._sparse.pop(_spread(ref)) if self._sparse.count else 0

    def _begin(self, number: int) -> array[int] | None:
        """A new page, unless it is older than the newest of its source."""
        source = number >> _SOURCE_SHIFT
        if number <= self._newest.get(source, -1):
            return None
        self._newest[source] = number
        order = self._order
        if len(order) >= _KEPT:
            for old in (order.popleft(), order.popleft()):
                if _SIZE - self._pages[old].count(0) < _FEW:
                    self._dissolve(old)
                else:
                    order.append(old)
        order.append(number)
        page = self._pages[number] = array("i", _EMPTY)
        return page

    def _dissolve(self, number: int) -> None:
        for low, value in enumerate(self._pages.pop(number)):
            if value:
                self._sparse.set(_spread(number << _BITS | low), value)


def _spread(ref: int) -> int:
    """A key for a ref, as an `IdMap` likes it."""
    return ((ref + 1) * _SPREAD & _BITS_64) - (1 << 63)
