"""Reports of pipelines."""

from __future__ import annotations

from sparrow.model.result import Result


class Report(Result, frozen=True):
    """State of a flow of a pipeline, as the pipeline reports it.

    Args:
        name: the pipeline.
        flow: one of its flows.
        run: differs from start to start.
        state: a word for people: "running", "waiting", "failed", …
        rows: the number of rows since its start.
        rows_per_second: in the last batch.
        batch_ms: the duration of the last batch.
        lag: records that it has still to read; None: not known.
        batch: the number of the last batch; -1: none yet.
        refused: rows that did not stay in the flow, since its start: by an expectation, or because
            they could not be decoded.
        error: why it failed; "": it did not.
        started_ms: when the run began.
        updated_ms: when this was reported, by the broker's clock.
        sources: topics or flows that it reads.
        target: the topic or table that it writes; "": not known.
    """

    name: str
    flow: str
    run: str = ""
    state: str = "running"
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: float = 0.0
    lag: int | None = None
    batch: int = -1
    refused: int = 0
    error: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    sources: list[str] = []
    target: str = ""
