"""A map from 64-bit numbers to numbers, for millions of entries: no object per entry, and growing never takes long.

A dict of such numbers costs about 130 bytes per entry and stops its caller for some 50 ms when it grows past a million. This map keeps
plain numbers in many small sorted arrays:

    key ── low bits ──▶ directory ──▶ shard: keys   ascending, the first one is below any key
                                             values

A shard that has more than 128 entries is split in two by one more bit of the keys (extendible hashing), and the directory doubles when
it has to tell them apart. So an entry costs little more than its own bytes, one insertion moves at most about 3 KB, and most of the
work is done by `bisect` and `array.insert`. Rejected: open addressing, which in Python spends 2 µs per entry on growing and needs half as
much room again.

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Final

_FULL: Final = 128
_MAX_DEPTH: Final = 17
"""Bits of a key that choose its shard, at most. Beyond 16 million entries shards just grow."""
_BELOW: Final = -(1 << 63)
_FEW: Final = 256
"""A map with so few entries left is written anew, if it has as many shards."""

_Shard = tuple["array[int]", "array[int]", int]
"""Keys, values, depth: how many low bits of the keys are the same."""


class IdMap:
    """Values, not 0, of 64-bit signed numbers. Low bits of the keys ought to differ.

    Costs about 11 bytes and the size of a value per entry.

    Args:
        typecode: of the values, as for `array`.
    """

    __slots__ = ("_count", "_mask", "_shards", "_typecode")

    def __init__(self, typecode: str) -> None:
        self._typecode = typecode
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._count = 0
        self._mask = 0
        self._shards: list[_Shard] = [(array("q", [_BELOW]), array(self._typecode, [0]), 0)]

    def __len__(self) -> int:
        return self._count

    @property
    def shards(self) -> int:
        """How many shards `sweep` goes through."""
        return len(self._shards)

    @property
    def memory(self) -> int:
        """Bytes, about."""
        size = 8 + self._shards[0][1].itemsize
        return 8 * len(self._shards) + sum(256 + len(keys) * size * 17 // 16 for keys, _, _ in self._once())

    def items(self) -> Iterator[tuple[int, int]]:
        """All keys with their values, in no order; the map may not be changed meanwhile."""
        for keys, values, _ in self._once():
            pairs = zip(keys, values, strict=True)
            next(pairs)
            yield from pairs

    def _once(self) -> Iterator[_Shard]:
        return (shard for number, shard in enumerate(self._shards) if number >> shard[2] == 0)

    def get(self, key: int) -> int:
        """The value of a key, 0 if it has none."""
        keys, values, _ = self._shards[key & self._mask]
        at = bisect_right(keys, key) - 1
        return values[at] if keys[at] == key else 0

    def set(self, key: int, value: int) -> None:
        """Give a key a value, in place of the one it has."""
        keys, values, _ = self._shards[key & self._mask]
        at = bisect_right(keys, key)
        if keys[at - 1] == key:
            values[at - 1] = value
        else:
            self._insert(keys, values, at, key, value)

    def setdefault(self, key: int, value: int) -> int:
        """Give a key a value unless it has one; returns that, or 0 if it had none."""
        keys, values, _ = self._shards[key & self._mask]
        at = bisect_right(keys, key)
        if keys[at - 1] == key:
            return values[at - 1]
        self._insert(keys, values, at, key, value)
        return 0

    def pop(self, key: int) -> int:
        """Take a key out; returns the value it had, 0 if none."""
        keys, values, _ = self._shards[key & self._mask]
        at = bisect_right(keys, key) - 1
        if not at or keys[at] != key:
            return 0
        del keys[at]
        self._count -= 1
        value = values.pop(at)
        if self._count <= _FEW and len(self._shards) > _FEW:
            self._shrink()
        return value

    def _insert(self, keys: array[int], values: array[int], at: int, key: int, value: int) -> None:
        keys.insert(at, key)
        values.insert(at, value)
        self._count += 1
        if len(keys) > _FULL:
            self._split(key & self._mask)

    def _split(self, number: int) -> None:
        keys, values, depth = self._shards[number]
        if depth == _MAX_DEPTH:
            return
        if 1 << depth == len(self._shards):
            self._shards += self._shards
            self._mask = len(self._shards) - 1
        bit = 1 << depth
        first = number & (bit - 1)
        low: tuple[list[int], list[int]] = ([_BELOW], [0])
        high: tuple[list[int], list[int]] = ([_BELOW], [0])
        pairs = zip(keys, values, strict=True)
        next(pairs)
        for key, value in pairs:
            into_keys, into_values = high if key & bit else low
            into_keys.append(key)
            into_values.append(value)
        halves = [(array("q", half[0]), array(self._typecode, half[1]), depth + 1) for half in (low, high)]
        for each in range(first, len(self._shards), 2 * bit):
            self._shards[each], self._shards[each | bit] = halves

    def _shrink(self) -> None:
        pairs = list(self.items())
        self.clear()
        for key, value in pairs:
            self.set(key, value)

    def sweep(self, number: int, is_dropped: Callable[[int], bool]) -> None:
        """Take out the entries of one shard (0 … `shards` - 1) whose value is to be dropped."""
        keys, values, depth = self._shards[number]
        if number >> depth:
            return
        kept = [not is_dropped(value) for value in values]
        kept[0] = True
        if all(kept):
            return
        self._count -= kept.count(False)
        keys[:] = array("q", compress(keys, kept))
        values[:] = array(self._typecode, compress(values, kept))
