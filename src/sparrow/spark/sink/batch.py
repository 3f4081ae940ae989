"""`df.write.format("sparrow")`: one write, visible as a whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparrow.base.errors import InvalidArgument
from sparrow.spark.plain_errors import with_plain_errors
from sparrow.spark.sink import committer, context
from sparrow.spark.sink.plan import WritePlan, plan_of
from sparrow.spark.sink.task import write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):
    """The writer; Spark creates it once and sends it to the tasks, and to where the write is
    committed.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._write_id = str(uuid.uuid4())

    @with_plain_errors
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        identity = context.batch_identity(self._plan, self._write_id)
        return write_rows(self._plan, identity, context.attempt(), iterator)

    @with_plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        committer.commit(self._plan, messages)

    @with_plain_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # When no task was done, no message says what was written.
        own = None if self._plan.sink is not None else context.write_identity(self._write_id)
        committer.abort(self._plan, messages, otherwise=own)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch.

    Raises:
        InvalidArgument: options or columns are wrong, all named; or the topic would be overwritten.
    """
    if overwrite:
        raise InvalidArgument(
            "a topic cannot be overwritten, rows are only added to it; say mode('append'), and "
            "delete the topic or its records first if they must go"
        )
    plan = plan_of(schema, options)
    if plan.sink is not None and plan.batch is None:
        raise InvalidArgument(
            "sinkId is given without batchId; a batch write has both, so that its number says "
            "whether it was written before, or none"
        )
    return BatchWriter(plan)
