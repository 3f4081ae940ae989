"""A map from refs (source and offset of a record) to small numbers, made for refs that come in
order and are close together.

256 neighbouring refs share a page, an array that is indexed by the low bits of the ref: 5 bytes per
entry where most refs have one, and no search. Each time a page is begun, the next two old ones are
checked; one that holds few entries is dissolved: they go to a `HashMap`, where each costs 15 bytes
however far apart they are. A ref that comes late, before the newest page of its source, goes there
too.

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Final

from sparrow.broker.queues.maps.hash_map import HashMap

_BITS: Final = 8
_SIZE: Final = 1 << _BITS
_MASK: Final = _SIZE - 1
_FEW: Final = _SIZE // 8
_KEPT: Final = 16
"""Number of pages that are kept whatever they hold: those that are being filled are among them."""
_SOURCE_SHIFT: Final = 48 - _BITS
_EMPTY: Final = bytes(4 * _SIZE)
_SPREAD: Final = 0x9E3779B97F4A7C15
"""Odd: different refs stay different, and close ones come far apart."""
_UNSPREAD: Final = pow(_SPREAD, -1, 1 << 64)
_BITS_64: Final = (1 << 64) - 1


class PositionMap:
    """Values (1 … 2**31 - 1) of refs."""

    __slots__ = ("_newest", "_order", "_pages", "_sparse")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        """Values by ref >> 8."""
        self._order: deque[int] = deque()
        """Pages in the order in which they are checked."""
        self._newest: dict[int, int] = {}
        """For each source, the page that was begun last."""
        self._sparse = HashMap("i")

    @property
    def memory(self) -> int:
        """Number of bytes, roughly."""
        return len(self._pages) * (4 * _SIZE + 200) + self._sparse.memory

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield all refs with their values, in no order. The map must not be changed meanwhile."""
        for number, page in self._pages.items():
            if page.tobytes() != _EMPTY:
                for low, value in enumerate(page):
                    if value:
                        yield number << _BITS | low, value
        for key, value in self._sparse.entries():
            yield ((key + (1 << 63)) * _UNSPREAD & _BITS_64) - 1, value

    def get(self, ref: int) -> int:
        """Return the value of a ref, 0 if it has none."""
        page = self._pages.get(ref >> _BITS)
        if page is not None and (value := page[ref & _MASK]):
            return value
        return self._sparse.get(_spread(ref)) if self._sparse.count else 0

    def put(self, ref: int, value: int) -> None:
        """Set the value of a ref that has none."""
        page = self._pages.get(ref >> _BITS)
        if page is None:
            page = self._begin(ref >> _BITS)
        if page is None:
            self._sparse.set(_spread(ref), value)
        else:
            page[ref & _MASK] = value

    def pop(self, ref: int) -> int:
        """Remove a ref. Return its value, 0 if it had none."""
        page = self._pages.get(ref >> _BITS)
        if page is not None and (value := page[ref & _MASK]):
            page[ref & _MASK] = 0
            return value
        return self._sparse.pop(_spread(ref)) if self._sparse.count else 0

    def _begin(self, number: int) -> array[int] | None:
        """Begin a page, unless it is older than the newest of its source."""
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
    """Return a key for a ref, evenly spread as `HashMap` needs it."""
    return ((ref + 1) * _SPREAD & _BITS_64) - (1 << 63)
