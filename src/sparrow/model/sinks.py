"""Sinks of data pipelines and their stages."""

from __future__ import annotations

from sparrow.model.result import Result
from sparrow.records.topic_partition import TopicPartition


class StageDescription(Result, frozen=True):
    """Uncommitted records that one task of a data pipeline has written of a batch."""

    stage: str
    run: str
    batch: int
    task: int
    attempt: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    opened_ms: int
    left_ms: int
    """Time until the stage is dropped unless its task reports again."""
    partitions: list[TopicPartition] = []


class SinkDescription(Result, frozen=True):
    """A sink of data pipelines: its owner and its progress. `last_batch` -1: no batch was committed
    yet.
    """

    sink: str
    query: str
    kind: str
    """"stream", or "once" for a single write."""
    run: str
    epoch: int
    last_batch: int
    updated_ms: int
    open_stages: int = 0
    past_runs: list[str] = []
    stages: list[StageDescription] = []
