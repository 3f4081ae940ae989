"""Order by key: of the records of one key at most one is leased, or waits to be tried again. Pure.

`KeyQueues` has the records of each key in the order of their offsets. Two things come on top:

- A record that waits for its time (`deliver-at`) joins its key when that has come; until then its
  key is remembered here.
- After a restart the keys of records in flight are unknown until the scanner has read them again.
  Until it has met the last of them (the *horizon* of a source), records that it finds are deferred:
  they join their keys behind those in flight.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from sparrow.broker.queues.rules.key_queues import KeyQueues

if TYPE_CHECKING:
    from collections.abc import Iterable


class KeyOrder:
    """Keys of the unfinished records of one subscriber. A record is named by its ref."""

    __slots__ = ("_deferred", "_deferred_at", "_delayed", "_horizons", "_queues")

    def __init__(self) -> None:
        self._queues = KeyQueues()
        self._horizons: dict[int, int] = {}
        """For each source with records in flight since before a restart, the offset behind the
        last.
        """
        self._deferred = array("q")
        """Ref and key of each deferred record."""
        self._deferred_at = 0
        """Index in `_deferred` of the next record to admit."""
        self._delayed: dict[int, int] = {}
        """Keys of records that wait for their time."""

    def __len__(self) -> int:
        """Return the number of keys that have a record."""
        return len(self._queues)

    def enter(self, key: int, ref: int) -> bool:
        """Enter a record that was found, or whose time has come. Return True if it may be delivered
        now; else it must be blocked.
        """
        if self._horizons or self._deferred:
            self._deferred.extend((ref, key))
            return False
        return self._queues.enter(key, ref)

    def enter_now(self, key: int, ref: int) -> bool:
        """Enter a record that was in flight, or deferred. Return True if it is the first of its
        key.
        """
        return self._queues.enter(key, ref)

    def leave(self, ref: int) -> int | None:
        """Remove a finished record. Return the ref that is the first of the key now, or None."""
        if self._delayed:
            self._delayed.pop(ref, None)
        return self._queues.leave(ref)

    def delay(self, ref: int, key: int) -> None:
        """Remember the key of a record that waits for its time."""
        self._delayed[ref] = key

    def end_delay(self, ref: int) -> int:
        """Forget that a record waits for its time, and return its key; 0: it has none."""
        return self._delayed.pop(ref, 0)

    # ── after a restart ───────────────────────────────────────────────────────────────────────────

    def set_horizon(self, source: int, end: int) -> None:
        """Note that records of `source` before `end` are in flight, with keys that are unknown
        yet.
        """
        self._horizons[source] = max(end, self._horizons.get(source, 0))

    def scanned_to(self, source: int, end: int) -> None:
        """Drop the horizon of a source if the scanner has met it."""
        if self._horizons and self._horizons.get(source, end + 1) <= end:
            del self._horizons[source]

    def forget_source(self, source: int) -> None:
        """Drop the horizon of a source that is gone."""
        self._horizons.pop(source, None)

    @property
    def has_admissible(self) -> bool:
        """True if deferred records may join their keys now."""
        return bool(self._deferred) and not self._horizons

    def take_deferred(self, limit: int) -> Iterable[tuple[int, int]]:
        """Take out up to `limit` deferred records (ref, key) that may join their keys now."""
        if not self.has_admissible:
            return ()
        some = self._deferred[self._deferred_at : self._deferred_at + 2 * limit]
        self._deferred_at += len(some)
        if self._deferred_at == len(self._deferred):
            self._deferred, self._deferred_at = array("q"), 0
        return zip(some[::2], some[1::2], strict=True)
