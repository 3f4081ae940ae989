"""The memory for records that are in hand or under way, which all endpoints share.

Where there is no room an endpoint that has nothing in hand still gets one record: so everybody goes on, however large the records of others are, and nobody waits for others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.records.record import Record

TOTAL_BYTES: Final = 64 << 20
OF_ENDPOINT_BYTES: Final = 16 << 20
_RECORD_BYTES: Final = 600
"""What a record takes beside its content: objects, and the task that delivers it."""
_HEADER_BYTES: Final = 160


class Memory:
    """One for the door; a `ReadMemory` of the broker. Loop thread only."""

    def __init__(self, total_bytes: int = TOTAL_BYTES) -> None:
        self.total_bytes = total_bytes
        self.held_bytes = 0
        self.unpacking = asyncio.Lock()
        """Held while a compressed batch is unpacked: nobody knows before how large it becomes, so it is one at a time."""

    @property
    def room_bytes(self) -> int:
        return max(0, self.total_bytes - self.held_bytes)

    def take(self, wanted_bytes: int) -> int:
        """How many bytes may be read now; 0: the first record alone."""
        granted = min(wanted_bytes, self.room_bytes)
        self.held_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        """What was granted has been read, or what was held is done."""
        self.held_bytes -= granted_bytes

    def hold(self, size_bytes: int) -> None:
        """So much is in hand, whether there is room or not."""
        self.held_bytes += size_bytes


def size_of(record: Record) -> int:
    """About the memory that a record takes."""
    content = len(record.key or b"") + len(record.value or b"")
    headers = sum(len(name) + len(value or b"") + _HEADER_BYTES for name, value in record.headers)
    return _RECORD_BYTES + content + headers
