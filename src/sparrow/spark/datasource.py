"""`format("sparrow")`: the data source that Spark calls, which delegates to the parts of this
package.

Spark creates this object from options in one process and sends it to others, so it has nothing but
its options. Every part is loaded only when it is asked for.

For each micro-batch of a sink two processes create a writer, and PySpark collects garbage in both
of them afterwards. Modules that are loaded by then are never garbage, and take 25 ms of a
processor to scan: they are exempted.
"""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sparrow.spark.plain_errors import is_in_worker, with_plain_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class SparrowDataSource(DataSource):
    """Topics of a Sparrow broker, to read and to write, in batches and as streams."""

    @classmethod
    def name(cls) -> str:
        return "sparrow"

    @with_plain_errors
    def schema(self) -> StructType:
        from sparrow.spark.options.source import read_source_options
        from sparrow.spark.source.schema import source_schema

        return source_schema(read_source_options(self.options))

    @with_plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        from sparrow.spark.source.batch import batch_reader

        return batch_reader(self.options, schema)

    @with_plain_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark calls it so
        from sparrow.spark.source.stream import stream_reader

        return stream_reader(self.options, schema)

    @with_plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from sparrow.spark.sink.batch import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @with_plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark calls it so
        from sparrow.spark.sink.stream import stream_writer

        if is_in_worker():
            _keep_what_is_loaded()
        return stream_writer(self.options, schema, overwrite)


@cache
def _keep_what_is_loaded() -> None:
    """Exempt everything loaded from garbage collection; once in a process, because present garbage
    also stays.
    """
    gc.freeze()
