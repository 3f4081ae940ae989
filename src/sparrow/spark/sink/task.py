"""What a task does: its rows become batches of records in a stage that nobody reads before the driver commits.

The stage is opened at the first row, so that tasks without rows cost the broker nothing. Batches leave as soon as they are full, as far as the broker's window allows;
the task is done when the last of them is on stable storage.

A broker that is away is waited for, since an error would end the query, or cost what was written. Only the first contact of a batch write fails soon: its address may be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    NotAuthorized,
    SparrowError,
    StageExpired,
    TimedOut,
)
from sparrow.spark.kernels import EncodeOptions, Encoder
from sparrow.spark.sink.context import WRITE_PREFIX
from sparrow.spark.sink.gathering import block_bytes_for, blocks_of
from sparrow.spark.wire import PATIENCE_S, borrowed, staging
from sparrow.spark.wire.staging import StagedWriter

if TYPE_CHECKING:
    from sparrow.spark.sink.context import Attempt, Place
    from sparrow.spark.sink.plan import Plan
    from sparrow.spark.wire import Link
    from sparrow.spark.wire.staging import Stage

MAX_TOPICS = 1000
_ROOMY_TOPICS = 16
"""So many topics get batches as large as wanted; those beyond get smaller ones, so that the memory of a task stays bounded."""
_CRAMPED_BYTES = 64 << 10
_SHOWN_BYTES = 60


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver. `stage` is None when it had no rows, or when its batch was committed before."""

    place: Place
    stage: str | None
    rows: int = 0
    size_bytes: int = 0
    was_committed: bool = False
    """The batch had been committed when the task began."""


@dataclass
class _Topic:
    """A topic that the task writes to."""

    encoder: Encoder
    writer: StagedWriter


def write_rows(plan: Plan, place: Place, attempt: Attempt, batches: Iterable[Any]) -> Written:
    """Write what Spark hands to a task.

    Raises:
        SinkFenced, SinkTaken, StageExpired, InvalidRecord, …: nothing of the batch is visible then.
    """
    blocks = blocks_of(batches, plan.columns, block_bytes=block_bytes_for(plan.max_batch_bytes))
    first = next(blocks, None)
    if first is None:
        return Written(place, None)
    with borrowed(plan.target, patience_s=PATIENCE_S if place.is_of_stream else 0.0) as link:
        opened = _open(link, plan, place, attempt)
        if opened is None:
            _pass_by(blocks)
            return Written(place, None, was_committed=True)
        link.patience_s = PATIENCE_S
        filling = _Filling(link, opened, plan, attempt)
        try:
            rows = filling.write_all(chain([first], blocks))
        except StageExpired as error:
            raise StageExpired(f"{error.text} ({plan.stage_timeout})") from None
        except BaseException as error:
            _drop(link, place, opened, error)
            raise
        return Written(place, opened.id, rows, filling.size_bytes)


def _drop(link: Link, place: Place, opened: Stage, error: BaseException) -> None:
    """Readers of committed records wait at what is staged, so a task that fails takes its own back at once. A broker that is not there does so when the time is over."""
    if isinstance(error, ConnectionLost | TimedOut):
        return
    link.patience_s = 0.0
    with suppress(SparrowError):
        staging.abort(
            link, sink=place.sink, query=place.query, run=place.run, batch=place.batch, stages=[opened.id]
        )


def _open(link: Link, plan: Plan, place: Place, attempt: Attempt) -> Stage | None:
    try:
        return staging.stage(
            link,
            sink=place.sink,
            query=place.query,
            run=place.run,
            batch=place.batch,
            task=attempt.task,
            attempt=attempt.number,
            timeout_ms=plan.stage_timeout_ms,
            take_over=plan.takes_over,
        )
    except NotAuthorized as error:
        raise NotAuthorized(f"{error.text}: {_guard(plan)}", error.resource_type) from None


def _guard(plan: Plan) -> str:
    """What must be granted."""
    if plan.sink is not None:
        return "who writes needs WRITE on the transactional id that is called as the sink, and on the topics"
    return (
        "who writes needs WRITE on the topics, and on the transactional id that is called as the sink: name it by sinkId, or grant"
        f" those that begin with {WRITE_PREFIX!r} (batch writes) or all (streams, whose sinks are called by the ids of their queries)"
    )


def _pass_by(blocks: Iterator[Any]) -> None:
    """Take the rows of a batch that was committed before: a worker that leaves rows behind is thrown away by Spark."""
    for _ in blocks:
        pass


@dataclass
class _Filling:
    """A stage that is being written to."""

    link: Link
    stage: Stage
    plan: Plan
    attempt: Attempt
    topics: dict[str, _Topic] = field(default_factory=dict)
    size_bytes: int = 0

    def write_all(self, blocks: Iterable[Any]) -> int:
        """Write blocks, and wait until all is on stable storage; how many rows they had."""
        rows = 0
        try:
            for block in blocks:
                self._write_block(block)
                rows += block.num_rows
            for each in self.topics.values():
                each.writer.finish()
        finally:
            for each in self.topics.values():
                each.writer.close()
        return rows

    def _write_block(self, block: Any) -> None:
        if self.plan.topic is not None:
            self._write(self.plan.topic, block)
            return
        for topic, rows in by_topic(block):
            self._write(topic, rows)

    def _write(self, topic: str, rows: Any) -> None:
        into = self.topics.get(topic) or self._begin(topic)
        # Records without a time of their own get that at which they are written.
        for batch in into.encoder.encode(rows, timestamp_ms=time.time_ns() // 1_000_000):
            into.writer.publish(batch.partition, batch.data)
            self.size_bytes += len(batch.data)

    def _begin(self, topic: str) -> _Topic:
        if len(self.topics) >= MAX_TOPICS:
            raise InvalidArgument(
                f"the rows of one task go to more than {MAX_TOPICS} topics; repartition them by topic, or write the topics one by one"
            )
        writer = StagedWriter(self.link, self.stage, topic)
        roomy = len(self.topics) < _ROOMY_TOPICS
        wanted = self.plan.max_batch_bytes if roomy else min(self.plan.max_batch_bytes, _CRAMPED_BYTES)
        options = EncodeOptions(
            partitions=writer.partitions,
            compression=self.plan.compression,
            max_batch_bytes=wanted,
            transactional=True,
            producer_id=self.stage.producer_id,
            producer_epoch=self.stage.producer_epoch,
            has_sequences=True,
        )
        self.topics[topic] = made = _Topic(Encoder(options, first_unkeyed=self.attempt.task), writer)
        return made


def by_topic(block: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each topic that the column `topic` names, in their order.

    Raises:
        InvalidArgument: a row names none.
    """
    column = block.column("topic")
    if column.null_count:
        raise InvalidArgument(_without_topic(block, pc.index(column.is_null(), True).as_py()))
    names = pc.unique(column).to_pylist()
    if len(names) == 1:
        yield names[0], block
        return
    for name in names:
        yield name, block.filter(pc.equal(column, pa.scalar(name, column.type)))


def _without_topic(block: Any, row: int) -> str:
    shown = ", ".join(
        f"{name} {_shown(block.column(name)[row].as_py())}"
        for name in ("key", "value", "partition")
        if name in block.schema.names
    )
    return (
        f"a row names no topic, its column topic is null: {shown}; fill the column, or give the option topic"
    )


def _shown(value: Any) -> str:
    text = repr(value[:_SHOWN_BYTES] if isinstance(value, bytes | str) else value)
    return f"{text}…" if isinstance(value, bytes | str) and len(value) > _SHOWN_BYTES else text
