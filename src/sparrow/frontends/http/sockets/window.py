"""What one subscription may be sent: credit, and what was read before there was credit for it.

The log is read in whole batches, so more may be read than there is credit for; the rest waits here, and nothing more is read until it is gone. Credit counts records: it goes
up by what the client gives and down by what is taken to be sent, so never more is sent than was given. What is of a partition that was lost is dropped. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Key = tuple[str, int]
MAX_CREDIT: Final = (1 << 53) - 1
"""The largest number that every JSON library keeps exact."""


class Held(NamedTuple):
    """A record that was read."""

    key: Key
    piece: bytes


class Window:
    """See the module's text."""

    __slots__ = ("_held", "credit")

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self._held: deque[Held] = deque()

    def __len__(self) -> int:
        """How many records wait."""
        return len(self._held)

    @property
    def may_read(self) -> bool:
        """Whether more is to be read."""
        return self.credit > 0 and not self._held

    @property
    def may_send(self) -> bool:
        """Whether something waits for which there is credit."""
        return self.credit > 0 and bool(self._held)

    def give(self, records: int) -> None:
        """The client takes so many more.

        Raises:
            InvalidArgument: a negative number.
        """
        if records < 0:
            raise InvalidArgument(
                f"credit of {records} records: credit is only added; send a positive number"
            )
        self.credit = min(self.credit + records, MAX_CREDIT)

    def spend(self, records: int) -> None:
        """So many are sent that never waited here."""
        self.credit -= records

    def hold(self, key: Key, pieces: Sequence[bytes]) -> None:
        """Records of one partition were read, in order."""
        self._held.extend(Held(key, piece) for piece in pieces)

    def take(self, max_bytes: int) -> list[bytes]:
        """What may be sent now, at most about `max_bytes` of it, but one at least if there is any."""
        taken: list[bytes] = []
        size_bytes = 0
        while self.may_send and (not taken or size_bytes + len(self._held[0].piece) <= max_bytes):
            piece = self._held.popleft().piece
            taken.append(piece)
            size_bytes += len(piece)
            self.credit -= 1
        return taken

    def drop(self, keys: Collection[Key]) -> None:
        """What is of these partitions is not to be sent any more."""
        if self._held:
            self._held = deque(each for each in self._held if each.key not in keys)
