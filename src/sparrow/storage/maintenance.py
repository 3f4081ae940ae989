"""Maintenance of a log: drop old segments, compact. `retention` and `compaction` decide,
this module acts.

The steps of every action are ordered so that a crash may stop it anywhere: first the checkpoint
records the future state, then the files follow; or new files are complete before old ones are
removed. One action at a time per log (the log's lock); appends and reads continue meanwhile, and
notice only offsets that become out of range.

On the event loop; blocking work runs in threads.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from sparrow.base.errors import DiskFull, SparrowError, StorageFailed
from sparrow.storage import cleaner as cleaning
from sparrow.storage import compaction, names, retention
from sparrow.storage.batch_removal import find_removal
from sparrow.storage.filesystem import translate
from sparrow.storage.segment import Segment, translate_failed
from sparrow.storage.store import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.errors import CorruptBatch
    from sparrow.model.topics import RemovedBatch
    from sparrow.storage.durability import Durability
    from sparrow.storage.resources import Resources
    from sparrow.storage.row import SegmentRow
    from sparrow.storage.store import LogId


class Maintenance:
    """Maintenance of one log."""

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
        """Keep the parts of the log. `roll` begins a new active segment; `is_stopped` makes a
        compaction give up.
        """
        self._resources = resources
        self._run = resources.workers.run
        self._directory = directory
        self._row = row
        self._durability = durability
        self._roll = roll
        self._is_stopped = is_stopped
        self.kept_unreadable: list[CorruptBatch] = []
        """See `PartitionLog.kept_unreadable`."""

    async def _settle(self) -> None:
        """Sync every closed segment and move the recovery point behind them."""
        if len(self._row.segments) > 1:
            await self._durability.files_synced()
            await self._run(self._durability.settle)

    # ── retention ──

    async def enforce_retention(self, config: LogConfig, now_ms: int) -> int:
        """See `PartitionLog.enforce_retention`; the log has segments."""
        self._roll_by_age(config, now_ms)
        count = retention.expired(self._row.infos(), self._row.start, config, now_ms)
        if not count:
            return 0
        if count == len(self._row.segments):
            self._roll()
        return await self._drop(count)

    def _roll_by_age(self, config: LogConfig, now_ms: int) -> None:
        active = self._row.active
        began = active.created_ms if active.created_ms >= 0 else active.first_timestamp
        if active.size and began >= 0 and now_ms - began > retention.max_active_ms(config):
            self._roll()

    async def _drop(self, count: int) -> int:
        """Remove the first `count` segments, which are not active. Return the freed bytes."""
        start = max(self._row.start, self._row.segments[count].base_offset)
        try:
            # The recovery point must not stay in a segment that is removed.
            await self._settle()
            await self._run(self._durability.save, log_start=start)
        except DiskFull:
            # No space even for that: make some.
            gone = self._row.drop_oldest(count, start)
            marker = await self._run(self._unlink_marked, gone)
            await self._run(self._durability.settle)
            await self._run(self._durability.save, log_start=start)
            await self._run(self._resources.fs.unlink, marker)
        else:
            gone = self._row.drop_oldest(count, start)
            await self._run(_unlink, gone)
        self._forget_damages(gone)
        return sum(segment.size for segment in gone)

    def _forget_damages(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._resources.damages.forget_file(segment.path)

    def _unlink_marked(self, segments: Sequence[Segment]) -> str:
        """Free the space of segments before the checkpoint says that they are removed: the name of
        the last one says so meanwhile.

        Returns:
            The path of that file, which is empty, to be removed once the checkpoint is written.
        """
        last, fs = segments[-1], self._resources.fs
        marker = last.path + names.DROPPED
        try:
            fs.rename(last.path, marker)
            fs.sync_dir(self._directory)
            fd = fs.open(marker, write=True)
            try:
                fs.truncate(fd, 0)
                fs.sync(fd)
            finally:
                fs.close(fd)
            _unlink(segments)
            fs.sync_dir(self._directory)
        except OSError as error:
            raise translate(error, "removing", last.path) from error
        return marker

    # ── compaction ──

    async def compact(self, log_id: LogId, config: LogConfig, now_ms: int) -> int:
        """See `PartitionLog.compact`."""
        await self._settle()
        candidates = self._row.candidates(self._durability.saved.point.segment)
        dirty = compaction.maybe_range(candidates, self._durability.saved.clean_offset, config, now_ms)
        if dirty is None:
            return 0
        count = sum(each.base_offset < dirty.end for each in candidates)
        segments, candidates = self._row.segments[:count], candidates[:count]
        cleaner, freed = self._cleaner(log_id, config, now_ms), 0
        try:
            survey = await self._run(cleaner.survey, segments, dirty)
            for first, after in compaction.groups(candidates, config.segment_bytes):
                if segments[first].base_offset < survey.end:
                    end = candidates[after - 1].end_offset
                    group = segments[first:after]
                    freed += await self._clean(cleaner, group, partial(cleaner.clean, group, end, survey))
        except cleaning.Stopped:
            return freed
        finally:
            self.kept_unreadable = list(cleaner.unreadable.values())
        await self._run(self._durability.save, clean_offset=survey.end)
        return freed

    # ── removing one batch ──

    async def remove_batch(self, log_id: LogId, offset: int, *, force: bool) -> RemovedBatch:
        """Remove as `PartitionLog.remove_batch`. The segment is rewritten as by compaction, so a
        crash may come at any point.
        """
        segment = self._row.segments[self._row.number_of(offset)]
        removal = await self._run(find_removal, segment, offset, log_id, force)
        if segment is self._row.active:
            self._roll()
        await self._settle()
        end = self._row.segments[self._row.segments.index(segment) + 1].base_offset
        cleaner = self._cleaner(log_id, LogConfig(), 0)
        try:
            await self._clean(
                cleaner, [segment], partial(cleaner.replace, segment, end, removal.position, removal.empty)
            )
        except cleaning.Stopped:
            raise StorageFailed(f"the log {log_id} is closed; nothing was removed") from None
        return removal.removed

    def _cleaner(self, log_id: LogId, config: LogConfig, now_ms: int) -> cleaning.Cleaner:
        options = self._resources.options
        return cleaning.Cleaner(
            self._resources.fs,
            log_id=log_id,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            producer_expiry_ms=options.producer_expiry_ms,
            map_bytes=options.compaction_map_bytes,
            is_stopped=self._is_stopped,
        )

    async def _clean(
        self, cleaner: cleaning.Cleaner, group: list[Segment], write: Callable[[], cleaning.Cleaned | None]
    ) -> int:
        """Write the group's new segment and install it. Return the freed bytes."""
        cleaned = await self._run(write)
        if cleaned is None:
            return 0
        with contextlib.ExitStack() as opened:
            for segment in group:
                # Its name will soon belong to other bytes: readers need the open file and the index
                # that fits it.
                opened.enter_context(segment.opened())
                await self._run(segment.pin_index)
            replacement = self._segment_of(cleaned, group)
            try:
                await self._run(cleaner.commit, cleaned)
                await self._run(self._durability.save_replaced, group, replacement)
                await self._run(cleaner.finish, cleaned, group)
            except (OSError, SparrowError) as error:
                failure = (
                    translate_failed(error, "swapping a compacted segment in", self._directory)
                    if isinstance(error, OSError)
                    else StorageFailed(error.text)
                )
                self._durability.fail(failure)
                raise failure from error
            self._row.replace(group, replacement)
        self._forget_damages(group)
        return sum(segment.size for segment in group) - cleaned.size

    def _segment_of(self, cleaned: cleaning.Cleaned, group: list[Segment]) -> Segment:
        index = cleaned.index
        segment = Segment(self._resources, self._directory, cleaned.base_offset, index.interval_bytes)
        segment.size = segment.synced = cleaned.size
        segment.max_timestamp, segment.first_timestamp = index.max_timestamp, group[0].first_timestamp
        segment.created_ms = group[-1].created_ms
        segment.is_dense = False
        segment.crcs = index.crcs(len(index.offsets), len(index.times))
        return segment


def _unlink(segments: Sequence[Segment]) -> None:
    for segment in segments:
        try:
            segment.unlink()
        except OSError as error:
            raise translate(error, "removing", segment.path) from error
