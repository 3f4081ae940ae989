"""The identity of a write: sink, query, run and batch.

Spark does not tell Python data sources which query or batch they write for; tasks find it in the
local properties that Spark's own micro-batches set. Spark does not document these names, so a test
looks for each of them, and a task that misses one says so instead of guessing.

A batch write has a temporary sink, unless it has `sinkId` and `batchId`. Then it is one of a series
of numbered writes; inside `foreachBatch` these belong to the stream's query and run, whose earlier
runs are fenced, elsewhere to the sink alone, and each write is a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from sparrow.base.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.spark.sink.plan import WritePlan

QUERY_PROPERTY = "sql.streaming.queryId"
RUN_PROPERTY = "spark.jobGroup.id"
BATCH_PROPERTY = "streaming.sql.batchId"
WRITE_PREFIX = "spark-write-"
"""Prefix of the sink ids of batch writes without a `sinkId`."""
NUMBERED = "numbered-writes"
"""The query of writes that are numbered by `batchId` and belong to no stream."""


@dataclass(frozen=True)
class WriteIdentity:
    """The identity of a write. The driver commits by the same names."""

    sink: str
    query: str
    run: str
    batch: int

    @property
    def is_of_stream(self) -> bool:
        """Return True if a streaming query writes, which an error ends."""
        return self.query not in {"", NUMBERED}


@dataclass(frozen=True)
class TaskAttempt:
    """One attempt at one task."""

    task: int
    number: int


def stream_identity(plan: WritePlan) -> WriteIdentity:
    """Return the identity of a task of a streaming query."""
    read = current_task().getLocalProperty
    query = _needed(read, QUERY_PROPERTY)
    return WriteIdentity(
        plan.sink or query, query, _needed(read, RUN_PROPERTY), int(_needed(read, BATCH_PROPERTY))
    )


def batch_identity(plan: WritePlan, write_id: str) -> WriteIdentity:
    """Return the identity of a task of a batch write; `write_id` is unique to the write."""
    if plan.sink is None or plan.batch is None:
        return write_identity(write_id)
    read = current_task().getLocalProperty
    query, run = read(QUERY_PROPERTY), read(RUN_PROPERTY)
    if query and run:
        return WriteIdentity(plan.sink, query, run, plan.batch)
    return WriteIdentity(plan.sink, NUMBERED, write_id, plan.batch)


def write_identity(write_id: str) -> WriteIdentity:
    """Return the identity of a batch write that is not remembered by a name. The prefix is for
    access rules.
    """
    return WriteIdentity(f"{WRITE_PREFIX}{write_id}", "", write_id, 0)


def attempt() -> TaskAttempt:
    """Return the attempt of the current task. Attempts are numbered through a whole Spark
    application, since a stage that is run again begins to count from 0.
    """
    context = current_task()
    return TaskAttempt(context.partitionId(), context.taskAttemptId())


def current_task() -> TaskContext:
    """Return the current task.

    Raises:
        InternalError: this is not a task.
    """
    found = TaskContext.get()
    if found is None:
        raise InternalError("rows are written outside of a task of Spark")
    return found


def _needed(read: Callable[[str], str | None], name: str) -> str:
    found = read(name)
    if not found:
        raise InternalError(
            f"this version of Spark does not tell tasks {name}, without which no batch can be "
            "written exactly once; write with foreachBatch, and sinkId and batchId"
        )
    return found
