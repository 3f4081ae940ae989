"""Pairs of integers sorted by key: 16 bytes each, with quick access to any of a million.

The pairs are in chunks of at most 512, two columns each; a third column has the first key of each
chunk:

    starts   min     1700   9000
    keys     3 5 9   1700 … 9000 9000 …
    values   7 8 1   …      …

A pair is found by two binary searches, and to add or drop it moves no more than its chunk.
Rejected: a heap of tuples (130 bytes per entry), one array (a pair in front of a million moves 16
MB), a tree (its nodes are objects).

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Final

_CHUNK: Final = 512
_LOWEST: Final = -(1 << 63)


class SortedPairs:
    """Pairs (key, value) of signed 64-bit integers, ascending by key; those of equal keys in the
    order in which they were added.
    """

    __slots__ = ("_keys", "_starts", "_values")

    def __init__(self) -> None:
        self._keys: list[array[int]] = [array("q")]
        """Keys of each chunk. There is always one chunk; it alone may be empty."""
        self._values: list[array[int]] = [array("q")]
        self._starts: array[int] = array("q", (_LOWEST,))
        """The lowest key of each chunk. The entry of the first has no meaning: every lower key
        belongs to it.
        """

    def __bool__(self) -> bool:
        return bool(self._keys[0])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs in order. They must not be changed meanwhile."""
        for keys, values in zip(self._keys, self._values, strict=True):
            yield from zip(keys, values, strict=True)

    def first_key(self) -> int | None:
        """Return the lowest key; None if there is no pair."""
        keys = self._keys[0]
        return keys[0] if keys else None

    def add(self, key: int, value: int) -> None:
        """Add a pair, behind those of the same key."""
        chunk = bisect_right(self._starts, key) - 1
        keys = self._keys[chunk]
        self._insert(chunk, bisect_right(keys, key), key, value)

    def pop_until(self, key: int, limit: int) -> list[tuple[int, int]]:
        """Take out the pairs whose keys are at most `key`, in order, at most `limit` of them."""
        popped: list[tuple[int, int]] = []
        while limit > 0:
            keys, values = self._keys[0], self._values[0]
            count = min(bisect_right(keys, key), limit)
            if not count:
                break
            popped += zip(keys[:count], values[:count], strict=True)
            self._drop_first(count)
            limit -= count
        return popped

    @property
    def chunks(self) -> int:
        """Number of chunks that `sweep` goes through."""
        return len(self._keys)

    def sweep(self, chunk: int, is_kept: Callable[[int], bool]) -> int:
        """Take out the pairs of one chunk (0 … `chunks` - 1) whose value is not to be kept. Return
        their number.
        """
        keys, values = self._keys[chunk], self._values[chunk]
        kept = [is_kept(value) for value in values]
        dropped = kept.count(False)
        if not dropped:
            return 0
        keys[:] = array("q", compress(keys, kept))
        values[:] = array("q", compress(values, kept))
        if chunk and len(keys) + len(self._keys[chunk - 1]) <= _CHUNK >> 1:
            self._keys[chunk - 1] += keys
            self._values[chunk - 1] += values
            self._drop_chunk(chunk)
        elif not keys and len(self._keys) > 1:
            self._drop_chunk(chunk)
        return dropped

    def _drop_chunk(self, chunk: int) -> None:
        del self._keys[chunk]
        del self._values[chunk]
        del self._starts[chunk]
        # A key below the first chunk belongs to it.
        self._starts[0] = _LOWEST

    def _insert(self, chunk: int, at: int, key: int, value: int) -> None:
        """Insert a pair, and divide the chunk when it is too full."""
        keys, values = self._keys[chunk], self._values[chunk]
        keys.insert(at, key)
        values.insert(at, value)
        if len(keys) > _CHUNK:
            # Keys that mostly ascend should leave full chunks behind.
            cut = _CHUNK if at == _CHUNK else _CHUNK >> 1
            self._starts.insert(chunk + 1, keys[cut])
            self._keys[chunk : chunk + 1] = keys[:cut], keys[cut:]
            self._values[chunk : chunk + 1] = values[:cut], values[cut:]

    def _drop_first(self, count: int) -> None:
        """Drop the first pairs of the first chunk."""
        keys, values = self._keys[0], self._values[0]
        if count < len(keys) or len(self._keys) == 1:
            del keys[:count]
            del values[:count]
            return
        self._drop_chunk(0)
