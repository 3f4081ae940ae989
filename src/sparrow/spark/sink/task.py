"""The work of a writing task: its rows become batches of records in a stage that readers do not see
before the driver commits.

The stage is opened at the first row, so that tasks without rows cost the broker nothing. Batches
leave as soon as they are full, as far as the broker's window allows; the task is done when the last
of them is on stable storage.

The task waits for a broker that is away, since an error would end the query, or cost what was
written. Only the first contact of a batch write fails soon: its address may be wrong.
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
from sparrow.spark.sink.blocks import block_bytes_for, blocks_of
from sparrow.spark.sink.context import WRITE_PREFIX
from sparrow.spark.wire import PATIENCE_S, borrowed, staged
from sparrow.spark.wire.staged import StagedWriter

if TYPE_CHECKING:
    from sparrow.spark.sink.context import TaskAttempt, WriteIdentity
    from sparrow.spark.sink.plan import WritePlan
    from sparrow.spark.wire import Session
    from sparrow.spark.wire.staged import SinkStage

MAX_TOPICS = 1000
_ROOMY_TOPICS = 16
"""Number of topics that get batches of the wanted size; those beyond get smaller ones, so that the
memory of a task stays bounded.
"""
_CRAMPED_BYTES = 64 << 10
_SHOWN_BYTES = 60


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The message of a task to the driver. `stage` is None when it had no rows, or when its batch
    was committed before.
    """

    identity: WriteIdentity
    stage: str | None
    rows: int = 0
    size_bytes: int = 0
    was_committed: bool = False
    """True if the batch had been committed when the task began."""


@dataclass
class _Topic:
    """A topic that the task writes to."""

    encoder: Encoder
    writer: StagedWriter


def write_rows(
    plan: WritePlan, identity: WriteIdentity, attempt: TaskAttempt, batches: Iterable[Any]
) -> Written:
    """Write the rows that Spark hands to a task.

    Raises:
        SinkFenced, SinkTaken, StageExpired, InvalidRecord, …: nothing of the batch is visible then.
    """
    blocks = blocks_of(batches, plan.columns, block_bytes=block_bytes_for(plan.max_batch_bytes))
    first = next(blocks, None)
    if first is None:
        return Written(identity, None)
    with borrowed(plan.target, patience_s=PATIENCE_S if identity.is_of_stream else 0.0) as session:
        opened = _open(session, plan, identity, attempt)
        if opened is None:
            _pass_by(blocks)
            return Written(identity, None, was_committed=True)
        session.patience_s = PATIENCE_S
        filling = _Filling(session, opened, plan, attempt)
        try:
            rows = filling.write_all(chain([first], blocks))
        except StageExpired as error:
            raise StageExpired(f"{error.text} ({plan.stage_timeout})") from None
        except BaseException as error:
            _drop(session, identity, opened, error)
            raise
        return Written(identity, opened.id, rows, filling.size_bytes)


def _drop(session: Session, identity: WriteIdentity, opened: SinkStage, error: BaseException) -> None:
    """Drop the task's own stage at once when it fails, because readers of committed records wait at
    staged records. If the broker is down, it drops the stage when its time is over.
    """
    if isinstance(error, ConnectionLost | TimedOut):
        return
    session.patience_s = 0.0
    with suppress(SparrowError):
        staged.abort(
            session,
            sink=identity.sink,
            query=identity.query,
            run=identity.run,
            batch=identity.batch,
            stages=[opened.id],
        )


def _open(
    session: Session, plan: WritePlan, identity: WriteIdentity, attempt: TaskAttempt
) -> SinkStage | None:
    try:
        return staged.stage(
            session,
            sink=identity.sink,
            query=identity.query,
            run=identity.run,
            batch=identity.batch,
            task=attempt.task,
            attempt=attempt.number,
            timeout_ms=plan.stage_timeout_ms,
            take_over=plan.takes_over,
        )
    except NotAuthorized as error:
        raise NotAuthorized(f"{error.text}: {_guard(plan)}", error.resource_type) from None


def _guard(plan: WritePlan) -> str:
    """Check the rights that the write needs."""
    if plan.sink is not None:
        return "who writes needs WRITE on the transactional id that is called as the sink, and on the topics"
    return (
        "who writes needs WRITE on the topics, and on the transactional id that is called as the "
        "sink: name it by sinkId, or grant"
        f" those that begin with {WRITE_PREFIX!r} (batch writes) or all (streams, whose sinks are "
        "called by the ids of their queries)"
    )


def _pass_by(blocks: Iterator[Any]) -> None:
    """Consume the rows of a batch that was committed before: Spark discards a worker that leaves
    rows behind.
    """
    for _ in blocks:
        pass


@dataclass
class _Filling:
    """A stage that is being written to."""

    session: Session
    stage: SinkStage
    plan: WritePlan
    attempt: TaskAttempt
    topics: dict[str, _Topic] = field(default_factory=dict)
    size_bytes: int = 0

    def write_all(self, blocks: Iterable[Any]) -> int:
        """Write blocks, wait until all is on stable storage, and return the number of rows."""
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
        # Records without a time get the time of writing.
        for batch in into.encoder.encode(rows, timestamp_ms=time.time_ns() // 1_000_000):
            into.writer.publish(batch.partition, batch.data)
            self.size_bytes += len(batch.data)

    def _begin(self, topic: str) -> _Topic:
        if len(self.topics) >= MAX_TOPICS:
            raise InvalidArgument(
                f"the rows of one task go to more than {MAX_TOPICS} topics; repartition them by "
                "topic, or write the topics one by one"
            )
        writer = StagedWriter(self.session, self.stage, topic)
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
    """Yield the rows of each topic that the column `topic` names, in their order.

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
