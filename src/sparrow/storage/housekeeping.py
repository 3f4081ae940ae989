"""Make a log smaller: drop old segments, compact, cut back. Decides by `retention` and `compaction`, then acts.

Every act has an order that a crash may stop anywhere: first the checkpoint says what will be true, then the files follow;
or new files are complete before old ones go. One act at a time per log (the log's lock); appends and reads go on
meanwhile, and notice nothing but offsets that are out of range.

On the event loop; what blocks runs in threads.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sparrow.base.errors import DiskFull, OffsetOutOfRange, SparrowError, StorageFailed
from sparrow.storage import cleaner as cleaning
from sparrow.storage import compaction, retention
from sparrow.storage.checkpoint import RecoveryPoint
from sparrow.storage.filesystem import translate
from sparrow.storage.segment import Segment, translate_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.storage.durability import Durability
    from sparrow.storage.resources import Resources
    from sparrow.storage.row import SegmentRow
    from sparrow.storage.store import LogConfig


class Housekeeping:
    """Of one log."""

    def __init__(
        self,
        resources: Resources,
        directory: str,
        row: SegmentRow,
        durability: Durability,
        *,
        roll: Callable[[], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """`roll` begins a new active segment; `is_stopped` tells a compaction to give up."""
        self._resources = resources
        self._run = resources.workers.run
        self._directory = directory
        self._row = row
        self._durability = durability
        self._roll = roll
        self._is_stopped = is_stopped

    async def _settle(self) -> None:
        """Every closed segment is synced, and the recovery point is behind them."""
        if len(self._row.segments) > 1:
            await self._durability.wait(self._row.active.base_offset)
            await self._run(self._durability.settle)

    # ── retention ──

    async def enforce_retention(self, config: LogConfig, now_ms: int) -> int:
        """See `PartitionLog.enforce_retention`; the log has segments."""
        self._roll_by_age(config, now_ms)
        count = retention.expired(self._row.facts(), self._row.start, config, now_ms)
        if not count:
            return 0
        if count == len(self._row.segments):
            self._roll()
        return await self._drop(count)

    def _roll_by_age(self, config: LogConfig, now_ms: int) -> None:
        active = self._row.active
        began = active.created_ms if active.created_ms >= 0 else active.first_timestamp
        if active.size and began >= 0 and retention.is_due_to_roll(now_ms - began, config):
            self._roll()

    async def _drop(self, count: int) -> int:
        """Remove the first `count` segments, which are not active; returns the bytes freed."""
        start = max(self._row.start, self._row.segments[count].base_offset)
        try:
            # The recovery point must not be left behind in a segment that goes.
            await self._settle()
            await self._run(self._durability.save, log_start=start)
        except DiskFull:
            # No room even for that: make some.
            gone = self._row.leave(count, start)
            await self._run(self._unlink_in_order, gone)
            await self._run(self._durability.settle)
            await self._run(self._durability.save, log_start=start)
        else:
            gone = self._row.leave(count, start)
            await self._run(_unlink, gone)
        return sum(segment.size for segment in gone)

    def _unlink_in_order(self, segments: Sequence[Segment]) -> None:
        """Each for good before the next: nothing on the disk says yet that they go, and a hole between two would be damage."""
        for segment in segments:
            _unlink([segment])
            try:
                self._resources.fs.sync_dir(self._directory)
            except OSError as error:
                raise translate(error, "syncing", self._directory) from error

    # ── cutting back ──

    async def truncate(self, name: str, offset: int) -> None:
        """Drop every batch that holds `offset` or comes after it. No append may run meanwhile.

        First the checkpoint moves back, then the files: a crash between leaves the log as it was, or shorter.
        """
        await self._durability.wait(self._row.end)
        await self._run(self._durability.settle)
        number = self._row.number_of(offset)
        keep = self._row.segments[number]
        position, batch_offset = await self._run(keep.find, offset)
        end = min(offset, batch_offset)
        index = await self._run(keep.index_until, position)
        point = RecoveryPoint(
            keep.base_offset, position, end, index.state, keep.first_timestamp, keep.created_ms
        )
        await self._run(self._durability.move_back, keep, index, point)
        lost = self._row.cut(number, end)
        keep.become_active(index, position)
        self._durability.forget_behind(end, OffsetOutOfRange(f"{name} was cut back to offset {end}"))
        try:
            await self._run(self._cut_files, keep, position, lost)
        except SparrowError as error:
            # The checkpoint and the row are cut already: an append now would come before bytes that are still there.
            failure = error if isinstance(error, StorageFailed) else StorageFailed(error.text)
            self._durability.fail(failure)
            raise failure from error

    def _cut_files(self, keep: Segment, position: int, lost: Sequence[Segment]) -> None:
        """The last segments go first, so that a crash leaves no hole."""
        _unlink(list(reversed(lost)))
        keep.cut_file(position)
        try:
            self._resources.fs.sync_dir(self._directory)
        except OSError as error:
            raise translate_failed(error, "syncing", self._directory) from error

    # ── compaction ──

    async def compact(self, config: LogConfig, now_ms: int) -> int:
        """See `PartitionLog.compact`."""
        await self._settle()
        candidates = self._row.candidates(self._durability.saved.point.segment)
        dirty = compaction.maybe_range(candidates, self._durability.saved.clean_offset, config, now_ms)
        if dirty is None:
            return 0
        count = sum(each.base_offset < dirty.end for each in candidates)
        segments, candidates = self._row.segments[:count], candidates[:count]
        cleaner, freed = self._cleaner(config, now_ms), 0
        try:
            survey = await self._run(cleaner.survey, segments, dirty)
            for first, after in compaction.groups(candidates, config.segment_bytes):
                if segments[first].base_offset < survey.end:
                    end = candidates[after - 1].end_offset
                    freed += await self._clean(cleaner, segments[first:after], end, survey)
        except cleaning.Stopped:
            return freed
        await self._run(self._durability.save, clean_offset=survey.end)
        return freed

    def _cleaner(self, config: LogConfig, now_ms: int) -> cleaning.Cleaner:
        options = self._resources.options
        return cleaning.Cleaner(
            self._resources.fs,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            producer_expiry_ms=options.producer_expiry_ms,
            map_bytes=options.compaction_map_bytes,
            is_stopped=self._is_stopped,
        )

    async def _clean(
        self, cleaner: cleaning.Cleaner, group: list[Segment], end_offset: int, survey: cleaning.Survey
    ) -> int:
        """Write the group's new segment and put it into its place; returns the bytes freed."""
        cleaned = await self._run(cleaner.clean, group, end_offset, survey)
        if cleaned is None:
            return 0
        with contextlib.ExitStack() as held:
            for segment in group:
                # Its name will soon stand for other bytes: readers need the open file and the index that fits it.
                held.enter_context(segment.held())
                await self._run(segment.pin_index)
            try:
                await self._run(cleaner.commit, cleaned)
                await self._run(cleaner.finish, cleaned, group)
            except OSError as error:
                failure = translate_failed(error, "swapping a compacted segment in", self._directory)
                self._durability.fail(failure)
                raise failure from error
            self._row.replace(group, self._segment_of(cleaned, group))
        return sum(segment.size for segment in group) - cleaned.size

    def _segment_of(self, cleaned: cleaning.Cleaned, group: list[Segment]) -> Segment:
        index = cleaned.index
        segment = Segment(self._resources, self._directory, cleaned.base_offset, index.interval_bytes)
        segment.size = segment.synced = cleaned.size
        segment.max_timestamp, segment.first_timestamp = index.max_timestamp, group[0].first_timestamp
        segment.created_ms = group[-1].created_ms
        return segment


def _unlink(segments: Sequence[Segment]) -> None:
    for segment in segments:
        try:
            segment.unlink()
        except OSError as error:
            raise translate(error, "removing", segment.path) from error
