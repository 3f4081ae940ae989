"""The memory of answers with records, from their reading until the socket has taken them, for all connections together.

Records are read into memory, and a client that does not read its socket leaves them there. So a Fetch reads no more than there is room for;
where there is none it still gets its first batch, so that nobody starves. Who holds what is only looked up when the estimate says that it
is much: the sum of everything read since the last look.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.frontends.kafka.connection import Connection

_LOOK_EVERY_S: Final = 0.02
_SHARE: Final = 4
"""One Fetch gets at most this part of the room, so that there is some for others."""


class Outbox:
    """Bytes of records that are being read or not sent yet. Loop thread only."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._reading_bytes = 0
        self._unsent_bytes = 0
        self._debtors: set[Connection] = set()
        self._looked_at = 0.0

    @property
    def is_full(self) -> bool:
        """More is unsent than there should be."""
        return self._room() <= 0

    def take(self, wanted_bytes: int) -> int:
        """How much of it may be read now; `give_back` it after reading."""
        granted = max(0, min(wanted_bytes, self._room() // _SHARE))
        self._reading_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        """What was granted has been read."""
        self._reading_bytes -= granted_bytes

    def add(self, connection: Connection, size_bytes: int) -> None:
        """So much is about to be sent."""
        self._unsent_bytes += size_bytes
        self._debtors.add(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and with it what it was to be sent."""
        self._debtors.discard(connection)

    def look(self) -> None:
        """See who holds what now."""
        self._looked_at = time.monotonic()
        held = {each: each.unsent_bytes for each in self._debtors}
        self._debtors = {each for each, size in held.items() if size}
        self._unsent_bytes = sum(held.values())

    def _room(self) -> int:
        held_bytes = self._reading_bytes + self._unsent_bytes
        if held_bytes > self.budget_bytes // 2 and time.monotonic() - self._looked_at > _LOOK_EVERY_S:
            self.look()
        return self.budget_bytes - self._reading_bytes - self._unsent_bytes
