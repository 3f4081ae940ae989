"""`df.write.format("sparrow")`: one write, visible as a whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparrow.base.errors import InvalidArgument
from sparrow.spark.plainly import told_plainly
from sparrow.spark.sink import committing, context
from sparrow.spark.sink.plan import Plan, plan_of
from sparrow.spark.sink.task import write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):
    """Spark makes it once and sends it to the tasks, and to where the write is committed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._write_id = str(uuid.uuid4())

    @told_plainly
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        place = context.batch_place(self._plan, self._write_id)
        return write_rows(self._plan, place, context.attempt(), iterator)

    @told_plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        committing.commit(self._plan, messages)

    @told_plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # When no task was done, none tells what it wrote for.
        own = None if self._plan.sink is not None else context.write_place(self._write_id)
        committing.abort(self._plan, messages, otherwise=own)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of a batch.

    Raises:
        InvalidArgument: options or columns are wrong, all named; or the topic is to be overwritten.
    """
    if overwrite:
        raise InvalidArgument(
            "a topic cannot be overwritten, rows are only added to it; say mode('append'), and delete the topic or its records first if they must go"
        )
    plan = plan_of(schema, options)
    if plan.sink is not None and plan.batch is None:
        raise InvalidArgument(
            "sinkId is given without batchId; a batch write has both, so that its number says whether it was written before, or none"
        )
    return BatchWriter(plan)
