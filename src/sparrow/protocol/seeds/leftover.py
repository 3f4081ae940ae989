"""What is left of the bytes of a connection when all whole messages are cut from them.

A chunk that begins with a message is parsed where it is, without a copy. The rest waits until the message that it begins is whole: it is
appended to, never parsed again before that, so that a peer that sends single bytes costs no more than one that sends all at once.
"""

from __future__ import annotations


class Leftover:
    """Of one connection."""

    __slots__ = ("_bytes", "wanted_bytes")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.wanted_bytes = 0
        """How large the message under way is, as far as that is known; 0: none is under way."""

    def __len__(self) -> int:
        return len(self._bytes)

    def joined(self, data: bytes) -> bytes:
        """Everything that is to be parsed now; b"" while the message under way is not whole."""
        if not self._bytes:
            return data
        self._bytes += data
        if len(self._bytes) < self.wanted_bytes:
            return b""
        whole = bytes(self._bytes)
        self.clear()
        return whole

    def keep(self, data: bytes, position: int, wanted_bytes: int) -> None:
        """`data` from `position` on begins a message of (at least) so many bytes."""
        self._bytes = bytearray(memoryview(data)[position:])
        self.wanted_bytes = wanted_bytes if self._bytes else 0

    def clear(self) -> None:
        """Nothing is under way."""
        self._bytes = bytearray()
        self.wanted_bytes = 0
