"""The memory limit for leased records, shared by all endpoints.

Without room, an endpoint that holds no record still gets one. So every endpoint makes progress,
however large the records of others are, and none waits for others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.records.record import Record

TOTAL_BYTES: Final = 64 << 20
OF_ENDPOINT_BYTES: Final = 16 << 20
_RECORD_BYTES: Final = 600
"""Size of a record besides its content: objects, and the task that delivers it."""
_HEADER_BYTES: Final = 160


class RecordMemory:
    """The memory of all leased records of the frontend. Loop thread only."""

    def __init__(self, total_bytes: int = TOTAL_BYTES) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.unpacking = asyncio.Lock()
        """Locked while a compressed batch is unpacked: its size is unknown before, so it is one at
        a time.
        """

    @property
    def room_bytes(self) -> int:
        return max(0, self.total_bytes - self.used_bytes)

    def use(self, size_bytes: int) -> None:
        """Count used bytes, even if there is no room."""
        self.used_bytes += size_bytes


class LeaseMemory:
    """The memory of one lease while it is read; a `ReadMemory` of the broker. It never waits:
    without room the first record is read alone.
    """

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, memory: RecordMemory) -> None:
        self._memory = memory
        self.size_bytes = 0

    async def take(self, wanted_bytes: int, least_bytes: int = 0) -> int:  # noqa: ARG002 - the protocol's names
        """Reserve memory. Return how many bytes may be read now; 0: only the first record."""
        self.give_back()
        self.resize(min(wanted_bytes, self._memory.room_bytes))
        return self.size_bytes

    def keep(self, size_bytes: int) -> bool:
        """Count the bytes that were read; there is always room."""
        self.resize(size_bytes)
        return True

    def resize(self, size_bytes: int) -> None:
        """Change the reservation to `size_bytes`."""
        self._memory.use(size_bytes - self.size_bytes)
        self.size_bytes = size_bytes

    def give_back(self) -> None:
        """Release the reservation: records are counted one by one, or were not needed."""
        self.resize(0)


def size_of(record: Record) -> int:
    """Return the approximate memory that a record takes."""
    content = len(record.key or b"") + len(record.value or b"")
    headers = sum(len(name) + len(value or b"") + _HEADER_BYTES for name, value in record.headers)
    return _RECORD_BYTES + content + headers
