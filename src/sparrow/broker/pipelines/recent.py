"""A mapping that keeps a bounded number of entries for a bounded time, and drops the oldest
first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparrow.base.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Entries in the order in which they were last put."""

    def __init__(self, clock: Clock, *, max_entries: int, kept_s: float) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._kept_s = kept_s
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        """Set the value of this key."""
        self._forget()
        self._entries[key] = self._clock.monotonic(), value
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def get(self, key: K) -> V | None:
        self._forget()
        found = self._entries.get(key)
        return None if found is None else found[1]

    def __iter__(self) -> Iterator[V]:
        self._forget()
        return iter([value for _, value in self._entries.values()])

    def _forget(self) -> None:
        oldest_s = self._clock.monotonic() - self._kept_s
        while self._entries:
            key, (put_s, _) = next(iter(self._entries.items()))
            if put_s > oldest_s:
                return
            del self._entries[key]
