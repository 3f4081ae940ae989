"""Recovery of a log's directory after a crash: examine, decide, repair.

`examine` reads a directory and changes nothing. It returns the state of the log and the list of
repairs that would make the files agree with it; `repair` performs them. `inspect` (for `sparrow
doctor`) is the first half alone, for all logs.

The examination in order:

1. The names. A compaction that got as far as its `.swap` file is completed, an earlier one is
   rolled back; temporary files are removed.
2. The checkpoint. Everything before its recovery point was on stable storage when it was written,
   indexes included, so nothing there is read; the segments' sizes and index files must be there.
   Behind it every batch is checked (length, magic, CRC, contiguous offsets) and the indexes
   continue from the state in the checkpoint.
3. The log ends at the first batch that is not whole: the rest of that file is cut off and later
   segments are removed. Nothing that was promised as durable is lost by that: a sync covers the
   segments in their order.
4. Without a checkpoint (the log never rolled and was never compacted) or with a damaged one, every
   segment is checked from its beginning. With a damaged one, holes between offsets are allowed in
   all but the last segment, because compaction may have made them; otherwise a hole is damage.

5. Bytes that the checkpoint vouches for and that are missing are damage, not a torn tail: a segment
   that is missing or shorter than it was, or the whole directory. Then nothing is repaired and the
   log is not opened; `acceptance` continues without what is lost. Where the checkpoint itself is
   missing or damaged, its second copy counts (see `recovery_points`).

6. After a failed sync, bytes may be in the page cache that the disk never got and that the kernel
   believes to be there. They are written again, so that the next sync is meaningful.

A repair is synced when it is done, so that a cut tail cannot come back after a second crash.
"""

from __future__ import annotations

import dataclasses
import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.base.errors import StorageFailed
from sparrow.storage import checkpoint as checkpoints
from sparrow.storage import index as indexes
from sparrow.storage import names, walk
from sparrow.storage.checkpoint import RecoveryPoint, SavedSegment
from sparrow.storage.damage import Damage
from sparrow.storage.filesystem import naming, read_file, replace_file, write_all
from sparrow.storage.index import ENTRY_BYTES, TIME_ENTRY_BYTES, SegmentIndex
from sparrow.storage.recovery_points import read_points
from sparrow.storage.scrub import ScrubExtent, find_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparrow.storage.checkpoint import Checkpoint, Gap
    from sparrow.storage.filesystem import FileSystem
    from sparrow.storage.store import LogId


