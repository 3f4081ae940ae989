"""Bring a log's directory back in order after a crash: look, decide, repair.

`examine` reads a directory and changes nothing. It returns what the log is and the list of repairs that would make the
files agree with it; `repair` does them. `inspect` (for `sparrow doctor`) is the first half alone, for all logs.

What is looked at:

1. The names. A compaction that got as far as its `.swap` file is completed, one that did not is undone; temporary files go.
2. The checkpoint. Everything before its recovery point was on stable storage when it was written, indexes included,
   so nothing there is read; the segments' sizes and index files must be there. Behind it every batch is checked (length,
   magic, CRC, contiguous offsets) and the indexes go on from the state in the checkpoint.
3. At the first batch that is not whole the log ends: the rest of that file is cut off and later segments go. What was
   promised as durable cannot be there: a sync covers the segments in their order.
4. Without a checkpoint (the log never reached one: it never rolled, and was never compacted) or with a damaged one, every
   segment is checked from its beginning. With a damaged one holes between offsets are allowed in all but the last segment,
   because compaction may have made them; else a hole is damage.

5. Where a sync has failed, bytes may be in the page cache that the disk never got and that the kernel believes are there.
   They are written again, so that the next sync means what it says.

A repair is synced when it is done, so that a cut tail cannot come back after a second crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.base.errors import StorageFailed
from sparrow.storage import checkpoint as checkpoints
from sparrow.storage import index as indexes
from sparrow.storage import names, walk
from sparrow.storage.filesystem import read_file, replace_file, write_all
from sparrow.storage.index import ENTRY_BYTES, TIME_ENTRY_BYTES, SegmentIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.storage.checkpoint import Checkpoint, RecoveryPoint
    from sparrow.storage.filesystem import FileSystem


REWRITE_BYTES = 1 << 20


# ── what is found and what is done about it ──────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that is not as it should be, and what makes it right."""

    path: str
    problem: str

    @property
    def remedy(self) -> str:
        raise NotImplementedError

    def perform(self, fs: FileSystem) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


class Ignore(Repair):
    """Do not use the file. It stays until the next checkpoint replaces it: its presence says that compaction may have
    been here."""

    @property
    def remedy(self) -> str:
        return "it is not used and the next checkpoint replaces it"

    def perform(self, fs: FileSystem) -> None:
        pass


class Remove(Repair):
    """Remove the file."""

    @property
    def remedy(self) -> str:
        return "the file is removed"

    def perform(self, fs: FileSystem) -> None:
        fs.unlink(self.path)


@dataclass(frozen=True, slots=True)
class Rename(Repair):
    """Give the file another name."""

    target: str

    @property
    def remedy(self) -> str:
        return f"it becomes {self.target}"

    def perform(self, fs: FileSystem) -> None:
        # What was renamed or removed before must not be undone by a crash after this.
        fs.sync_dir(self.path.rpartition("/")[0])
        fs.rename(self.path, self.target)


@dataclass(frozen=True, slots=True)
class CutOff(Repair):
    """Keep the first `size` bytes."""

    size: int
    lost_bytes: int

    @property
    def remedy(self) -> str:
        return f"the last {self.lost_bytes} bytes are cut off, {self.size} stay"

    def perform(self, fs: FileSystem) -> None:
        fd = fs.open(self.path, write=True)
        try:
            fs.truncate(fd, self.size)
            fs.sync(fd)
        finally:
            fs.close(fd)


@dataclass(frozen=True, slots=True)
class WriteIndex(Repair):
    """Write the segment's two index files anew; `path` is the segment's stem."""

    index: SegmentIndex

    @property
    def remedy(self) -> str:
        return "the indexes are written anew from the batches"

    def perform(self, fs: FileSystem) -> None:
        # Whole or not at all: an index that ends early looks like one of few entries.
        replace_file(fs, self.path + names.INDEX, self.index.encode())
        replace_file(fs, self.path + names.TIME_INDEX, self.index.encode_times())


class Make(Repair):
    """Make the file, empty."""

    @property
    def remedy(self) -> str:
        return "it is made anew, empty"

    def perform(self, fs: FileSystem) -> None:
        fs.close(fs.open(self.path, write=True, create=True))


@dataclass(frozen=True, slots=True)
class WriteAgain(Repair):
    """Write the bytes from `start` to `end` over themselves; the next sync puts them on the disk."""

    start: int
    end: int

    @property
    def remedy(self) -> str:
        return f"the {self.end - self.start} bytes behind position {self.start} are written again"

    def perform(self, fs: FileSystem) -> None:
        fd = fs.open(self.path, write=True)
        try:
            position = self.start
            while position < self.end:
                data = fs.read_at(fd, min(REWRITE_BYTES, self.end - position), position)
                if not data:
                    break
                write_all(fs, fd, [data], position)
                position += len(data)
        finally:
            fs.close(fd)


