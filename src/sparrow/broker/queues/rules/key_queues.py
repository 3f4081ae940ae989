"""Queues of records by key: the first unfinished record of a key is its head, the others wait
behind it.

Everything is in flat arrays, whatever the number of keys: about 36 bytes per key, and 12 per
waiting record. Rejected: a dict of queues (400 bytes per key, though most keys have one record at a
time).

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from typing import Final

from sparrow.broker.queues.maps.hash_map import HashMap
from sparrow.broker.queues.maps.position_map import PositionMap

_FEW: Final = 1024


class KeyQueues:
    """Heads of all keys, and the records behind them.

    A key is any number but 0 (a 64-bit hash), a ref any number from 0 up that is entered once. Each
    call takes constant time.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._by_key = HashMap("i")
        self._by_head = PositionMap()
        self._keys = array("q", [0])
        self._firsts = array("i", [0])
        self._lasts = array("i", [0])
        self._free_queue = 0
        self._clear_entries()

    def _clear_entries(self) -> None:
        self._waiting = 0
        self._refs = array("q", [0])
        self._nexts = array("i", [0])
        self._free_entry = 0

    def __len__(self) -> int:
        """Return the number of keys that have a head."""
        return self._by_key.count

    @property
    def memory(self) -> int:
        """Number of bytes that the queues take, roughly."""
        arrays = len(self._keys) * 16 + len(self._refs) * 12
        return arrays * 17 // 16 + self._by_key.memory + self._by_head.memory

    def waiting(self) -> int:
        """Return the number of records that wait behind a head."""
        return self._waiting

    def enter(self, key: int, ref: int) -> bool:
        """Enter a record of a key. Return True if it is the head, False if it waits behind one."""
        free = self._free_queue or len(self._keys)
        queue = self._by_key.setdefault(key, free)
        if not queue:
            self._open(free, key)
            self._by_head.put(ref, free)
            return True
        if self._by_head.get(ref) == queue:
            return True
        entry = self._new_entry(ref)
        if self._firsts[queue]:
            self._nexts[self._lasts[queue]] = entry
        else:
            self._firsts[queue] = entry
        self._lasts[queue] = entry
        self._waiting += 1
        return False

    def leave(self, ref: int) -> int | None:
        """Remove a head that is finished. Return the ref that is the head now; a caller that finds
        that record not waiting any more removes it in turn.

        Return None if the queue is empty now, or the ref is no head (then nothing changes).
        """
        queue = self._by_head.pop(ref)
        if not queue:
            return None
        entry = self._firsts[queue]
        if not entry:
            self._close(queue)
            return None
        next_ref = self._refs[entry]
        self._by_head.put(next_ref, queue)
        self._firsts[queue] = self._nexts[entry]
        self._nexts[entry] = self._free_entry
        self._free_entry = entry
        self._waiting -= 1
        if not self._waiting and len(self._refs) > _FEW:
            self._clear_entries()
        return next_ref

    # ── room ──────────────────────────────────────────────────────────────────────────────────────

    def _open(self, queue: int, key: int) -> None:
        if queue == self._free_queue:
            self._free_queue = self._firsts[queue]
            self._firsts[queue] = 0
            self._keys[queue] = key
        else:
            self._keys.append(key)
            self._firsts.append(0)
            self._lasts.append(0)

    def _close(self, queue: int) -> None:
        """Free a queue without head."""
        self._by_key.pop(self._keys[queue])
        self._firsts[queue] = self._free_queue
        self._free_queue = queue
        left = self._by_key.count
        if not left:
            self.clear()
        elif left <= _FEW and self._waiting <= _FEW and len(self._keys) > 16 * _FEW:
            self._rewrite()

    def _new_entry(self, ref: int) -> int:
        """Return an entry for a ref, which is the last of its queue."""
        entry = self._free_entry
        if entry:
            self._free_entry = self._nexts[entry]
            self._refs[entry] = ref
            self._nexts[entry] = 0
            return entry
        self._refs.append(ref)
        self._nexts.append(0)
        return len(self._refs) - 1

    def _rewrite(self) -> None:
        """Rebuild the arrays when few of many entries are left, to free memory. Takes about 3
        ms.
        """
        heads = {queue: ref for ref, queue in self._by_head.entries()}
        queues = [(key, [heads[queue], *self._behind(queue)]) for key, queue in self._by_key.entries()]
        self.clear()
        for key, refs in queues:
            for ref in refs:
                self.enter(key, ref)

    def _behind(self, queue: int) -> list[int]:
        refs = []
        entry = self._firsts[queue]
        while entry:
            refs.append(self._refs[entry])
            entry = self._nexts[entry]
        return refs
