"""Flow control of one subscription: credit, and records that were read before there was credit for
them.

The log is read in whole batches, so more may be read than there is credit for. The rest is buffered
here, and nothing more is read until the buffer is empty. Credit counts records: it grows by what
the client gives and shrinks by what is taken to be sent, so no more is sent than was given. Records
of a revoked partition are dropped. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparrow.records.topic_partition import TopicPartition


MAX_CREDIT: Final = (1 << 53) - 1
"""The largest number that every JSON library keeps exact."""


class BufferedRecord(NamedTuple):
    """A record that was read."""

    key: TopicPartition
    piece: bytes


class Window:
    """Credit and buffer of one subscription; see the module's text."""

    __slots__ = ("_buffered", "buffered_bytes", "credit")

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self._buffered: deque[BufferedRecord] = deque()
        self.buffered_bytes = 0
        """Bytes of the buffered records."""

    def __len__(self) -> int:
        """Return the number of buffered records."""
        return len(self._buffered)

    @property
    def may_send(self) -> bool:
        """Return True if a buffered record may be sent."""
        return self.credit > 0 and bool(self._buffered)

    def give(self, records: int) -> None:
        """Add credit for more records.

        Raises:
            InvalidArgument: a negative number.
        """
        if records < 0:
            raise InvalidArgument(
                f"credit of {records} records: credit is only added; send a positive number"
            )
        self.credit = min(self.credit + records, MAX_CREDIT)

    def spend(self, records: int) -> None:
        """Count records that are sent without being buffered."""
        self.credit -= records

    def hold(self, key: TopicPartition, pieces: Sequence[bytes]) -> None:
        """Buffer records of one partition, in order."""
        self._buffered.extend(BufferedRecord(key, piece) for piece in pieces)
        self.buffered_bytes += sum(map(len, pieces))

    def take(self, max_bytes: int) -> list[bytes]:
        """Take the records that may be sent, about `max_bytes` of them, but at least one if there
        is any.
        """
        taken: list[bytes] = []
        size_bytes = 0
        while self.may_send and (not taken or size_bytes + len(self._buffered[0].piece) <= max_bytes):
            piece = self._buffered.popleft().piece
            taken.append(piece)
            size_bytes += len(piece)
            self.credit -= 1
        self.buffered_bytes -= size_bytes
        return taken

    def drop(self, keys: Collection[TopicPartition]) -> None:
        """Drop the buffered records of these partitions."""
        if self._buffered:
            self._buffered = deque(each for each in self._buffered if each.key not in keys)
            self.buffered_bytes = sum(len(each.piece) for each in self._buffered)
