"""A map from refs (source and offset of a record) to small numbers, made for refs that come in order and lie close together.

256 neighbouring refs share a page, an array that is indexed by the low bits of the ref: 5 bytes per entry where most refs have one, and
no search. A page that holds few, after the next one of its source was begun, is dissolved: its entries go to an `IdMap`, where
each costs 15 bytes however far apart they are.

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from sparrow.broker.queues.idmap import IdMap

_BITS: Final = 8
_SIZE: Final = 1 << _BITS
_MASK: Final = _SIZE - 1
_FEW: Final = _SIZE // 8
_SOURCE_SHIFT: Final = 48 - _BITS
_EMPTY: Final = bytes(4 * (_SIZE + 1))


class RefMap:
    """Values (1 … 2**31 - 1) of refs."""

    __slots__ = ("_count", "_newest", "_pages", "_sparse")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        """By ref >> 8: the values, and how many there are."""
        self._newest: dict[int, int] = {}
        """Of each source: the page that was begun last."""
        self._sparse = IdMap("i")
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def memory(self) -> int:
        """Bytes, about."""
        return len(self._pages) * (4 * _SIZE + 200) + self._sparse.memory

    def values(self) -> Iterator[int]:
        """All values; the map may not be changed meanwhile."""
        for page in self._pages.values():
            yield from filter(None, page[:_SIZE])
        for _, value in self._sparse.items():
            yield value

    def get(self, ref: int) -> int:
        """The value of a ref, 0 if it has none."""
        page = self._pages.get(ref >> _BITS)
        if page is not None and (value := page[ref & _MASK]):
            return value
        return self._sparse.get(ref)

    def put(self, ref: int, value: int) -> None:
        """Give a ref, which has no value, one."""
        page = self._pages.get(ref >> _BITS)
        if page is None:
            page = self._begin(ref >> _BITS)
        page[ref & _MASK] = value
        page[_SIZE] += 1
        self._count += 1

    def pop(self, ref: int) -> int:
        """Take a ref out; returns the value it had, 0 if none."""
        number = ref >> _BITS
        page = self._pages.get(number)
        if page is None or not (value := page[ref & _MASK]):
            value = self._sparse.pop(ref)
            if value:
                self._count -= 1
            return value
        page[ref & _MASK] = 0
        page[_SIZE] = left = page[_SIZE] - 1
        self._count -= 1
        if left < _FEW and self._newest[number >> _SOURCE_SHIFT] != number:
            self._dissolve(number)
        return value

    def _begin(self, number: int) -> array[int]:
        source = number >> _SOURCE_SHIFT
        before = self._newest.get(source, -1)
        self._newest[source] = number
        if before in self._pages and self._pages[before][_SIZE] < _FEW:
            self._dissolve(before)
        page = self._pages[number] = array("i", _EMPTY)
        return page

    def _dissolve(self, number: int) -> None:
        page = self._pages.pop(number)
        if page[_SIZE]:
            for low, value in enumerate(page[:_SIZE]):
                if value:
                    self._sparse.set(number << _BITS | low, value)
