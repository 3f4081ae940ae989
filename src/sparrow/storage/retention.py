"""The decision which segments of a log are removed; no file is touched here.

Kafka's rules: from the oldest on, a segment is removed when its newest record is older than
`retention_ms`, or when the log without it is still at least `retention_bytes`, or when everything
in it is before the log's start. The first segment that stays ends the removal. Time may remove the
active segment too (it is closed first); size never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.storage.store import LogConfig


class SegmentInfo(NamedTuple):
    """The properties of a segment that the rules use."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    """Largest timestamp of its records; the wall time of its first append when they have none; -1:
    unknown, time does not remove it.
    """


def expired(segments: Sequence[SegmentInfo], start_offset: int, config: LogConfig, now_ms: int) -> int:
    """Return how many of the segments are removed, counted from the oldest. The last one is the
    active one.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        is_active = number + 1 == len(segments)
        before_start = not is_active and segment.end_offset <= start_offset
        too_old = config.delete and _is_too_old(segment, config.retention_ms, now_ms)
        too_much = config.delete and config.retention_bytes >= 0 and segment.size <= excess and not is_active
        if not (before_start or too_old or too_much):
            break
        excess -= segment.size
        count += 1
    return count


def _is_too_old(segment: SegmentInfo, retention_ms: int, now_ms: int) -> bool:
    known = retention_ms >= 0 and segment.size > 0 and segment.max_timestamp >= 0
    return known and now_ms - segment.max_timestamp > retention_ms


def max_active_ms(config: LogConfig) -> int:
    """Return the age above which an active segment must be closed, so that retention and compaction
    may process it.
    """
    return min(config.segment_ms, config.max_compaction_lag_ms) if config.compact else config.segment_ms
