"""Order per key: the first record of a key that is not finished is the key's head; the others wait in line behind it.

All in flat arrays, whatever the number of keys: about 36 bytes per key, and 12 per record in line. Rejected: a dict of queues (400
bytes per key, though most keys of a queue have one record at a time).

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from typing import Final

from sparrow.broker.queues.idmap import IdMap
from sparrow.broker.queues.refmap import RefMap

_FEW: Final = 1024


class KeyLines:
    """The heads of all keys and those who wait behind them.

    A key is any number but 0 (a 64-bit hash), a ref any number from 0 up that is entered once. Each call takes constant time.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._by_key = IdMap("i")
        self._by_head = RefMap()
        self._keys = array("q", [0])
        self._firsts = array("i", [0])
        self._lasts = array("i", [0])
        self._free_line = 0
        self._clear_places()

    def _clear_places(self) -> None:
        self._waiting = 0
        self._refs = array("q", [0])
        self._nexts = array("i", [0])
        self._free_place = 0

    def __len__(self) -> int:
        """Keys that have a head."""
        return self._by_key.count

    @property
    def memory(self) -> int:
        """Bytes that the lines take, about."""
        arrays = len(self._keys) * 16 + len(self._refs) * 12
        return arrays * 17 // 16 + self._by_key.memory + self._by_head.memory

    def waiting(self) -> int:
        """Records that wait behind a head."""
        return self._waiting

    def enter(self, key: int, ref: int) -> bool:
        """A record of a key comes. True: it is the head and may go on; False: it waits in line."""
        free = self._free_line or len(self._keys)
        line = self._by_key.setdefault(key, free)
        if not line:
            self._open(free, key)
            self._by_head.put(ref, free)
            return True
        if self._by_head.get(ref) == line:
            return True
        place = self._place(ref)
        if self._firsts[line]:
            self._nexts[self._lasts[line]] = place
        else:
            self._firsts[line] = place
        self._lasts[line] = place
        self._waiting += 1
        return False

    def leave(self, ref: int) -> int | None:
        """A head is finished. Returns the ref that is the head now; if the caller finds that it does not wait any more, it leaves in turn.

        None: nobody waited, or the ref is no head (then nothing changes).
        """
        line = self._by_head.pop(ref)
        if not line:
            return None
        place = self._firsts[line]
        if not place:
            self._close(line)
            return None
        heir = self._refs[place]
        self._by_head.put(heir, line)
        self._firsts[line] = self._nexts[place]
        self._nexts[place] = self._free_place
        self._free_place = place
        self._waiting -= 1
        if not self._waiting and len(self._refs) > _FEW:
            self._clear_places()
        return heir

    def key_of_head(self, ref: int) -> int | None:
        """The key that a ref is the head of."""
        return self._keys[self._by_head.get(ref)] or None

    # ── room ──────────────────────────────────────────────────────────────────────────────────────

    def _open(self, line: int, key: int) -> None:
        if line == self._free_line:
            self._free_line = self._firsts[line]
            self._firsts[line] = 0
            self._keys[line] = key
        else:
            self._keys.append(key)
            self._firsts.append(0)
            self._lasts.append(0)

    def _close(self, line: int) -> None:
        """Give back a line without head."""
        self._by_key.pop(self._keys[line])
        self._firsts[line] = self._free_line
        self._free_line = line
        left = self._by_key.count
        if not left:
            self.clear()
        elif left <= _FEW and self._waiting <= _FEW and len(self._keys) > 16 * _FEW:
            self._write_anew()

    def _place(self, ref: int) -> int:
        """A place in a line, the last."""
        place = self._free_place
        if place:
            self._free_place = self._nexts[place]
            self._refs[place] = ref
            self._nexts[place] = 0
            return place
        self._refs.append(ref)
        self._nexts.append(0)
        return len(self._refs) - 1

    def _write_anew(self) -> None:
        """Few are left of many: what the others took goes back to the system. About 3 ms."""
        heads = {line: ref for ref, line in self._by_head.entries()}
        lines = [(key, [heads[line], *self._behind(line)]) for key, line in self._by_key.entries()]
        self.clear()
        for key, refs in lines:
            for ref in refs:
                self.enter(key, ref)

    def _behind(self, line: int) -> list[int]:
        refs = []
        place = self._firsts[line]
        while place:
            refs.append(self._refs[place])
            place = self._nexts[place]
        return refs
