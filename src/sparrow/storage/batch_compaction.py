"""Compaction of one log batch by batch, for every kind of log: which keys the dirty part has, and
what stays of a batch. The rules are those of `compaction`; nothing is read or written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparrow.records.control import ControlType, maybe_parse_marker
from sparrow.records.readable import corruption_of
from sparrow.records.rewrite import iterate_raw, retain
from sparrow.storage.compaction import LatestOffsets, keeps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.base.errors import CorruptBatch
    from sparrow.records.batch import BatchHeader
    from sparrow.records.rewrite import RawRecord
    from sparrow.storage.store import LogId


class Survey(NamedTuple):
    """The result of one pass along the log."""

    latest: dict[bytes, int]
    end: int
    """End of the pass: every record before it can be judged."""
    last_batches: frozenset[int]
    """Last offsets of batches that keep their producer's sequence."""


class BatchCompaction:
    """One compaction of one log.

    Args:
        map_bytes: memory for the keys of the dirty part.
        on_record: called for each record, so that a thread can yield the interpreter.
    """

    def __init__(
        self,
        log_id: LogId,
        *,
        now_ms: int,
        delete_retention_ms: int,
        producer_expiry_ms: int,
        map_bytes: int,
        on_record: Callable[[], None] = lambda: None,
    ) -> None:
        self._log_id = log_id
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._oldest_producer_ms = now_ms - producer_expiry_ms
        self._latest = LatestOffsets(map_bytes)
        self._on_record = on_record
        self.unreadable: dict[int, CorruptBatch] = {}
        """Batches that were kept as they are because their records are unreadable, by base
        offset.
        """

    # ── looking ──

    @property
    def is_full(self) -> bool:
        """True if the memory for keys is used up: the survey ends before the next batch."""
        return self._latest.is_full

    def survey(self, header: BatchHeader, data: bytes) -> None:
        """Note the keys of the next batch of the dirty part."""
        if not header.is_control:
            self._survey_records(header, data)
            return
        marker = maybe_parse_marker(data)
        if marker is not None and marker.type in {ControlType.COMMIT, ControlType.ABORT}:
            self._latest.end(header.producer_id, committed=marker.type == ControlType.COMMIT)

    def _survey_records(self, header: BatchHeader, data: bytes) -> None:
        latest = self._latest
        pending = latest.begin(header.producer_id, header.base_offset) if header.is_transactional else None
        if self._is_unreadable(header, data):
            return  # its keys are unknown, so it removes no other record
        for record in iterate_raw(data):
            self._on_record()
            if record.key is None:
                continue
            if pending is not None:
                pending[record.key] = record.offset
            else:
                latest.add(record.key, record.offset)

    def surveyed(self, end: int, headers: Iterable[BatchHeader]) -> Survey:
        """Return the result.

        Args:
            end: end of what `survey` saw.
            headers: of all batches that will be cleaned, in order; those of producers are enough.
        """
        unfinished = self._latest.first_open()
        end = end if unfinished is None else min(end, unfinished)
        last: dict[int, int] = {}
        for header in headers:
            if header.producer_id >= 0 and header.max_timestamp >= self._oldest_producer_ms:
                last[header.producer_id] = header.last_offset
        return Survey(self._latest.offsets, end, frozenset(last.values()))

    # ── cleaning ──

    def clean(self, header: BatchHeader, data: bytes, survey: Survey) -> bytes | None:
        """Return what stays of a batch: `data` itself if nothing changes, None if nothing stays."""
        if header.base_offset >= survey.end or header.is_control or self._is_unreadable(header, data):
            return data
        tombstones_go = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        has_tombstone = False

        def keep(record: RawRecord) -> bool:
            nonlocal has_tombstone
            self._on_record()
            stays = keeps(record, survey.latest, survey.end, tombstones_go=tombstones_go)
            has_tombstone = has_tombstone or (stays and record.value_is_null and record.key is not None)
            return stays

        is_last = header.last_offset in survey.last_batches
        kept = retain(data, keep, keep_empty=is_last)
        if has_tombstone and not header.has_delete_horizon:
            return retain(data, keep, keep_empty=is_last, delete_horizon_ms=self._horizon_ms)
        return kept

    def _is_unreadable(self, header: BatchHeader, data: bytes) -> bool:
        """Return True if the records are unreadable: the batch stays as it is until it is removed
        by command.
        """
        error = corruption_of(header, data, self._log_id.topic, self._log_id.partition)
        if error is not None and header.base_offset not in self.unreadable:
            self.unreadable[header.base_offset] = error
        return error is not None
