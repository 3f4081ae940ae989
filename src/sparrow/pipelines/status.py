"""Status of a pipeline, without Spark: what its runs report to the broker, the lag of its queries,
and what their checkpoints say.

The lag of a query is that of its group; it is known as long as the broker keeps the group's
offsets. The batch is the last that Spark has committed, read from the checkpoint's directory; a
checkpoint behind a URI is not read.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.pipelines.model import Flow, PipelineModel
    from sparrow.spark.wire import Session

GROUP_PREFIX = "spark-"
NOT_RUNNING = "not running"
SILENT = "silent"
SILENT_MS = 30_000
"""Milliseconds without a report after which a run counts as silent. A run reports every second; a
silent one was killed, or has no connection to the broker.
"""
_ENDED = frozenset({"done", "stopped", "failed", "skipped"})


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query of a flow. A value that is None is not known."""

    flow: str
    query: str
    state: str
    batch: int | None = None
    """The last batch that was committed."""
    lag: int | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    batch_ms: float | None = None
    error: str = ""
    updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueryBatches:
    """Number of batches that a query has begun (`offsets/N` in its checkpoint), and that it has
    committed (`commits/N`).
    """

    begun: int = 0
    committed: int = 0

    @property
    def is_in_one(self) -> bool:
        """Return True if a batch has begun that is not committed."""
        return self.begun > self.committed


def status_of(pipeline: PipelineModel, session: Session | None) -> list[QueryStatus]:
    """Return the status of all queries of a pipeline.

    Args:
        session: None: the broker cannot be asked.

    Raises:
        SparrowError: the broker does not answer.
    """
    reports = {} if session is None else _reports(pipeline, session)
    return [
        _status(pipeline, flow, is_dead, reports, session)
        for flow in pipeline.flows
        for is_dead in ((False, True) if flow.dead_letters else (False,))
    ]


def connection(pipeline: PipelineModel) -> Session:
    """Connect to the pipeline's broker, with timeouts for a user who waits at a terminal.

    Raises:
        SparrowError: the broker cannot be reached, or refuses the credentials.
    """
    from sparrow.spark.options.connection import target_of, with_connection
    from sparrow.spark.wire import connect

    given = {**pipeline.broker.options(), "connectTimeout": "2s", "callTimeout": "10s", "retries": "0"}
    return connect(target_of(with_connection(()).read(given)))


def _status(
    pipeline: PipelineModel, flow: Flow, is_dead: bool, reports: Mapping[str, Any], session: Session | None
) -> QueryStatus:
    query = pipeline.query_name(flow, is_dead=is_dead)
    name = query.removeprefix(f"{pipeline.name}.")
    # A run reports a flow as a whole; the query of its dead letters is a part of it.
    report = reports.get(flow.name, {})
    committed = batches_of(pipeline.checkpoint_of(flow, is_dead=is_dead)).committed
    figures = {} if is_dead else {key: report.get(key) for key in ("rows", "rows_per_second", "batch_ms")}
    return QueryStatus(
        flow=name,
        query=query,
        state=_state(report) if session is not None else "unknown",
        batch=committed - 1 if committed else None,
        lag=None if session is None else _lag(session, GROUP_PREFIX + query),
        error=report.get("error", ""),
        updated_ms=report.get("updated_ms"),
        **figures,
    )


def _state(report: Mapping[str, Any]) -> str:
    if not report:
        return NOT_RUNNING
    state = str(report["state"])
    is_silent = time.time() * 1000 - report["updated_ms"] > SILENT_MS
    return SILENT if is_silent and state not in _ENDED else state


def _reports(pipeline: PipelineModel, session: Session) -> dict[str, Any]:
    """Return the newest report of each flow."""
    try:
        listed = session.call("pipeline.list", {})["pipelines"]
    except Refused:
        return {}
    mine = [each for each in listed if each["name"] == pipeline.name]
    return {each["flow"]: each for each in sorted(mine, key=lambda each: int(each["updated_ms"]))}


def _lag(session: Session, group: str) -> int | None:
    try:
        offsets = session.call("group.describe", {"group": group})["offsets"]
    except (NotFound, Refused):
        return None
    lags = [int(each["lag"]) for each in offsets if each.get("lag", -1) >= 0]
    return sum(lags) if lags else None


def batches_of(checkpoint: str) -> QueryBatches:
    """Return the batches of a checkpoint; none before the query has begun, or if the directory
    cannot be read from here.
    """
    committed = _newest(os.path.join(checkpoint, "commits"))
    # In this order: a batch that begins between the two looks shall not seem to be committed before
    # it began.
    return QueryBatches(max(committed, _newest(os.path.join(checkpoint, "offsets"))), committed)


def _newest(directory: str) -> int:
    try:
        names = os.listdir(directory)
    except OSError:
        return 0
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)
