"""`df.writeStream.format("sparrow")`: each micro-batch once, whatever is killed and run again.

Spark creates a writer in one process for the tasks and another one for each commit, so a writer has
nothing but its plan: the identity of a commit travels in the tasks' messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sparrow.base.errors import InternalError, InvalidArgument
from sparrow.spark.plain_errors import with_plain_errors
from sparrow.spark.sink import committer, context
from sparrow.spark.sink.plan import WritePlan, plan_of
from sparrow.spark.sink.task import write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer. Rows of complete mode are written as they come. Update mode never gets here:
    Spark has none for Python data sources.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @with_plain_errors
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(self._plan, context.stream_identity(self._plan), context.attempt(), iterator)

    @with_plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        identity = committer.identity_of(committer.written_of(messages))
        if identity is not None and identity.batch != batchId:
            raise InternalError(
                f"Spark commits batch {batchId}, and its tasks wrote for batch {identity.batch}"
            )
        committer.commit(self._plan, messages)

    @with_plain_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's names
        committer.abort(self._plan, messages)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG001 - as Spark hands it
    """Return the writer of a stream; `overwrite` is complete mode, which a topic takes as it takes
    all others.

    Raises:
        InvalidArgument: options or columns are wrong, all named.
    """
    plan = plan_of(schema, options)
    if plan.batch is not None:
        raise InvalidArgument("batchId is for batch writes; a stream numbers its batches itself")
    return StreamWriter(plan)
