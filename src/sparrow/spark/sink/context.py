"""In whose name a task writes: sink, query, run and batch.

Spark's Python data sources are not told which query or batch they write for; tasks find it in the local properties that Spark's own micro-batches set. These names are not
documented by Spark, so a test looks for each of them, and a task that misses one says so instead of guessing.

A batch write has a sink of its own, made up for it, unless it says `sinkId` and `batchId`. Then it is one of a row of numbered writes; inside `foreachBatch` these belong to the
stream's query and run, whose earlier runs are fenced, elsewhere to nobody but the sink itself, and each write is a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from sparrow.base.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.spark.sink.plan import Plan

QUERY_PROPERTY = "sql.streaming.queryId"
RUN_PROPERTY = "spark.jobGroup.id"
BATCH_PROPERTY = "streaming.sql.batchId"
WRITE_PREFIX = "spark-write-"
"""What the sink ids of batch writes begin with that have none of their own."""
NUMBERED = "numbered-writes"
"""The query of writes that are numbered by `batchId` and belong to no stream."""


@dataclass(frozen=True)
class Place:
    """What a task writes for. The driver commits by the same names."""

    sink: str
    query: str
    run: str
    batch: int

    @property
    def is_of_stream(self) -> bool:
        """Whether a streaming query writes, which an error ends."""
        return self.query not in {"", NUMBERED}


@dataclass(frozen=True)
class Attempt:
    """One try of one task."""

    task: int
    number: int


def stream_place(plan: Plan) -> Place:
    """Of a task of a streaming query."""
    read = current_task().getLocalProperty
    query = _needed(read, QUERY_PROPERTY)
    return Place(plan.sink or query, query, _needed(read, RUN_PROPERTY), int(_needed(read, BATCH_PROPERTY)))


def batch_place(plan: Plan, write_id: str) -> Place:
    """Of a task of a batch write; `write_id` is unique to the write."""
    if plan.sink is None or plan.batch is None:
        return write_place(write_id)
    read = current_task().getLocalProperty
    query, run = read(QUERY_PROPERTY), read(RUN_PROPERTY)
    if query and run:
        return Place(plan.sink, query, run, plan.batch)
    return Place(plan.sink, NUMBERED, write_id, plan.batch)


def write_place(write_id: str) -> Place:
    """Of a batch write that is remembered by no name. The prefix is for access rules."""
    return Place(f"{WRITE_PREFIX}{write_id}", "", write_id, 0)


def attempt() -> Attempt:
    """Of the task that asks. Attempts are numbered through a whole Spark application, since a stage that is run again begins to count anew."""
    context = current_task()
    return Attempt(context.partitionId(), context.taskAttemptId())


def current_task() -> TaskContext:
    """The task that asks.

    Raises:
        InternalError: it does not run in a task.
    """
    found = TaskContext.get()
    if found is None:
        raise InternalError("rows are written outside of a task of Spark")
    return found


def _needed(read: Callable[[str], str | None], name: str) -> str:
    found = read(name)
    if not found:
        raise InternalError(
            f"this version of Spark does not tell tasks {name}, without which no batch can be written exactly once; write with foreachBatch, and sinkId and batchId"
        )
    return found