# ── what the log is ──────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class RecoveredSegment:
    """One segment as recovery leaves it."""

    base_offset: int
    size: int
    max_timestamp: int = -1
    first_timestamp: int = -1
    created_ms: int = -1
    synced: int = 0
    """Bytes known to be on stable storage."""
    index: SegmentIndex | None = None
    """None: in its files, complete."""
    written: int = 0
    written_times: int = 0


@dataclass(slots=True)
class Recovered:
    """A log, and what has to be done to its files before it is one."""

    directory: str
    segments: list[RecoveredSegment] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    """None: missing or damaged."""
    point: RecoveryPoint | None = None
    """The checkpoint's, where it fits to the files."""
    start_offset: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    scanned_bytes: int = 0
    repairs: list[Repair] = field(default_factory=list)


def recover(fs: FileSystem, directory: str, interval_bytes: int) -> Recovered:
    """Examine and repair one log. Blocking.

    Raises:
        StorageFailed: the device cannot be read or written.
        NewerFormat: a later Sparrow wrote the checkpoint.
    """
    try:
        found = examine(fs, directory, interval_bytes)
        for each in found.repairs:
            each.perform(fs)
        if found.repairs:
            fs.sync_dir(directory)
    except OSError as error:
        raise StorageFailed(
            f"recovering the log in {directory} failed: {error.strerror or error}. Check the device and start again"
        ) from error
    return found


def inspect(
    fs: FileSystem, data_directory: str, interval_bytes: int = indexes.DEFAULT_INTERVAL_BYTES
) -> list[Repair]:
    """Everything that opening the logs of a data directory would repair. Changes nothing, takes no lock. Blocking.

    Raises:
        NewerFormat: a later Sparrow wrote a checkpoint.
        OSError: a file cannot be read.
    """
    logs = f"{data_directory}/{names.LOGS_DIRECTORY}"
    found: list[Repair] = []
    for name in fs.listdir(logs):
        if names.maybe_log_name(name) is not None:
            found += examine(fs, f"{logs}/{name}", interval_bytes).repairs
    return found


def examine(fs: FileSystem, directory: str, interval_bytes: int) -> Recovered:
    """What the log in `directory` is. Changes nothing. Blocking.

    Raises:
        OSError: a file cannot be read.
        NewerFormat: a later Sparrow wrote the checkpoint.
    """
    repairs, files = tidy(directory, fs.listdir(directory))
    found = Recovered(directory, repairs=repairs)
    _Examination(fs, found, files, interval_bytes).run()
    return found


def tidy(directory: str, present: Sequence[str]) -> tuple[list[Repair], dict[str, str]]:
    """What an interrupted compaction and interrupted small writes left behind. Pure.

    Returns:
        The repairs, and the log's files once they are done: final name → path of the bytes now.
    """
    files = {name: f"{directory}/{name}" for name in present}
    repairs: list[Repair] = []
    for name in [name for name in present if names.maybe_swap_range(name) is not None]:
        repairs += _complete_swap(files, name)
    for name in [name for name in files if name.endswith((names.CLEANED, names.TEMPORARY))]:
        repairs.append(Remove(files.pop(name), "left over by an interrupted compaction or write"))
    return repairs, files


def _complete_swap(files: dict[str, str], name: str) -> list[Repair]:
    base, end = names.maybe_swap_range(name) or (0, 0)
    repairs: list[Repair] = []
    replaced = [other for other in files if base < _base_of(other) < end]
    repairs += [Remove(files.pop(other), f"compacted into {name}") for other in replaced]
    stem = names.segment_stem(base)
    for suffix in (names.INDEX, names.TIME_INDEX):
        if (cleaned := files.pop(stem + suffix + names.CLEANED, None)) is not None:
            repairs.append(Rename(cleaned, "index of a compacted segment", _sibling(cleaned, stem + suffix)))
            files[stem + suffix] = cleaned
    swap = files.pop(name)
    repairs.append(
        Rename(swap, "compacted segment that was not yet in its place", _sibling(swap, stem + names.LOG))
    )
    files[stem + names.LOG] = swap
    return repairs


def _base_of(name: str) -> int:
    """The base offset in the name of any of a segment's files, -1 for others."""
    for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
        if (base := names.maybe_segment_base(name, suffix)) is not None:
            return base
    return -1


def _sibling(path: str, name: str) -> str:
    return f"{path.rpartition('/')[0]}/{name}"


