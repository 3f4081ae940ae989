"""One partition's log on files: a sequence of segments, the last one active.

The event loop's thread has everything that readers and publishers need: the segments, how much of
each is visible, where the log starts and ends. An append writes to the page cache at once (one
vectored write, the batch's bytes are not copied) and is kept from that moment on; work that costs
time on a disk runs in threads (see `durability`, `workers`).

Maintenance (retention, compaction, closing) is serialised per log by one lock; appends and reads
continue meanwhile. Maintenance that has begun runs to its end, because its threads would: a
cancelled caller merely stops waiting, and the next maintenance waits for that end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import TYPE_CHECKING, TypeVar

from sparrow.base.errors import (
    CorruptBatch,
    CorruptStoredBatch,
    InvalidArgument,
    OffsetOutOfRange,
    StorageFailed,
)
from sparrow.records.batch import stamp
from sparrow.storage import names, retention, size_estimate
from sparrow.storage.checkpoint import Checkpoint, RecoveryPoint
from sparrow.storage.damage import Damage
from sparrow.storage.durability import Durability
from sparrow.storage.filesystem import is_disk_full, translate, write_all
from sparrow.storage.maintenance import Maintenance
from sparrow.storage.row import SegmentRow
from sparrow.storage.scrub import ScrubExtent, SegmentCheck, find_unreadable
from sparrow.storage.segment import NO_BATCH, Segment
from sparrow.storage.store import Appended, Chunk
from sparrow.storage.tail import MAX_BATCH_BYTES, Tail
from sparrow.storage.timestamps import first_since

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.base.futures import Then
    from sparrow.model.topics import RemovedBatch
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.filesystem import Buffer
    from sparrow.storage.recovery import Recovered, RecoveredSegment
    from sparrow.storage.resources import Resources
    from sparrow.storage.store import LogConfig, LogId

STAMP_BYTES = 16
T = TypeVar("T")
MAX_RELATIVE = (1 << 31) - 1
"""Largest value of positions and relative offsets in the indexes, which are 32 bits wide."""


class LocalLog:
    """A `PartitionLog` on segment files. Created by `LocalLogStore.open`."""

    def __init__(
        self, resources: Resources, log_id: LogId, config: LogConfig, recovered: Recovered, *, exists: bool
    ) -> None:
        self.id = log_id
        self.configure(config)
        self.last_append_ms = -1
        self._resources = resources
        self._directory = recovered.directory
        segments = [self._adopt(each) for each in recovered.segments]
        self._row = SegmentRow(segments, recovered.start_offset, recovered.end_offset)
        self._tail = Tail(resources.tails)
        self._point_total = 0
        self._appended_total = recovered.scanned_bytes
        self._has_directory = exists
        self._closed = False
        self._scrubbing: tuple[Segment, SegmentCheck] | None = None
        self._is_scrubbed = False
        """True when the last step of a pass is done; the next call returns 0."""
        self._maintenance_lock = asyncio.Lock()
        self._durability = self._make_durability(recovered)
        self._maintenance = Maintenance(
            resources,
            self._directory,
            self._row,
            self._durability,
            roll=self._roll,
            is_stopped=lambda: self._closed,
        )

    def _adopt(self, found: RecoveredSegment) -> Segment:
        segment = Segment(
            self._resources, self._directory, found.base_offset, self.config.index_interval_bytes
        )
        segment.size, segment.synced = found.size, found.synced
        segment.max_timestamp, segment.first_timestamp = found.max_timestamp, found.first_timestamp
        segment.created_ms, segment.index = found.created_ms, found.index
        segment.written, segment.written_times = found.written, found.written_times
        segment.crcs, segment.is_dense = found.crcs, found.is_dense
        return segment

    def _make_durability(self, recovered: Recovered) -> Durability:
        row = self._row
        base = row.segments[0].base_offset if row.segments else row.end
        point = recovered.point or RecoveryPoint(base, 0, base)
        saved = recovered.checkpoint or Checkpoint(row.start, point)
        # Never behind the end where files are missing: that would hide the next appends.
        clean_offset = min(saved.clean_offset, row.end)
        saved = dataclasses.replace(saved, point=point, log_start=row.start, clean_offset=clean_offset)
        if saved.state_offset > row.end:
            saved = dataclasses.replace(saved, state_offset=0, state=b"")
        durability = Durability(
            self._resources,
            self.id,
            self._directory,
            saved,
            recovered.durable_offset,
            row,
            self._tail,
        )
        durability.is_new = recovered.point is None
        for segment in row.segments:
            if segment.base_offset >= point.segment:
                # Bytes before the recovery point are on the disk, so the file's name is.
                segment.linked = segment.base_offset == point.segment and point.position > 0
                durability.unsettled.append(segment)
        return durability

    # ── what is known ──

    @property
    def start_offset(self) -> int:
        return self._row.start

    @property
    def end_offset(self) -> int:
        return self._row.end

    @property
    def durable_offset(self) -> int:
        return self._durability.durable_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._row.segments)

    @property
    def uncheckpointed_bytes(self) -> int:
        return self._appended_total - self._point_total

    @property
    def max_timestamp(self) -> int:
        return max((segment.max_timestamp for segment in self._row.segments), default=-1)

    @property
    def epochs(self) -> Sequence[tuple[int, int]]:
        return ()

    @property
    def gaps(self) -> list[tuple[int, int]]:
        return [(gap.first, gap.end) for gap in self._durability.saved.gaps]

    @property
    def directory(self) -> str:
        """Directory of the log's files; for the store."""
        return self._directory

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._segment_bytes = min(config.segment_bytes, MAX_RELATIVE)
        self._max_active_ms = retention.max_active_ms(config)

    # ── appending ──

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int = 0
    ) -> asyncio.Future[Appended]:
        if self._closed or self._durability.failure is not None:
            raise self._unable()
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        base = self._row.end
        if not batches:
            future.set_result(Appended(base, base - 1))
            return future
        buffers: list[Buffer] = []
        entries: list[tuple[int, int, int]] = []
        offset, total = base, 0
        for header, data in batches:
            size = len(data)
            buffers += (stamp(header, offset, leader_epoch), data[STAMP_BYTES:])
            offset += header.last_offset_delta + 1
            entries.append((offset - 1, size, header.max_timestamp))
            total += size
        if offset - base > MAX_RELATIVE or total > MAX_RELATIVE:
            raise self._too_wide(offset - base, total)
        resources = self._resources
        now_ms = resources.clock.wall_ms()
        resources.disk_space.take(total)
        kept = b"".join(buffers) if len(batches) == 1 and total <= MAX_BATCH_BYTES else None
        try:
            segment = self._active_for(total, offset - 1, entries[-1][2], now_ms)
            segment.append(buffers if kept is None else (kept,), entries, now_ms)
        except StorageFailed as error:
            self._durability.fail(error)
            raise
        except OSError as error:
            raise self._refused(error) from error
        if kept is None:
            self._tail.clear()
        else:
            self._tail.add(base, offset, segment.base_offset, segment.size - total, kept)
        self._row.end = offset
        self._appended_total += total
        self.last_append_ms = now_ms
        resources.flusher.note_dirty(self._durability)
        future.set_result(Appended(base, offset - 1))
        return future

    @property
    def failure(self) -> StorageFailed | None:
        """The error that ended all writing to this log until a restart."""
        return self._durability.failure

    def _unable(self) -> StorageFailed:
        """Return the error of a log that takes no more appends."""
        failure = self._durability.failure
        return StorageFailed(failure.text if failure else f"the log {self.id} is closed; open it again")

    def _too_wide(self, offsets: int, size: int) -> InvalidArgument:
        """Return the error of batches with too many offsets: the counts in a batch's header are the
        publisher's, and may be anything.
        """
        return InvalidArgument(
            f"batches of {offsets} offsets and {size} bytes for {self.id} at once; "
            f"a segment holds {MAX_RELATIVE} of each: send fewer together"
        )

    def _refused(self, error: OSError) -> SparrowError:
        translated = translate(error, "appending to", self._directory)
        if is_disk_full(error):
            self._resources.disk_space.forget()
        elif isinstance(translated, StorageFailed):
            self._durability.fail(translated)
        return translated

    def _active_for(self, total: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """Return the segment that takes `total` bytes: the active one, or a new one if that is full
        or old.
        """
        segments = self._row.segments
        if not segments:
            return self._begin_segment()
        active = segments[-1]
        is_full = active.size > 0 and active.size + total > self._segment_bytes
        is_too_wide = last_offset - active.base_offset > MAX_RELATIVE
        if is_full or is_too_wide or self._is_old(active, timestamp, now_ms):
            return self._begin_segment()
        return active

    def _is_old(self, active: Segment, timestamp: int, now_ms: int) -> bool:
        """Apply Kafka's rule: age by the records' own time if they have one, else by the clock."""
        if not active.size:
            return False
        if active.first_timestamp >= 0 <= timestamp:
            return timestamp - active.first_timestamp > self._max_active_ms
        return active.created_ms >= 0 and now_ms - active.created_ms > self._max_active_ms

    def _begin_segment(self) -> Segment:
        """Close the active segment and begin the next one. Raises OSError; then nothing changed."""
        self._make_directory()
        segment = Segment(self._resources, self._directory, self._row.end, self.config.index_interval_bytes)
        segment.create()
        if self._row.segments:
            self._row.segments[-1].seal()
        self._row.add(segment)
        self._durability.add_segment(segment)
        return segment

    def _make_directory(self) -> None:
        """Create the directory. A log that was never written to has none, so that ten thousand
        empty topics cost nothing.
        """
        if self._has_directory:
            return
        fs = self._resources.fs
        fs.mkdir(self._directory)
        fd = fs.open(f"{self._directory}/{names.METADATA_FILE}", write=True, create=True)
        try:
            fs.truncate(fd, 0)
            write_all(fs, fd, [names.metadata_text(self.id.topic_id)], 0)
        finally:
            fs.close(fd)
        self._durability.is_new = True
        self._has_directory = True

    def durable(self, offset: int) -> asyncio.Future[None]:
        if offset > self._row.end:
            raise self._behind_the_end(offset)
        return self._durability.wait(offset)

    def when_durable(self, offset: int, then: Then) -> None:
        if offset > self._row.end:
            raise self._behind_the_end(offset)
        self._durability.call_when_durable(offset, then)

    def _behind_the_end(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"{self.id} ends at offset {self._row.end}; nothing before {offset} can be made durable"
        )

    # ── reading ──

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        segments, end = self._row.segments, self._row.end
        if offset >= self._row.start:  # what is deleted may still be in memory
            kept = self._tail.maybe_chunk(offset, max_bytes)
            if kept is not None:
                return kept
        first = self._number_of(offset)
        if offset == end:  # finding that there is nothing yet needs no disk
            return Chunk(b"", end, end, 0)
        for number in range(first, len(segments)):
            try:
                chunk = segments[number].read_nowait(offset, max_bytes)
            except CorruptBatch as error:
                raise self._corrupt(segments[number], offset, error) from error
            if chunk is not NO_BATCH:
                return chunk
        return Chunk(b"", end, end, 0)

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        chunk = self.read_nowait(offset, max_bytes)
        while chunk is None:
            chunk = await self._read_in_thread(offset, max_bytes)
        return chunk

    async def _read_in_thread(self, offset: int, max_bytes: int) -> Chunk | None:
        """Read in a thread. Return None if the segments changed meanwhile: look again."""
        # Batches that are appended while the disk is busy lie behind this end and are not searched.
        segments, end = self._row.segments, self._row.end
        for segment in segments[self._number_of(offset) :]:
            size = segment.size
            try:
                with segment.opened():
                    chunk = await self._resources.workers.run(segment.read, offset, max_bytes, size)
            except (CorruptBatch, StorageFailed) as error:
                if segments is not self._row.segments or segment.size < size:
                    return self.read_nowait(offset, max_bytes)
                if isinstance(error, CorruptBatch):
                    raise self._corrupt(segment, offset, error) from error
                raise
            if chunk is not NO_BATCH:
                return chunk
        return Chunk(b"", end, end, 0)

    def _corrupt(self, segment: Segment, offset: int, error: CorruptBatch) -> CorruptStoredBatch:
        """Record damaged bytes that a read found. Return the error for the reader."""
        damage = Damage(str(self.id), segment.path, error.text, offset, -1, closes=False, is_there=True)
        self._resources.damages.count_corrupt_read()
        self._resources.damages.add(damage)
        return CorruptStoredBatch(damage.sentence, offset)

    def _number_of(self, offset: int) -> int:
        """Return the number of the segment that contains `offset`, or would.

        Raises:
            OffsetOutOfRange: the offset is outside of the log.
        """
        if not self._row.start <= offset <= self._row.end:
            raise OffsetOutOfRange(
                f"{self.id} holds offsets {self._row.start} to {self._row.end} (not included); "
                f"{offset} is not among them"
            )
        return self._row.number_of(offset)

    async def estimate_size(self, start: int, end: int) -> int:
        while True:
            segments = self._row.segments
            try:
                return await self._estimate_size(
                    segments, max(start, self._row.start), min(end, self._row.end)
                )
            except StorageFailed:
                if segments is self._row.segments:
                    raise

    async def _estimate_size(self, segments: list[Segment], start: int, end: int) -> int:
        total = 0
        for number in range(self._row.number_of(start), len(segments)):
            if start >= end or segments[number].base_offset >= end:
                break
            extent = await self._extent(segments, number)
            total += size_estimate.estimate_position(extent, end) - size_estimate.estimate_position(
                extent, start
            )
        return total

    async def estimate_offset(self, start: int, max_bytes: int) -> int:
        start = max(start, self._row.start)
        while True:
            segments = self._row.segments
            number = self._number_of(start)
            try:
                return await self._estimate_offset(segments, number, start, max_bytes)
            except StorageFailed:
                if segments is self._row.segments:
                    raise

    async def _estimate_offset(self, segments: list[Segment], number: int, start: int, max_bytes: int) -> int:
        offset = start
        for each in range(number, len(segments)):
            extent = await self._extent(segments, each)
            size = extent.size_bytes - size_estimate.estimate_position(extent, offset)
            if size > max_bytes and offset < extent.end:
                found = size_estimate.estimate_offset(extent, offset, max_bytes)
                is_too_far = size_estimate.estimate_position(extent, found) > max_bytes
                return offset if is_too_far and offset > start else found
            max_bytes -= size
            offset = max(offset, extent.end)
        return offset

    async def _extent(self, segments: list[Segment], number: int) -> size_estimate.LogExtent:
        """Return the extent of a segment; read its index from the disk if it is not in memory."""
        segment = segments[number]
        index = segment.index
        if index is None:
            with segment.opened():
                index = await self._resources.workers.run(segment.load_index)
        is_last = number + 1 == len(segments)
        end = self._row.end if is_last else segments[number + 1].base_offset
        return size_estimate.LogExtent(index, segment.size, end)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        while True:
            segments = self._row.segments
            try:
                return await self._offset_for_timestamp(segments, timestamp_ms)
            except StorageFailed:
                if segments is self._row.segments:
                    raise

    async def _offset_for_timestamp(
        self, segments: list[Segment], timestamp_ms: int
    ) -> tuple[int, int] | None:
        for segment in segments:
            if segment.max_timestamp >= timestamp_ms:
                start, size = self._row.start, segment.size
                with segment.opened():
                    found = await self._resources.workers.run(first_since, segment, timestamp_ms, start, size)
                if found is not None:
                    return found
        return None

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        return self._walk(
            offset, lambda segment, offset: ((h, h) for h in segment.headers(offset, segment.size))
        )

    def headers_and_markers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        return self._walk(
            offset,
            lambda segment, offset: (
                (found[0], found) for found in segment.headers_and_markers(offset, segment.size)
            ),
        )

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        for header, control in self.headers_and_markers(offset):
            if header.producer_id >= 0 or control:
                yield header, control

    def _walk(
        self, offset: int, look: Callable[[Segment, int], Iterator[tuple[BatchHeader, T]]]
    ) -> Iterator[T]:
        """Iterate over the results of `look` in each segment from `offset` to the present end."""
        self._number_of(offset)
        end = self._row.end
        while offset < end:
            segments, number = self._row.segments, self._row.number_of(offset)
            segment = segments[number]
            try:
                for header, found in look(segment, offset):
                    yield found
                    offset = header.next_offset
            except StorageFailed:
                if not segment.handle.retired:
                    raise
                continue
            offset = max(offset, segments[number + 1].base_offset) if number + 1 < len(segments) else end

    # ── housekeeping ──

    async def _alone(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run one maintenance action until it is complete, even when the caller is cancelled."""

        async def run() -> T:
            async with self._maintenance_lock:
                return await act()

        return await asyncio.shield(asyncio.create_task(run()))

    async def delete_records(self, before_offset: int) -> int:
        wanted = min(before_offset, self._row.end)
        if wanted > self._row.start:
            # The durable end may not lie before the start: a crash would leave a log that begins
            # behind its end.
            await self._durability.files_synced()
            await self._move_start(wanted)
        return self._row.start

    async def _move_start(self, offset: int) -> None:
        await self._resources.workers.run(self._durability.save, log_start=max(offset, self._row.start))
        self._row.start = max(self._row.start, min(offset, self._row.end))

    async def enforce_retention(self, now_ms: int) -> int:
        return await self._alone(lambda: self._enforce_retention(now_ms))

    async def _enforce_retention(self, now_ms: int) -> int:
        if not self._row.segments or self._durability.failure is not None or self._closed:
            return 0
        return await self._maintenance.enforce_retention(self.config, now_ms)

    async def remove_batch(self, offset: int, *, force: bool = False) -> RemovedBatch:
        return await self._alone(lambda: self._remove_batch(offset, force))

    async def _remove_batch(self, offset: int, force: bool) -> RemovedBatch:
        if self._closed or self._durability.failure is not None:
            raise self._unable()
        if not self._row.start <= offset < self._row.end:
            raise OffsetOutOfRange(
                f"{self.id} holds offsets {self._row.start} to {self._row.end} (not included); "
                f"{offset} is not among them"
            )
        self._tail.clear()
        return await self._maintenance.remove_batch(self.id, offset, force=force)

    @property
    def kept_unreadable(self) -> list[CorruptBatch]:
        return self._maintenance.kept_unreadable

    async def compact(self, now_ms: int) -> int:
        return await self._alone(lambda: self._compact(now_ms))

    async def _compact(self, now_ms: int) -> int:
        if not self.config.compact or self._durability.failure is not None or self._closed:
            return 0
        self._tail.clear()
        return await self._maintenance.compact(self.id, self.config, now_ms)

    def _roll(self) -> None:
        try:
            self._begin_segment()
        except OSError as error:
            raise self._refused(error) from error

    async def scrub(self, max_bytes: int) -> int:
        # Under the lock, so that no compaction replaces the file that is being read.
        return await self._alone(lambda: self._scrub(max_bytes))

    async def _scrub(self, max_bytes: int) -> int:
        if self._closed or self._is_scrubbed:
            self._is_scrubbed = False
            return 0
        current = self._scrubbing
        if current is not None and all(each is not current[0] for each in self._row.segments):
            # it left the log or was replaced
            current = self._next_to_scrub(current[0].base_offset - 1)
        current = current or self._next_to_scrub(-1)
        if current is None:
            return 0
        segment, check = current
        try:
            checked = await self._resources.workers.run(check.step, max_bytes)
        except OSError as error:
            self._scrubbing = self._next_to_scrub(segment.base_offset)
            raise translate(error, "checking the batches of", self._directory) from error
        self._scrubbing = current
        if check.is_done:
            for damage in check.damages:
                self._resources.damages.add(damage)
            self._scrubbing = self._next_to_scrub(segment.base_offset)
            self._is_scrubbed = self._scrubbing is None
        return max(checked, 1)

    def _next_to_scrub(self, base: int) -> tuple[Segment, SegmentCheck] | None:
        """Return the first closed segment on stable storage behind the one that begins at
        `base`.
        """
        for segment, following in itertools.pairwise(self._row.segments):
            if segment.base_offset > base and not segment.needs_sync:
                extent = _extent(segment, following.base_offset)
                return segment, SegmentCheck(self._resources.fs, str(self.id), extent)
        return None

    def find_unreadable(self, offset: int) -> list[Damage]:
        segments = self._row.segments
        ends = [*(each.base_offset for each in segments[1:]), self._row.end]
        extents = map(_extent, segments, ends)
        try:
            return find_unreadable(self._resources.fs, str(self.id), extents, offset)
        except OSError as error:
            raise translate(error, "reading the headers of", self._directory) from error

    # ── checkpoints and the end ──

    async def checkpoint(self, state: bytes) -> None:
        await self._checkpoint((self._row.end, state))

    async def _checkpoint(self, state: tuple[int, bytes] | None) -> None:
        if not self._row.segments:
            return
        segment, total = self._row.segments[-1], self._appended_total
        assert segment.index is not None, "the active segment has its index in memory"
        point = RecoveryPoint(
            segment.base_offset,
            segment.size,
            self._row.end,
            segment.index.state,
            segment.first_timestamp,
            segment.created_ms,
        )
        await self._durability.files_synced()
        await self._resources.workers.run(self._durability.save_point, segment, point, state)
        self._point_total = max(self._point_total, total)

    def saved_state(self) -> tuple[int, bytes]:
        saved = self._durability.saved
        return max(saved.state_offset, self._row.start), saved.state

    async def close(self) -> None:
        """Make everything durable and move the recovery point to the end; a compaction gives up.
        Raises as `checkpoint`.
        """
        await self.stop()
        if self._durability.failure is not None:
            raise StorageFailed(self._durability.failure.text)
        point, end = self._durability.saved.point, self._row.end
        segments = self._row.segments
        # The active segment's index files may have been lost and rebuilt in memory.
        has_index = not segments or segments[-1].written >= point.index.entries
        if segments and ((point.end_offset, self._durability.durable_offset) != (end, end) or not has_index):
            await self._checkpoint(None)

    async def stop(self) -> None:
        """Accept no more work and wait for running work."""
        self._closed = True
        async with self._maintenance_lock:
            pass

    async def end_writing(self) -> None:
        """Wait until no file is written any more, not even by a running sync: the directory may be
        removed.
        """
        await self._resources.workers.run(self._durability.end)

    def abandon(self) -> None:
        """Close all files; the log must not be used any more."""
        self._closed = True
        self._tail.clear()
        self._durability.close()
        for segment in self._row.segments:
            segment.retire()


def _extent(segment: Segment, end_offset: int) -> ScrubExtent:
    return ScrubExtent(
        segment.path, segment.base_offset, end_offset, segment.size, has_holes=not segment.is_dense
    )
