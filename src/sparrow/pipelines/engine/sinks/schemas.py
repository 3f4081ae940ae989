"""Spark's schema converted to Arrow's, for tables that are made by other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from sparrow.pipelines.engine.sinks.datafiles import plain_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the types that the files of `datafiles` have."""
    return plain_types(to_arrow_schema(schema, timezone="UTC"))
