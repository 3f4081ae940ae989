"""A map from 64-bit hashes to numbers, for millions of entries: no object per entry, and growing
never takes long.

A dict of such numbers costs about 130 bytes per entry and stops its caller for some 50 ms when it
grows past a million. This map keeps plain numbers in many small sorted arrays:

    key ── highest bits ──▶ directory ──▶ shard: keys   ascending, the first one is below any key
                                                 values

A shard with more than 128 entries is split in the middle of its range (extendible hashing), and the
directory doubles when it has to distinguish the halves. So an entry costs little more than its own
bytes, one insertion moves at most about 3 KB, and nearly all work is done by `bisect` and by
slices. Keys that are not spread evenly over all numbers make for large shards: slower, not wrong.
Rejected: open addressing, which in Python spends 2 µs per entry on growing and needs half as much
room again.

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Final

_FULL: Final = 128
_MAX_DEPTH: Final = 16
"""Maximum number of bits of a key that choose its shard. Beyond 8 million entries shards just
grow.
"""
_BELOW: Final = -(1 << 63)
_FEW: Final = 256
"""A map with so few entries left is rebuilt, if it has more shards."""

_Shard = tuple["array[int]", "array[int]", int]
"""Keys, values, depth: number of high bits that the keys share."""


class HashMap:
    """Values, not 0, of keys from -2**63 + 1 to 2**63 - 1.

    An entry costs about 11 bytes and the size of a value.

    Args:
        typecode: type of the values, as for `array`.
    """

    __slots__ = ("_shards", "_shift", "_typecode", "count")

    def __init__(self, typecode: str) -> None:
        self._typecode = typecode
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        """Number of keys that have a value. Only methods change it."""
        self._shift = 63
        self._shards: list[_Shard] = [self._shard(), self._shard()]
        """Shards by the highest bits of the keys, which are signed: the second half of the list is
        for those below 0.
        """

    def _shard(self) -> _Shard:
        return array("q", [_BELOW]), array(self._typecode, [0]), 1

    @property
    def shards(self) -> int:
        """Number of shards that `sweep` goes through."""
        return len(self._shards)

    @property
    def memory(self) -> int:
        """Number of bytes, roughly."""
        size = 8 + self._shards[0][1].itemsize
        return 8 * len(self._shards) + sum(256 + len(keys) * size * 17 // 16 for keys, _, _ in self._once())

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield all keys with their values, in no order. The map must not be changed meanwhile."""
        for keys, values, _ in self._once():
            pairs = zip(keys, values, strict=True)
            next(pairs)
            yield from pairs

    def values(self) -> Iterator[int]:
        """Yield all values, in no order. The map must not be changed meanwhile."""
        return (value for _, value in self.entries())

    def _once(self) -> Iterator[_Shard]:
        return (shard for number, shard in enumerate(self._shards) if self._is_first(number, shard[2]))

    def _is_first(self, number: int, depth: int) -> bool:
        """Return True if a number is the first of those that lead to a shard of this depth."""
        return not number & ((1 << (64 - self._shift - depth)) - 1)

    def get(self, key: int) -> int:
        """Return the value of a key, 0 if it has none."""
        keys, values, _ = self._shards[key >> self._shift]
        at = bisect_right(keys, key) - 1
        return values[at] if keys[at] == key else 0

    def get_all(self, wanted: Iterable[int]) -> list[int]:
        """Return the value of each key, 0 where it has none."""
        shards, shift = self._shards, self._shift
        found = []
        for key in wanted:
            keys, values, _ = shards[key >> shift]
            at = bisect_right(keys, key) - 1
            found.append(values[at] if keys[at] == key else 0)
        return found

    def set(self, key: int, value: int) -> None:
        """Set the value of a key."""
        keys, values, _ = self._shards[key >> self._shift]
        at = bisect_right(keys, key)
        if keys[at - 1] == key:
            values[at - 1] = value
        else:
            self._insert(key, value)

    def setdefault(self, key: int, value: int) -> int:
        """Set the value of a key unless it has one. Return that, or 0 if it had none."""
        keys, values, _ = self._shards[key >> self._shift]
        at = bisect_right(keys, key)
        if keys[at - 1] == key:
            return values[at - 1]
        keys.insert(at, key)
        values.insert(at, value)
        self.count += 1
        if len(keys) > _FULL:
            self._split(key >> self._shift)
        return 0

    def _insert(self, key: int, value: int) -> None:
        self.setdefault(key, value)

    def pop(self, key: int) -> int:
        """Remove a key. Return its value, 0 if it had none."""
        keys, values, _ = self._shards[key >> self._shift]
        at = bisect_right(keys, key) - 1
        if not at or keys[at] != key:
            return 0
        del keys[at]
        value = values.pop(at)
        self.count -= 1
        if self.count <= _FEW < len(self._shards):
            self._rewrite()
        return value

    def _split(self, number: int) -> None:
        keys, values, depth = self._shards[number]
        if depth == _MAX_DEPTH:
            return
        lowest = number >> (64 - self._shift - depth) << (64 - depth)
        middle = bisect_left(keys, lowest + (1 << (63 - depth)))
        if (
            not _FULL < 8 * middle < 7 * _FULL
        ):  # not spread; a larger shard does less harm than a large directory
            return
        if 64 - self._shift == depth:
            self._shards = [shard for shard in self._shards for _ in (1, 2)]
            self._shift -= 1
            number *= 2
        low = (keys[:middle], values[:middle], depth + 1)
        high = (keys[middle:], values[middle:], depth + 1)
        high[0].insert(0, _BELOW)
        high[1].insert(0, 0)
        half = 1 << (63 - self._shift - depth)
        first = number % len(self._shards) & -2 * half
        self._shards[first : first + 2 * half] = [low] * half + [high] * half

    def _rewrite(self) -> None:
        pairs = list(self.entries())
        self.clear()
        for key, value in pairs:
            self.set(key, value)

    def sweep(self, number: int, is_dropped: Callable[[int], bool]) -> None:
        """Remove the entries of one shard (0 … `shards` - 1) whose value is to be dropped."""
        keys, values, depth = self._shards[number]
        if not self._is_first(number, depth):
            return
        kept = [not is_dropped(value) for value in values]
        kept[0] = True
        if all(kept):
            return
        self.count -= kept.count(False)
        keys[:] = array("q", compress(keys, kept))
        values[:] = array(self._typecode, compress(values, kept))