REWRITE_BYTES = 1 << 20
_UNREACHABLE = frozenset(
    {errno.EIO, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
    | {errno.EBADMSG, errno.EUCLEAN}
)
"""Errors that concern one place permanently; a full disk or a lack of descriptors fails everywhere,
for a while.
"""


# ── what is found and what is done about it ──────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Repair:
    """A fault of the files and its remedy."""

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
    """Do not use the file. It stays until the next checkpoint replaces it: its presence means that
    compaction may have run here.
    """

    @property
    def remedy(self) -> str:
        return "it is not used and the next checkpoint replaces it"

    def perform(self, fs: FileSystem) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RecoveryRecord(Repair):
    """Write a new checkpoint before the files change, so that a second crash does not make the
    change look like damage.
    """

    checkpoint: Checkpoint

    @property
    def remedy(self) -> str:
        return "it is rewritten"

    def perform(self, fs: FileSystem) -> None:
        replace_file(fs, self.path, self.checkpoint.encode())


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
        # A crash after this must not revert earlier renames and removals.
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
    """Write new index files of the segment; `path` is the segment's stem."""

    index: SegmentIndex

    @property
    def remedy(self) -> str:
        return "the indexes are rebuilt from the batches"

    def perform(self, fs: FileSystem) -> None:
        # Whole or not at all: an index that ends early looks like one of few entries.
        replace_file(fs, self.path + names.INDEX, self.index.encode())
        replace_file(fs, self.path + names.TIME_INDEX, self.index.encode_times())


class Make(Repair):
    """Create the file, empty."""

    @property
    def remedy(self) -> str:
        return "it is created again, empty"

    def perform(self, fs: FileSystem) -> None:
        fs.close(fs.open(self.path, write=True, create=True))


@dataclass(frozen=True, slots=True)
class WriteAgain(Repair):
    """Write the bytes from `start` to `end` over themselves; the next sync puts them on the
    disk.
    """

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


def _with_dropped(checkpoint: Checkpoint, base: int) -> Checkpoint:
    """Return the checkpoint after retention has dropped everything up to the segment that begins at
    `base`.
    """
    following = [each.base_offset for each in checkpoint.segments or () if each.base_offset > base]
    start = min([*following, checkpoint.point.segment])
    kept = tuple(each for each in checkpoint.segments or () if each.base_offset > base)
    return dataclasses.replace(
        checkpoint,
        log_start=max(checkpoint.log_start, start),
        segments=None if checkpoint.segments is None else kept,
    )


def find_damages(log: str, directory: str, checkpoint: Checkpoint, sizes: Mapping[int, int]) -> list[Damage]:
    """Return the bytes that the checkpoint covers and the files (base offset → bytes) lack, oldest
    first. Pure.

    In a segment that is too short the first lost offset is its base offset.
    """
    point, start = checkpoint.point, checkpoint.log_start
    expected = list(checkpoint.segments or ())
    if checkpoint.segments is None and point.position:
        expected = [SavedSegment(point.segment, point.position)]
    found: list[Damage] = []
    if not sizes and point.end_offset > start and (expected or checkpoint.segments is None):
        return [Damage(log, directory, "all segments are missing", start, point.end_offset)]
    for number, each in enumerate(expected):
        is_last = each.base_offset == point.segment
        following = expected[number + 1].base_offset if number + 1 < len(expected) else point.segment
        end = point.end_offset if is_last else _without_gap(following, checkpoint.gaps)
        size = sizes.get(each.base_offset)
        if end <= start or (size is not None and size >= each.size):
            continue
        path = f"{directory}/{names.segment_stem(each.base_offset)}{names.LOG}"
        problem = (
            "the segment is missing"
            if size is None
            else f"the segment has {size} bytes, {each.size} were on stable storage"
        )
        found.append(Damage(log, path, problem, max(each.base_offset, start), end))
    return found


def _without_gap(offset: int, gaps: Sequence[Gap]) -> int:
    """Return the end of the offsets before `offset` that are not in a gap."""
    return next((gap.first for gap in gaps if gap.end == offset), offset)


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
    """None: complete, in its files."""
    written: int = 0
    written_times: int = 0
    crcs: tuple[int, int] | None = (0, 0)
    is_dense: bool = True
    """True if no offset is missing between its batches."""


@dataclass(slots=True)
class Recovered:
    """An examined log, and the repairs that its files need."""

    directory: str
    segments: list[RecoveredSegment] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    """None: missing or damaged."""
    point: RecoveryPoint | None = None
    """The checkpoint's point, if it fits the files."""
    start_offset: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    scanned_bytes: int = 0
    repairs: list[Repair] = field(default_factory=list)
    log: str = ""
    log_id: LogId | None = None
    """The log's id, if the second copy knows it."""
    damages: list[Damage] = field(default_factory=list)
    """The parts that were on stable storage and are missing. If there are any, only the checkpoint
    is valid here besides.
    """
    is_unreachable: bool = False
    """True if the system refuses to read a file; `damages` names it, and there is nothing to
    accept.
    """
    paths: dict[int, str] = field(default_factory=dict)
    """Path of each segment's bytes until the repairs are done, by base offset."""
    headers_from: int = 0
    """The offset from which `examine_all` has searched for unreadable headers."""
    unreadable: list[Damage] = field(default_factory=list)
    """Unreadable headers that a start would have to read; `examine_all` finds them."""

    @property
    def state_offset(self) -> int:
        """The offset from which the broker folds headers when it opens the log."""
        saved = self.checkpoint.state_offset if self.checkpoint is not None else 0
        return max(self.start_offset, saved if saved <= self.end_offset else 0)

    def extents(self) -> list[ScrubExtent]:
        """The segments to be checked, oldest first."""
        found: list[ScrubExtent] = []
        for number, each in enumerate(self.segments):
            is_last = number + 1 == len(self.segments)
            end = self.end_offset if is_last else self.segments[number + 1].base_offset
            path = self.paths.get(each.base_offset)
            if path is not None:  # else it is an empty one that is yet to be created
                found.append(ScrubExtent(path, each.base_offset, end, each.size, has_holes=not each.is_dense))
        return found


def recover(
    fs: FileSystem,
    directory: str,
    interval_bytes: int,
    *,
    log: str = "",
    second: Checkpoint | None = None,
    keep: Callable[[Checkpoint], None] = lambda _: None,
) -> Recovered:
    """Examine and repair one log; leave a damaged one as it is. Blocking.

    Args:
        log: the log's name in messages.
        second: the second copy of its checkpoint.
        keep: takes the new second copy before the repairs are done.

    Raises:
        StorageFailed: the device cannot be read or written.
        NewerFormat: a later Sparrow wrote the checkpoint.
    """
    try:
        found = examine(fs, directory, interval_bytes, log=log, second=second)
        if found.damages:
            return found
        for each in found.repairs:
            if isinstance(each, RecoveryRecord):
                keep(each.checkpoint)
            each.perform(fs)
        if found.repairs:
            fs.sync_dir(directory)
    except OSError as error:
        raise StorageFailed(
            f"recovering the log in {directory} failed: {error.strerror or error}. Check the "
            "device and start again"
        ) from error
    return found


def maybe_unreachable(error: OSError, directory: str, log: str, second: Checkpoint | None) -> Damage | None:
    """Return the damage of a log with a file that the system refuses to read; None if the refusal
    may be temporary.
    """
    if error.errno not in _UNREACHABLE:
        return None
    first, end = (second.log_start, second.point.end_offset) if second is not None else (0, -1)
    path = error.filename if isinstance(error.filename, str) else directory
    end = end if end > first else -1
    return Damage(log, path, error.strerror or str(error), first, end, is_there=True)


def inspect(
    fs: FileSystem, data_directory: str, interval_bytes: int = indexes.DEFAULT_INTERVAL_BYTES
) -> list[Repair]:
    """Return everything that opening the logs of a data directory would repair. Changes nothing,
    takes no lock. Blocking.

    Raises:
        NewerFormat: a later Sparrow wrote a checkpoint.
        OSError: a file cannot be read.
    """
    found = examine_all(fs, data_directory, interval_bytes)
    return [repair for each in found if not each.damages for repair in each.repairs]


def examine_all(
    fs: FileSystem,
    data_directory: str,
    interval_bytes: int = indexes.DEFAULT_INTERVAL_BYTES,
    *,
    all_headers: bool = False,
) -> list[Recovered]:
    """Examine every log of a data directory, by name, including those whose directory is gone.
    Raises as `inspect`.

    Args:
        all_headers: search for unreadable headers everywhere, not only where a start reads them.
    """
    logs = f"{data_directory}/{names.LOGS_DIRECTORY}"
    points, _ = read_points(fs, f"{logs}/{names.POINTS_FILE}")
    by_name: dict[str, list[LogId]] = {}
    for log_id in points:
        by_name.setdefault(str(log_id), []).append(log_id)
    present = {name for name in fs.listdir(logs) if names.maybe_log_name(name) is not None}
    found: list[Recovered] = []
    for name in sorted(present | by_name.keys()):
        owner = _owner_of(fs, f"{logs}/{name}", by_name.get(name, []))
        second = points.get(owner) if owner is not None else None
        each = _examine_with_headers(
            fs, f"{logs}/{name}", interval_bytes, name, second, all_headers=all_headers
        )
        each.log_id = owner
        found.append(each)
    return found


def _examine_with_headers(
    fs: FileSystem,
    directory: str,
    interval_bytes: int,
    log: str,
    second: Checkpoint | None,
    *,
    all_headers: bool,
) -> Recovered:
    try:
        found = examine(fs, directory, interval_bytes, log=log, second=second)
        if not found.damages and found.checkpoint is not None:
            found.headers_from = found.start_offset if all_headers else found.state_offset
            found.unreadable = find_unreadable(fs, log, found.extents(), found.headers_from)
    except OSError as error:
        damage = maybe_unreachable(error, directory, log, second)
        if damage is None:
            raise
        return Recovered(directory, log=log, damages=[damage], is_unreachable=True)
    return found


def _owner_of(fs: FileSystem, directory: str, candidates: list[LogId]) -> LogId | None:
    """Return which of the logs of one name the directory belongs to; the last one if that cannot be
    determined.
    """
    if not candidates:
        return None
    if len(candidates) == 1:
        return candidates[0]
    topic_id = names.maybe_topic_id(read_file(fs, f"{directory}/{names.METADATA_FILE}") or b"")
    return next((each for each in candidates if each.topic_id == topic_id), candidates[-1])


def examine(
    fs: FileSystem,
    directory: str,
    interval_bytes: int,
    *,
    log: str = "",
    second: Checkpoint | None = None,
) -> Recovered:
    """Return the state of the log in `directory`. Changes nothing. Blocking; arguments as
    `recover`.

    Raises:
        OSError: a file cannot be read.
        NewerFormat: a later Sparrow wrote the checkpoint.
    """
    present = fs.listdir(directory)
    repairs, files = tidy(directory, present)
    found = Recovered(directory, log=log or directory.rpartition("/")[2], repairs=repairs)
    _Examination(fs, found, files, interval_bytes, present, second).run()
    return found


def tidy(directory: str, present: Sequence[str]) -> tuple[list[Repair], dict[str, str]]:
    """Return how to clean up after an interrupted compaction and interrupted small writes. Pure.

    Returns:
        The repairs, and the log's files once they are done: final name → present path of the bytes.
    """
    files = {name: f"{directory}/{name}" for name in present}
    repairs: list[Repair] = []
    for name in [name for name in present if names.maybe_swap_range(name) is not None]:
        repairs += _complete_swap(files, name)
    leftovers = (names.CLEANED, names.TEMPORARY, names.DROPPED)
    for name in [name for name in files if name.endswith(leftovers)]:
        repairs.append(Remove(files.pop(name), "left over by an interrupted compaction, retention or write"))
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
    """Return the base offset in the name of any of a segment's files, -1 for others."""
    for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
        if (base := names.maybe_segment_base(name, suffix)) is not None:
            return base
    return -1


def _sibling(path: str, name: str) -> str:
    return f"{path.rpartition('/')[0]}/{name}"


def whole_until(fs: FileSystem, path: str, base_offset: int) -> walk.Validated:
    """Return how far a segment's batches are whole; the segment may be compacted. Blocking. Raises
    OSError.
    """
    fd = fs.open(path)
    try:
        with naming(path):
            return walk.validate(
                fs,
                fd,
                start=0,
                size=fs.size(path) or 0,
                next_offset=base_offset,
                add=lambda *_: None,
                max_base_offset=1 << 62,
            )
    finally:
        fs.close(fd)


class _Examination:
    """One pass over one directory; collects into `found`."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        fs: FileSystem,
        found: Recovered,
        files: dict[str, str],
        interval_bytes: int,
        present: Sequence[str],
        second: Checkpoint | None,
    ) -> None:
        self._fs = fs
        self._present = present
        self._second = second
        self._found = found
        self._files = files
        self._interval_bytes = interval_bytes
        bases = (names.maybe_segment_base(name) for name in files)
        self._bases = sorted(base for base in bases if base is not None)
        self._holes_allowed = False
        self._saved: dict[int, SavedSegment] = {}

    def run(self) -> None:
        found = self._found
        found.point = point = self._read_checkpoint()
        if found.damages:
            return
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
        found.paths = {each: self._path(each) for each in self._bases if self._is_there(each)}
        self._remove_orphans()
        self._write_again()
        found.end_offset = next_offset
        first = found.segments[0].base_offset if found.segments else next_offset
        log_start = found.checkpoint.log_start if found.checkpoint else 0
        found.start_offset = min(max(log_start, first), next_offset)

    # ── the checkpoint ──

    def _read_checkpoint(self) -> RecoveryPoint | None:
        checkpoint = self._first_or_second_copy()
        if checkpoint is None:
            return None
        checkpoint = self._with_unfinished_work(checkpoint)
        self._found.checkpoint = checkpoint
        self._saved = {each.base_offset: each for each in checkpoint.segments or ()}
        self._found.damages = self._missing(checkpoint)
        for number, damage in enumerate(self._found.damages):
            if damage.path.endswith(names.LOG):
                self._found.damages[number] = self._measured(damage, checkpoint)
        return checkpoint.point

    def _first_or_second_copy(self) -> Checkpoint | None:
        path = self._files.get(names.CHECKPOINT_FILE)
        data = read_file(self._fs, path) if path else None
        checkpoint = checkpoints.decode(data, path) if path and data is not None else None
        if checkpoint is not None:
            return self._second if self._is_older(checkpoint) else checkpoint
        if self._second is not None:
            where = path or f"{self._found.directory}/{names.CHECKPOINT_FILE}"
            what = "the checkpoint is damaged" if path else "the checkpoint is missing"
            self._found.repairs.append(
                RecoveryRecord(where, f"{what}; {names.POINTS_FILE} has a copy of it", self._second)
            )
            return self._second
        if path is not None:
            self._holes_allowed = True
            self._found.repairs.append(Ignore(path, "the checkpoint is damaged, so every segment is checked"))
        return None

    def _is_older(self, checkpoint: Checkpoint) -> bool:
        """Return True if the directory lacks what the second copy vouches for: it was restored from
        a backup, for example.

        A crash between the two copies also leaves the second one ahead, but then the files have
        what it describes.
        """
        second, first = self._second, checkpoint.point
        if second is None or (second.point.segment, second.point.position) <= (first.segment, first.position):
            return False
        return bool(self._missing(self._finished(second)))

    def _missing(self, checkpoint: Checkpoint) -> list[Damage]:
        sizes = {base: self._size(base) or 0 for base in self._bases}
        return find_damages(self._found.log, self._found.directory, checkpoint, sizes)

    def _with_unfinished_work(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint after an interrupted compaction, or retention on a full disk, is
        finished.
        """
        changed = self._finished(checkpoint)
        if changed != checkpoint:
            path = f"{self._found.directory}/{names.CHECKPOINT_FILE}"
            self._found.repairs.insert(
                0,
                RecoveryRecord(
                    path, "it does not know of a compaction or retention that was interrupted", changed
                ),
            )
        return changed

    def _finished(self, checkpoint: Checkpoint) -> Checkpoint:
        swaps = [span for name in self._present if (span := names.maybe_swap_range(name)) is not None]
        dropped = [
            base
            for name in self._present
            if name.endswith(names.LOG + names.DROPPED)
            and (base := names.maybe_segment_base(name.removesuffix(names.DROPPED))) is not None
        ]
        changed = checkpoint
        for base, end in swaps:
            changed = self._with_swap(changed, base, end)
        return _with_dropped(changed, max(dropped)) if dropped else changed

    def _with_swap(self, checkpoint: Checkpoint, base: int, end: int) -> Checkpoint:
        if checkpoint.segments is None:
            return checkpoint
        size = self._size(base) or 0
        kept = [each for each in checkpoint.segments if not base <= each.base_offset < end]
        swapped = SavedSegment(base, size, self._last_time(base), is_dense=False)
        known = next((each for each in checkpoint.segments if each.base_offset == base), swapped)
        if known.size == size and not known.is_dense:
            swapped = known
        point = checkpoint.point
        # it was rewritten without its unreadable batches, and is closed
        if base <= point.segment < end:
            point = RecoveryPoint(end, 0, end)
        return dataclasses.replace(checkpoint, point=point, segments=tuple(sorted([*kept, swapped])))

    def _measured(self, damage: Damage, checkpoint: Checkpoint) -> Damage:
        """Find the end of the whole batches in a segment that is too short."""
        base = names.maybe_segment_base(damage.path.rpartition("/")[2])
        if base is None or base not in self._bases:
            return damage
        whole = whole_until(self._fs, self._path(base), base)
        lost_from = max(whole.next_offset, checkpoint.log_start)
        return dataclasses.replace(damage, first=min(lost_from, damage.end - 1))

    def _first_unsure(self, point: RecoveryPoint) -> int:
        """Return the number of the first segment with bytes behind the recovery point."""
        return sum(base < point.segment for base in self._bases)

    def _given_offsets(self) -> int:
        """Return the next offset when all segments are gone: no offset is given twice."""
        checkpoint = self._found.checkpoint
        return max(checkpoint.point.end_offset, checkpoint.log_start) if checkpoint else 0

    def _make_active(self, point: RecoveryPoint) -> None:
        """Add the new segment of a roll that the checkpoint knows and whose file name was lost.
        Closed segments take no appends.
        """
        path = self._final_path(point.segment)
        self._found.repairs.append(Make(path, "the last segment's file is missing"))
        self._found.segments.append(
            RecoveredSegment(point.segment, 0, index=SegmentIndex(point.segment, self._interval_bytes))
        )

    # ── segments before the recovery point ──

    def _closed(self, base: int) -> RecoveredSegment:
        """Read nothing of a closed segment but the last entry of its time index."""
        saved = self._saved.get(base)
        if saved is None:
            size = self._size(base) or 0
            max_timestamp, crcs, is_dense = self._last_time(base), None, False
        else:
            size, max_timestamp, crcs, is_dense = (
                saved.size,
                saved.max_timestamp,
                saved.crcs,
                saved.is_dense,
            )
        segment = RecoveredSegment(base, size, max_timestamp=max_timestamp, synced=size, crcs=crcs)
        segment.is_dense = is_dense
        if not self._has_indexes(base):
            segment.index = self._scan_index(base, size)
            segment.max_timestamp = segment.index.max_timestamp
            segment.crcs = segment.index.crcs(len(segment.index.offsets), len(segment.index.times))
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
        """Return True if the log ended before this segment; then it and all later ones are
        removed.
        """
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
        """Check a segment's bytes that may not have reached the disk. Return the end of its
        offsets.
        """
        base, found = self._bases[number], self._found
        is_last = number + 1 == len(self._bases)
        holes_until = self._bases[number + 1] if self._holes_allowed and not is_last else -1
        size = self._size(base) or 0
        segment = RecoveredSegment(base, size)
        saved = self._saved.get(base)
        segment.is_dense = saved.is_dense if saved is not None else not self._holes_allowed
        start, index, next_offset = 0, SegmentIndex(base, self._interval_bytes), max(next_offset, base)
        if point is not None and point.segment == base:
            segment.first_timestamp, segment.created_ms = point.first_timestamp, point.created_ms
            segment.synced = point.position
            restored = self._restored(point)
            if restored is not None:
                index, start = restored, point.position
                segment.written, segment.written_times = point.index.entries, point.index.time_entries
                segment.crcs = index.crcs(segment.written, segment.written_times)
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
        """Return the index of the recovery point's segment as it was at the point; None if its
        files lack it.
        """
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
        saved = self._saved.get(point.segment)
        crcs = saved.crcs if saved is not None else None
        if crcs is not None and crcs != index.crcs(state.entries, state.time_entries):
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
            with naming(self._path(base)):
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
        """Remove index files whose segment is gone."""
        kept = {segment.base_offset for segment in self._found.segments}
        for name, path in self._files.items():
            if (base := _base_of(name)) >= 0 and base not in kept:
                self._found.repairs.append(Remove(path, "index of a segment that is not there"))

    def _path(self, base: int) -> str:
        return self._files[names.segment_stem(base) + names.LOG]

    def _is_there(self, base: int) -> bool:
        return names.segment_stem(base) + names.LOG in self._files

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
