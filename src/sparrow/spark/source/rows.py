"""Conversion of decoded records to the columns of the schema.

Spark compares the Arrow schema with its own for equality, so batches are made with the schema that
Spark derives. Values that all rows of a partition have in common are made once and sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_OF_THE_RANGE: Final = ("topic", "partition")
_MAX_MS: Final = ((1 << 63) - 1) // 1000
"""Largest time that fits as microseconds: the year 294246."""
MAX_ROWS: Final = 1 << 17
"""Rows of one batch, so that the names of topics, which have up to 249 characters, take at most 32
MB.
"""


class SourceRows:
    """Columns of one partition, block after block."""

    def __init__(self, schema: StructType, columns: Sequence[str], topic: str, partition: int) -> None:
        self._schema: Any = arrow_schema(schema)
        self._columns = columns
        self._topic = topic
        self._partition = partition
        self._rows = 0
        self._same: dict[str, Any] = {}

    def batches(self, decoded: Any) -> Iterator[Any]:
        """Yield the record batches for Spark from those of the decoder."""
        for first in range(0, decoded.num_rows, MAX_ROWS):
            yield self._batch(decoded.slice(first, MAX_ROWS))

    def _batch(self, decoded: Any) -> Any:
        rows = decoded.num_rows
        if rows > self._rows:
            self._prepare(rows)
        return pa.RecordBatch.from_arrays(
            [self._column(name, decoded, rows) for name in self._columns], schema=self._schema
        )

    def _column(self, name: str, decoded: Any, rows: int) -> Any:
        if name in self._same:
            return self._same[name].slice(0, rows)
        column = decoded.column(name)
        change = _CHANGES.get(name)
        return column if change is None else change(column)

    def _prepare(self, rows: int) -> None:
        self._rows = rows = max(rows, min(2 * self._rows, MAX_ROWS))
        if "topic" in self._columns:
            self._same["topic"] = _repeated(self._topic, rows)
        if "partition" in self._columns:
            self._same["partition"] = pa.array(np.full(rows, self._partition, np.int32))


def arrow_schema(schema: StructType) -> Any:
    return to_arrow_schema(schema, timezone="UTC")


def decoded_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the decoder must give for these: at least one, to count rows by;
    offsets cost next to nothing.
    """
    return tuple(name for name in columns if name not in _OF_THE_RANGE) or ("offset",)


def _timestamps(column: Any) -> Any:
    """Convert milliseconds to timestamps of Spark, which are in microseconds. Times beyond these
    become the last or first one.
    """
    times = np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
    if len(times) and (times.max() > _MAX_MS or times.min() < -_MAX_MS):
        times = np.clip(times, -_MAX_MS, _MAX_MS)
    return pa.Array.from_buffers(
        pa.timestamp("us", tz="UTC"), len(column), [None, pa.py_buffer(times * 1000)]
    )


def _headers(column: Any) -> Any:
    """Return headers, null where there are none, as in Spark's Kafka source."""
    rows, first = len(column), column.offset
    buffers = column.buffers()
    are_there = np.diff(np.frombuffer(buffers[1], np.int32, first + rows + 1)) > 0
    if are_there.all():
        return column
    bits = pa.py_buffer(np.packbits(are_there, bitorder="little"))
    return pa.Array.from_buffers(
        column.type, rows, [bits, buffers[1]], offset=first, children=[column.values]
    )


_CHANGES: Final[dict[str, Callable[[Any], Any]]] = {"timestamp": _timestamps, "headers": _headers}
"""Columns that the decoder and Spark represent differently."""


def _repeated(text: str, rows: int) -> Any:
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(data * rows))
