"""Progress of flows, computed from the reports of their queries.

A query reports each batch once; rows are added up here. The lag is the number of messages between
the offsets that a batch has read and the end offsets at that time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrow.pipelines.engine.expectations import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

STARTING, RUNNING, DONE, STOPPED, FAILED, SKIPPED = (
    "starting",
    "running",
    "done",
    "stopped",
    "failed",
    "skipped",
)
ENDED: Final = frozenset({DONE, STOPPED, FAILED, SKIPPED})


@dataclass(frozen=True)
class Progress:
    """Progress of a flow.

    Args:
        rows: messages read since the start of this run.
        rows_per_second: of the last batch.
        lag: messages that existed and were not yet read; None: not known.
        batch: the last batch; None: none yet.
        refused: rows that did not stay in the flow, by expectation or "undecodable".
        error: the reason of a failure, or "".
    """

    flow: str
    state: str = STARTING
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: int | None = None
    batch: int | None = None
    batches: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    started_ms: int = 0


class ProgressTally:
    """Progress of one query, summed up from its reports."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen = ""
        self._rows = self._batches = self._batch_ms = 0
        self._rows_per_second = 0.0
        self._lag: int | None = None
        self._batch: int | None = None
        self._refused: Counter[str] = Counter()
        self._started_ms = int(time.time() * 1000)

    def take(self, reports: Iterable[Any]) -> None:
        """Add the reports of a query, in their order, without those that were added before."""
        for report in reports:
            if report["timestamp"] > self._seen:
                self._seen = report["timestamp"]
                self._add(report)

    def progress(self, state: str, error: str = "") -> Progress:
        """Return the current progress."""
        return Progress(
            self._flow,
            state,
            rows=self._rows,
            rows_per_second=self._rows_per_second,
            batch_ms=self._batch_ms,
            lag=self._lag,
            batch=self._batch,
            batches=self._batches,
            refused=dict(self._refused),
            error=error,
            started_ms=self._started_ms,
        )

    def _add(self, report: Any) -> None:
        self._lag = lag_of(report["sources"])
        durations = report["durationMs"] or {}
        if "addBatch" not in durations:
            return  # The query looked for new messages and found none.
        # Summed over the sources, because a session of Spark Connect does not report the sum.
        rows = sum(int(source["numInputRows"] or 0) for source in report["sources"])
        self._rows += rows
        self._batches += 1
        self._batch = int(report["batchId"])
        self._batch_ms = int(durations.get("triggerExecution", 0))
        self._rows_per_second = rows * 1000 / max(self._batch_ms, 1)
        self._refused.update(_refused(report["observedMetrics"] or {}))


def lag_of(sources: Sequence[Any]) -> int | None:
    """Return the messages behind the newest over all sources that report it, or None if none
    does.
    """
    lags = [_source_lag(source["endOffset"], source["latestOffset"]) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _source_lag(end: Any, latest: Any) -> int | None:
    ends, latests = _offsets(end), _offsets(latest)
    if not ends or not latests:
        return None
    return sum(max(0, offset - ends.get(partition, 0)) for partition, offset in latests.items())


def _offsets(values: Any) -> dict[tuple[str, str], int]:
    """Return {"orders": {"0": 23}} as (topic, partition) → offset, ignoring keys that are not
    topics.
    """
    try:
        found = json.loads(values) if isinstance(values, str) else values
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in found.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


def _refused(observed: Mapping[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, row in observed.items():
        if name.startswith(OBSERVED):
            counts |= {each: int(value) for each, value in _named(row).items() if value}
    return counts


def _named(row: Any) -> dict[str, Any]:
    """Return a row by its columns; Spark Connect gives names and values apart."""
    found: dict[str, Any] = row.asDict() if hasattr(row, "asDict") else dict(row)
    if set(found) == {"schema", "values"} and isinstance(found["schema"], dict):
        names = (field["name"] for field in found["schema"]["fields"])
        return dict(zip(names, found["values"], strict=True))
    return found
