"""The bytes of a connection that are left when all whole messages are cut from them.

A chunk that begins with a message is parsed where it is, without a copy. The rest waits until its
message is whole: bytes are appended, and never parsed again before that, so that a peer that sends
single bytes costs no more than one that sends all at once.
"""

from __future__ import annotations


class ReceiveBuffer:
    """The unfinished message of one connection."""

    __slots__ = ("_bytes", "wanted_bytes")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.wanted_bytes = 0
        """Size of the unfinished message as far as it is known; 0 if there is none."""

    def __len__(self) -> int:
        return len(self._bytes)

    def joined(self, data: bytes) -> bytes:
        """Return the bytes that can be parsed now; b"" while the unfinished message is not
        whole.
        """
        if not self._bytes:
            return data
        self._bytes += data
        if len(self._bytes) < self.wanted_bytes:
            return b""
        whole = bytes(self._bytes)
        self.clear()
        return whole

    def keep(self, data: bytes, position: int, wanted_bytes: int) -> None:
        """Keep `data` from `position` on, the beginning of a message of at least `wanted_bytes`."""
        self._bytes = bytearray(memoryview(data)[position:])
        self.wanted_bytes = wanted_bytes if self._bytes else 0

    def clear(self) -> None:
        """Drop the unfinished message."""
        self._bytes = bytearray()
        self.wanted_bytes = 0
