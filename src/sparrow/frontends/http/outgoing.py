"""The memory of answers that are made and sent: what a client asks for and then does not take stays in it, and so does what a quota holds back.

The more of it is in use, the less an answer may hold; one batch it has, all the same. So many slow readers make the answers of all smaller, and none of them waits for
another. Where even single batches take several times the memory that there is, further requests are refused.
"""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import Overloaded

_SHARE: Final = 8
"""One answer takes at most this part of what is free: one eighth."""
_MOST: Final = 4
"""So many times the memory may be taken by answers of one batch each."""


class Outgoing:
    """What is being read and what is not sent, all answers together; a `broker.fetch.ReadMemory`. Loop thread only."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._reading_bytes = 0
        self.held_bytes = 0

    def share(self, wanted_bytes: int) -> int:
        """How much of it one answer may have now."""
        free = self._total_bytes - self.held_bytes - self._reading_bytes
        return max(0, min(wanted_bytes, free // _SHARE))

    def check(self) -> None:
        """
        Raises:
            Overloaded: there is no room for another answer.
        """
        if self.held_bytes > _MOST * self._total_bytes:
            raise Overloaded(
                "answers that their clients have not taken yet fill the memory for them; try again later, and read faster"
            )

    def take(self, wanted_bytes: int) -> int:
        """How much of it may be read now; `give_back` it after reading."""
        granted = self.share(wanted_bytes)
        self._reading_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        """What was granted has been read."""
        self._reading_bytes -= granted_bytes


class Held:
    """What one answer holds, from when it is read until it is sent. Whoever makes it releases it, or gives it to a `HeldAnswer`."""

    __slots__ = ("_outgoing", "size_bytes")

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """So much more."""
        self.size_bytes += size_bytes
        self._outgoing.held_bytes += size_bytes

    def become(self, size_bytes: int) -> None:
        """So much and nothing else."""
        self.add(size_bytes - self.size_bytes)

    def release(self) -> None:
        """Nothing any more."""
        self.become(0)
