"""A partition as a source of a queue, and reading of its leased records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.kept_chunk import KeptChunks
from sparrow.broker.reading.committed_chunks import stable, without_aborted
from sparrow.records.batch import parse_header
from sparrow.records.excerpt import Excerpter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.scan.record_headers import Piece
    from sparrow.storage.store import Chunk

_LEAST_READ_BYTES: Final = 16 << 10
_KEPT: Final = 0.8
"""Weight of the old estimate when the size of one more record is added."""


@dataclass(slots=True)
class ReadCaches:
    """Memory of the batches that were read last, for the sources of all queues."""

    excerpter: Excerpter = field(default_factory=Excerpter)
    """Cuts batches of which not all records were leased."""
    kept: KeptChunks = field(default_factory=KeptChunks)
    """The batches of each source's last lease."""


class QueueSource:
    """A partition of a queue, without the state of its records. Loop thread only.

    Args:
        number: its number in the queue's state.
        woken: called when there is more to scan.
        caches: shared with other sources.
    """

    def __init__(
        self,
        number: int,
        partition: Partition,
        woken: Callable[[QueueSource], None],
        caches: ReadCaches,
    ) -> None:
        self.number = number
        self.partition = partition
        self.topic = partition.id.topic
        self.index = partition.id.partition
        self.key = (self.topic, self.index)
        self._woken = woken
        self.pieces: Iterator[Piece] | None = None
        """Rest of the chunk that is being scanned."""
        self.is_gone = False
        """True once its topic was deleted."""
        self.mean_bytes = 256.0
        """Estimated size of a record."""
        self._excerpter, self._kept = caches.excerpter, caches.kept

    # ── the end of the log ────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        """Scan again: records were appended (interface of a partition's `Waiter`)."""
        self._woken(self)

    def wait(self) -> None:
        """Wake at the next append."""
        self.partition.wait(self)

    def stop_waiting(self) -> None:
        self.partition.stop_waiting(self)

    def visible_end(self, *, committed: bool) -> int:
        """End of the records that may be delivered."""
        return self.partition.last_stable_offset if committed else self.partition.visible_end

    def committed(self, chunk: Chunk, offset: int, end: int) -> Chunk:
        """Return the committed batches of a chunk that was read at `offset`, before the visible
        `end`.
        """
        if chunk.next_offset > end:
            chunk = stable(self.partition, chunk, offset)
        return without_aborted(self.partition, chunk, offset)

    def forget(self) -> None:
        """Free the memory of the batches that were read."""
        self._kept.forget(self)

    def measured(self, size_bytes: int, records: int) -> None:
        """Update the estimated size of a record. Many records at once count as much as the same
        ones one by one.
        """
        if records > 0:
            self.mean_bytes += (max(size_bytes / records, 1.0) - self.mean_bytes) * (1 - _KEPT**records)

    def timestamp_at(self, offset: int) -> int:
        """Return the time (ms) of the batch that has a record; -1 if the disk would have to be read
        for it.
        """
        try:
            chunk = self.partition.log.read_nowait(offset, 1)
        except SparrowError:
            return -1
        if chunk is None or not chunk.data:
            return -1
        header = parse_header(chunk.data)
        return header.max_timestamp if header.base_timestamp < 0 else header.base_timestamp

    # ── reading what was leased ───────────────────────────────────────────────────────────────────

    async def read(
        self, ranges: Sequence[tuple[int, int]], max_bytes: int
    ) -> tuple[list[bytes | memoryview], int]:
        """Return batches with the records of the ranges [first, end), which are sorted.

        Returns:
            The batches, and how many of the records from the first on they hold: fewer when
            `max_bytes` is reached, but at least one.

        Raises:
            UnknownTopic, OffsetOutOfRange, CorruptBatch, StorageFailed: from the log.
        """
        parts: list[bytes | memoryview] = []
        room, index, position = max_bytes, 0, ranges[0][0]
        while index < len(ranges):
            chunk = await self._chunk(position, ranges, index, max(room, 1))
            wanted: list[tuple[int, int]] = []
            while index < len(ranges):
                first, end = ranges[index]
                if first >= chunk.next_offset:
                    break
                wanted.append((max(first, position), min(end, chunk.next_offset)))
                if end > chunk.next_offset:
                    break
                index += 1
            if wanted == [(chunk.base_offset, chunk.next_offset)]:
                data = bytes(chunk.data)  # no copy, unless it is a part of something larger
            else:
                data = self._excerpter.excerpts(chunk.data, wanted, self.partition.id)
            parts.append(data)
            room -= len(data)
            if index == len(ranges):
                break
            position = max(ranges[index][0], chunk.next_offset)
            if room <= 0:
                break
        return parts, _records_before(ranges, index, position)

    async def _chunk(self, position: int, ranges: Sequence[tuple[int, int]], index: int, room: int) -> Chunk:
        """Read a chunk that begins at `position`, about as large as the records that are wanted
        around there.
        """
        end = ranges[index][1]
        for first, stop in ranges[index + 1 : index + 64]:
            if first - end > 64:
                break
            end = stop
        log = self.partition.log
        if position >= log.start_offset:
            kept = self._kept.maybe_chunk(self, position, end, room)
            if kept is not None:
                return kept
        size = min(room, max(_LEAST_READ_BYTES, int((end - position) * self.mean_bytes * 1.25)))
        chunk = log.read_nowait(position, size)
        if chunk is None:
            chunk = await log.read(position, size)
        if chunk.next_offset > end:  # else all of it is delivered now
            self._kept.keep(self, chunk)
        return chunk


def _records_before(ranges: Sequence[tuple[int, int]], index: int, position: int) -> int:
    count = 0
    for first, end in ranges[:index]:
        count += end - first
    if index < len(ranges):
        count += max(0, position - ranges[index][0])
    return count
