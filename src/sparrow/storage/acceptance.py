"""Continuing without lost records: what `sparrow doctor --accept-loss` does to a log. Blocking; no
broker may run.

Whole batches stay where they are. The lost offsets become gaps, which the checkpoint keeps: they
are never given out again, and readers skip them. A log that lost its end continues at the recovery
point's end offset, in a new segment.

Order: first the files that are cut, then the checkpoint and its second copy. A crash in between
leaves a log that is damaged as before, and the next acceptance finishes it.

A segment with unreadable headers is rewritten without them. The new file replaces the old one as a
compacted segment does: from its `.swap` file on, recovery finishes the work. The lost offsets are
in the gaps of the checkpoint, too, unless a crash comes just before those are written: then the
loss looks like records that compaction removed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sparrow.storage import names
from sparrow.storage.checkpoint import Checkpoint, Gap, RecoveryPoint, SavedSegment
from sparrow.storage.filesystem import replace_file, write_all
from sparrow.storage.index import DEFAULT_INTERVAL_BYTES
from sparrow.storage.recovery import recover, whole_until
from sparrow.storage.scrub import SegmentCheck, find_unreadable

if TYPE_CHECKING:
    from sparrow.storage.filesystem import FileSystem
    from sparrow.storage.recovery import Recovered
    from sparrow.storage.recovery_points import RecoveryPoints
    from sparrow.storage.scrub import ScrubExtent

_COPIED_AT_ONCE = 4 << 20


def accept(fs: FileSystem, found: Recovered, points: RecoveryPoints) -> list[Gap]:
    """Make the log usable without what it lost. Return the new gaps.

    Args:
        found: a log with damages or unreadable headers, from `recovery.examine_all`.

    Raises:
        OSError: the device refused; accept again.
        StorageFailed: likewise.
    """
    return _accept_missing(fs, found, points) if found.damages else _accept_unreadable(fs, found, points)


def _accept_missing(fs: FileSystem, found: Recovered, points: RecoveryPoints) -> list[Gap]:
    checkpoint = found.checkpoint
    assert checkpoint is not None, "without a checkpoint nothing is known to be missing"
    directory = found.directory
    if fs.size(directory) is None:
        fs.mkdir(directory)
    metadata = f"{directory}/{names.METADATA_FILE}"
    if fs.size(metadata) is None and found.log_id is not None:
        replace_file(fs, metadata, names.metadata_text(found.log_id.topic_id))
    for damage in found.damages:
        if damage.path.endswith(names.LOG):
            _keep_whole(fs, damage.path)
    fs.sync_dir(directory)
    fs.sync_dir(directory.rpartition("/")[0])
    gaps = [Gap(damage.first, damage.end) for damage in found.damages]
    accepted = _without_lost(fs, found, checkpoint, gaps)
    if found.log_id is not None:
        points.put(found.log_id, accepted, sync=True)
    replace_file(fs, f"{directory}/{names.CHECKPOINT_FILE}", accepted.encode())
    return gaps


def _keep_whole(fs: FileSystem, path: str) -> None:
    """Cut a segment behind its last whole batch; the next start rebuilds its indexes."""
    stem = path.removesuffix(names.LOG)
    base = names.maybe_segment_base(path.rpartition("/")[2])
    if base is None or fs.size(path) is None:
        return
    whole = whole_until(fs, path, base).position
    for suffix in (names.INDEX, names.TIME_INDEX):
        fs.unlink(stem + suffix)
    if not whole:
        fs.unlink(path)
        return
    fd = fs.open(path, write=True)
    try:
        fs.truncate(fd, whole)
        fs.sync(fd)
    finally:
        fs.close(fd)


def _without_lost(fs: FileSystem, found: Recovered, checkpoint: Checkpoint, gaps: list[Gap]) -> Checkpoint:
    point = checkpoint.point
    present = {
        base: fs.size(f"{found.directory}/{name}") or 0
        for name in fs.listdir(found.directory)
        if (base := names.maybe_segment_base(name)) is not None
    }
    damaged = {damage.path for damage in found.damages}
    segments: list[SavedSegment] = []
    for each in checkpoint.segments or _unlisted(present, point):
        path = f"{found.directory}/{names.segment_stem(each.base_offset)}{names.LOG}"
        if each.base_offset not in present:
            continue
        segments.append(
            SavedSegment(each.base_offset, present[each.base_offset], is_dense=each.is_dense)
            if path in damaged
            else each
        )
    # Batches that were appended behind a lost recovery point begin where their own segment begins.
    if gaps[-1].end >= point.end_offset:
        end = min((base for base in present if base >= point.end_offset), default=point.end_offset)
        gaps[-1] = Gap(gaps[-1].first, end)
        point = RecoveryPoint(end, 0, end)
    return dataclasses.replace(
        checkpoint,
        point=point,
        segments=tuple(segments),
        gaps=tuple(sorted([*checkpoint.gaps, *gaps])),
        clean_offset=min(checkpoint.clean_offset, point.end_offset),
    )


def _unlisted(present: dict[int, int], point: RecoveryPoint) -> list[SavedSegment]:
    """Return the segments that a checkpoint of version 1 does not list."""
    return [
        SavedSegment(base, size, is_dense=False)
        for base, size in sorted(present.items())
        if base <= point.segment
    ]


def _accept_unreadable(fs: FileSystem, found: Recovered, points: RecoveryPoints) -> list[Gap]:
    before = _recover(fs, found, points)
    checkpoint = before.checkpoint
    assert checkpoint is not None, "without a checkpoint everything is checked, and cut"
    path = f"{found.directory}/{names.CHECKPOINT_FILE}"
    if checkpoint.segments is None:
        sizes = {each.base_offset: each.size for each in before.segments}
        checkpoint = dataclasses.replace(checkpoint, segments=tuple(_unlisted(sizes, checkpoint.point)))
        replace_file(fs, path, checkpoint.encode())
    extents = [
        extent._replace(path=f"{found.directory}/{names.segment_stem(extent.base_offset)}{names.LOG}")
        for extent in before.extents()
    ]
    unreadable = find_unreadable(fs, found.log, extents, found.headers_from)
    damaged = {damage.path for damage in unreadable}
    for extent in extents:
        if extent.path in damaged:
            _write_readable(fs, found, extent)
    recovered = _recover(fs, found, points)
    gaps = [Gap(damage.first, damage.end) for damage in unreadable]
    assert recovered.checkpoint is not None, "it was there before"
    accepted = dataclasses.replace(
        recovered.checkpoint, gaps=tuple(sorted([*recovered.checkpoint.gaps, *gaps]))
    )
    if found.log_id is not None:
        points.put(found.log_id, accepted, sync=True)
    replace_file(fs, path, accepted.encode())
    return gaps


def _recover(fs: FileSystem, found: Recovered, points: RecoveryPoints) -> Recovered:
    log_id = found.log_id

    def keep(checkpoint: Checkpoint) -> None:
        if log_id is not None:
            points.put(log_id, checkpoint, sync=True)

    second = points.get(log_id) if log_id is not None else None
    return recover(fs, found.directory, DEFAULT_INTERVAL_BYTES, log=found.log, second=second, keep=keep)


def _write_readable(fs: FileSystem, found: Recovered, extent: ScrubExtent) -> None:
    """Copy the batches with readable headers of a segment to its `.swap` file."""
    check = SegmentCheck(fs, found.log, extent, headers_only=True)
    while not check.is_done:
        check.step(_COPIED_AT_ONCE)
    cleaned = extent.path + names.CLEANED
    source = fs.open(extent.path)
    try:
        target = fs.open(cleaned, write=True, create=True)
        try:
            fs.truncate(target, 0)
            written = 0
            for first, end in check.whole:
                for position in range(first, end, _COPIED_AT_ONCE):
                    data = fs.read_at(source, min(_COPIED_AT_ONCE, end - position), position)
                    write_all(fs, target, [data], written)
                    written += len(data)
            fs.sync(target)
        finally:
            fs.close(target)
    finally:
        fs.close(source)
    for suffix in (names.INDEX, names.TIME_INDEX):
        fs.unlink(extent.path.removesuffix(names.LOG) + suffix)
    fs.sync_dir(found.directory)
    fs.rename(cleaned, f"{found.directory}/{names.swap_name(extent.base_offset, extent.end_offset)}")
    fs.sync_dir(found.directory)