class _Examination:
    """One pass over one directory; collects into `found`."""

    def __init__(self, fs: FileSystem, found: Recovered, files: dict[str, str], interval_bytes: int) -> None:
        self._fs = fs
        self._found = found
        self._files = files
        self._interval_bytes = interval_bytes
        bases = (names.maybe_segment_base(name) for name in files)
        self._bases = sorted(base for base in bases if base is not None)
        self._holes_allowed = False

    def run(self) -> None:
        found = self._found
        found.point = point = self._read_checkpoint()
        bases = self._bases
        if point is None:
            start, next_offset = 0, bases[0] if bases else self._given_offsets()
        else:
            start, next_offset = self._first_unsure(point), point.end_offset
        for base in bases[:start]:
            found.segments.append(self._closed(base))
        found.durable_offset = next_offset
        if point is not None and bases and start == len(bases):
            self._make_active(point)
        for number in range(start, len(bases)):
            is_point = point is not None and bases[number] == point.segment
            if not is_point and self._is_cut(number, next_offset):
                break
            next_offset = self._unsure(number, point, next_offset)
        self._remove_orphans()
        self._write_again()
        found.end_offset = next_offset
        first = found.segments[0].base_offset if found.segments else next_offset
        log_start = found.checkpoint.log_start if found.checkpoint else 0
        found.start_offset = min(max(log_start, first), next_offset)

    # ── the checkpoint ──

    def _read_checkpoint(self) -> RecoveryPoint | None:
        path = self._files.get(names.CHECKPOINT_FILE)
        data = read_file(self._fs, path) if path else None
        if path is None or data is None:
            return None
        self._found.checkpoint = checkpoint = checkpoints.decode(data, path)
        if checkpoint is None:
            self._holes_allowed = True
            self._found.repairs.append(Ignore(path, "the checkpoint is damaged, so every segment is checked"))
            return None
        if self._fits(checkpoint.point):
            return checkpoint.point
        self._holes_allowed = True
        problem = "the checkpoint speaks of bytes that are not there, so every segment is checked"
        self._found.repairs.append(Ignore(path, problem))
        return None

    def _fits(self, point: RecoveryPoint) -> bool:
        if point.segment not in self._bases:
            # A roll may be known to the checkpoint before the new file's name is on stable storage.
            return point.position == 0 and (not self._bases or self._bases[-1] < point.segment)
        return (self._size(point.segment) or 0) >= point.position

    def _first_unsure(self, point: RecoveryPoint) -> int:
        """The number of the first segment with bytes behind the recovery point."""
        return sum(base < point.segment for base in self._bases)

    def _given_offsets(self) -> int:
        """Where to go on when all segments are gone: no offset is given twice."""
        checkpoint = self._found.checkpoint
        return max(checkpoint.point.end_offset, checkpoint.log_start) if checkpoint else 0

    def _make_active(self, point: RecoveryPoint) -> None:
        """The checkpoint knows of a roll, but the new segment's name was lost. Closed segments take no appends."""
        path = self._final_path(point.segment)
        self._found.repairs.append(Make(path, "the last segment's file is missing"))
        self._found.segments.append(
            RecoveredSegment(point.segment, 0, index=SegmentIndex(point.segment, self._interval_bytes))
        )

    # ── segments before the recovery point ──

    def _closed(self, base: int) -> RecoveredSegment:
        """Nothing of it is read but the last entry of its time index."""
        size = self._size(base) or 0
        max_timestamp = self._last_time(base)
        segment = RecoveredSegment(base, size, max_timestamp=max_timestamp, synced=size)
        if not self._has_indexes(base):
            segment.index = self._scan_index(base, size)
            segment.max_timestamp = segment.index.max_timestamp
            self._found.repairs.append(
                WriteIndex(
                    self._final_stem(base),
                    "an index file is missing or has an impossible size",
                    segment.index,
                )
            )
            segment.index = None
        return segment

    def _has_indexes(self, base: int) -> bool:
        stem = names.segment_stem(base)
        index, times = self._file_size(stem + names.INDEX), self._file_size(stem + names.TIME_INDEX)
        return (
            index is not None
            and times is not None
            and index % ENTRY_BYTES == 0
            and times % TIME_ENTRY_BYTES == 0
        )

    def _last_time(self, base: int) -> int:
        path = self._files.get(names.segment_stem(base) + names.TIME_INDEX)
        size = self._fs.size(path) if path else None
        if path is None or not size or size % TIME_ENTRY_BYTES:
            return -1
        fd = self._fs.open(path)
        try:
            return indexes.last_time(self._fs.read_at(fd, TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES))
        finally:
            self._fs.close(fd)

    def _scan_index(self, base: int, size: int) -> SegmentIndex:
        index = SegmentIndex(base, self._interval_bytes)
        self._validate(base, index, start=0, size=size, next_offset=base, holes_until=1 << 62)
        index.seal()
        return index

    # ── segments behind the recovery point ──

    def _is_cut(self, number: int, next_offset: int) -> bool:
        """Whether the log ended before this segment; it and those after it go."""
        base = self._bases[number]
        cut = any(isinstance(each, CutOff) for each in self._found.repairs)
        gap = base != next_offset and not (self._holes_allowed and base > next_offset)
        if not (cut or gap):
            return False
        for late in self._bases[number:]:
            problem = (
                "it comes after the place where the log is damaged"
                if cut
                else "offsets before it are missing"
            )
            self._found.repairs.append(Remove(self._path(late), problem))
            del self._files[names.segment_stem(late) + names.LOG]
        return True

    def _unsure(self, number: int, point: RecoveryPoint | None, next_offset: int) -> int:
        """Check a segment's bytes that may not have reached the disk; returns where its offsets end."""
        base, found = self._bases[number], self._found
        is_last = number + 1 == len(self._bases)
        holes_until = self._bases[number + 1] if self._holes_allowed and not is_last else -1
        if point is not None and point.segment == base:
            # A compacted segment may have become the active one again, by a truncation.
            holes_until = max(holes_until, point.end_offset)
        size = self._size(base) or 0
        segment = RecoveredSegment(base, size)
        start, index, next_offset = 0, SegmentIndex(base, self._interval_bytes), max(next_offset, base)
        if point is not None and point.segment == base:
            segment.first_timestamp, segment.created_ms = point.first_timestamp, point.created_ms
            segment.synced = point.position
            restored = self._restored(point)
            if restored is not None:
                index, start = restored, point.position
                segment.written, segment.written_times = point.index.entries, point.index.time_entries
            else:
                next_offset = base
        checked = self._validate(
            base, index, start=start, size=size, next_offset=next_offset, holes_until=holes_until
        )
        if start == 0:
            segment.first_timestamp = checked.first_timestamp
        if checked.damage:
            lost = size - checked.position
            problem = f"at position {checked.position}: {checked.damage}"
            found.repairs.append(CutOff(self._final_path(base), problem, checked.position, lost))
        segment.size, segment.index, segment.max_timestamp = checked.position, index, index.max_timestamp
        segment.synced = min(segment.synced, segment.size)
        if not is_last:
            index.seal()
        found.segments.append(segment)
        return checked.next_offset

    def _restored(self, point: RecoveryPoint) -> SegmentIndex | None:
        """The index of the recovery point's segment as it was there; None when its files do not have it."""
        stem = names.segment_stem(point.segment)
        data, times = self._read(stem + names.INDEX), self._read(stem + names.TIME_INDEX)
        state = point.index
        index = indexes.decode(
            point.segment,
            self._interval_bytes,
            data[: state.entries * ENTRY_BYTES],
            times[: state.time_entries * TIME_ENTRY_BYTES],
            max(point.position, 1),
        )
        if index is None or (len(index.offsets), len(index.times)) != (state.entries, state.time_entries):
            return None
        index.restore(state)
        return index

    def _validate(
        self, base: int, index: SegmentIndex, *, start: int, size: int, next_offset: int, holes_until: int
    ) -> walk.Validated:
        if start == size:
            return walk.Validated(size, next_offset, -1, "")
        self._found.scanned_bytes += size - start
        fd = self._fs.open(self._path(base))
        try:
            return walk.validate(
                self._fs,
                fd,
                start=start,
                size=size,
                next_offset=next_offset,
                add=index.add,
                max_base_offset=holes_until,
            )
        finally:
            self._fs.close(fd)

    # ── after a failed sync ──

    def _write_again(self) -> None:
        found = self._found
        note = self._files.get(names.FAILED_SYNC_FILE)
        if note is None:
            return
        unsure = [(self._final_path(each.base_offset), each.synced, each.size) for each in found.segments]
        if (metadata := self._file_size(names.METADATA_FILE)) is not None:
            unsure.append((self._files[names.METADATA_FILE], 0, metadata))
        found.repairs += [
            WriteAgain(path, "a sync failed", start, end) for path, start, end in unsure if start < end
        ]
        found.repairs.append(Remove(note, "what a failed sync lost is written again"))

    # ── files ──

    def _remove_orphans(self) -> None:
        """Index files whose segment is gone."""
        kept = {segment.base_offset for segment in self._found.segments}
        for name, path in self._files.items():
            if (base := _base_of(name)) >= 0 and base not in kept:
                self._found.repairs.append(Remove(path, "index of a segment that is not there"))

    def _path(self, base: int) -> str:
        return self._files[names.segment_stem(base) + names.LOG]

    def _final_stem(self, base: int) -> str:
        return f"{self._found.directory}/{names.segment_stem(base)}"

    def _final_path(self, base: int) -> str:
        return self._final_stem(base) + names.LOG

    def _size(self, base: int) -> int | None:
        return self._fs.size(self._path(base))

    def _file_size(self, name: str) -> int | None:
        path = self._files.get(name)
        return self._fs.size(path) if path else None

    def _read(self, name: str) -> bytes:
        path = self._files.get(name)
        return (read_file(self._fs, path) if path else None) or b""
