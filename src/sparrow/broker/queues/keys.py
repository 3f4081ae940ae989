"""Order per key: the first record of a key that is not finished is the key's head; the others wait in line behind it.

All in flat arrays, whatever the number of keys: about 35 bytes per key whose head is alone, which most are, 8 more for a line, and 12
per record in it. Rejected: a dict of queues (400 bytes per key).

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from typing import Final

from sparrow.broker.queues.idmap import IdMap

_ALONE: Final = -1
"""In place of a line: nobody waits behind the head."""


class KeyLines:
    """The heads of all keys and those who wait behind them.

    A key is any number but 0 (a 64-bit hash), a ref any number from 0 up that is entered once. Each call takes constant time.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._lines = IdMap("i")
        """By key: the number of its line, or that nobody waits."""
        self._keys = IdMap("q")
        """By the ref of a head: its key."""
        self._clear_lines()

    def _clear_lines(self) -> None:
        self._waiting = 0
        self._firsts = array("i", [0])
        self._lasts = array("i", [0])
        self._free_line = 0
        self._refs = array("q", [0])
        self._nexts = array("i", [0])
        self._free_place = 0

    def __len__(self) -> int:
        """Keys that have a head."""
        return len(self._keys)

    @property
    def memory(self) -> int:
        """Bytes that the lines take, about."""
        arrays = len(self._firsts) * 8 + len(self._refs) * 12
        return arrays * 17 // 16 + self._lines.memory + self._keys.memory

    def waiting(self) -> int:
        """Records that wait behind a head."""
        return self._waiting

    def enter(self, key: int, ref: int) -> bool:
        """A record of a key comes. True: it is the head and may go on; False: it waits in line."""
        line = self._lines.setdefault(key, _ALONE)
        if not line:
            self._keys.set(ref, key)
            return True
        if self._keys.get(ref):
            return True
        place = self._place(ref)
        if line == _ALONE:
            self._lines.set(key, self._begin(place))
        else:
            self._nexts[self._lasts[line]] = place
            self._lasts[line] = place
        self._waiting += 1
        return False

    def leave(self, ref: int) -> int | None:
        """A head is finished. Returns the ref that is the head now; if the caller finds that it does not wait any more, it leaves in turn.

        None: nobody waited, or the ref is no head (then nothing changes).
        """
        key = self._keys.pop(ref)
        if not key:
            return None
        line = self._lines.get(key)
        if line == _ALONE:
            self._lines.pop(key)
            return None
        place = self._firsts[line]
        heir = self._refs[place]
        self._keys.set(heir, key)
        if self._nexts[place]:
            self._firsts[line] = self._nexts[place]
        else:
            self._lines.set(key, _ALONE)
            self._firsts[line] = self._free_line
            self._free_line = line
        self._nexts[place] = self._free_place
        self._free_place = place
        self._waiting -= 1
        if not self._waiting:
            self._clear_lines()
        return heir

    def key_of_head(self, ref: int) -> int | None:
        """The key that a ref is the head of."""
        return self._keys.get(ref) or None

    # ── room ──────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, place: int) -> int:
        """A new line of one."""
        line = self._free_line
        if line:
            self._free_line = self._firsts[line]
            self._firsts[line] = self._lasts[line] = place
            return line
        self._firsts.append(place)
        self._lasts.append(place)
        return len(self._firsts) - 1

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
