"""The buffers that a kernel decodes into, and the Arrow record batch that they become.

Buffers come from Arrow's memory pool, which reuses pages that a consumer has freed: touching fresh
pages costs more than decoding into them. They are as large as the bytes of the batches to decode,
since no column can have more; unused parts are never touched. The record batch takes over the
buffers, cut to size, without a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparrow.spark.kernels.contract import (
    HEADER_NAME_BYTES,
    HEADER_NULLS,
    HEADER_VALUE_BYTES,
    HEADERS,
    KEY_BYTES,
    KEY_NULLS,
    ROWS,
    USED_COLUMNS,
    VALUE_BYTES,
    VALUE_NULLS,
    Wanted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.spark.kernels.contract import Bytes, Int32s, Int64s

HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
"""All columns. The timestamp is in ms; its type is 0 if the publisher set it, 1 if the log did at
append.
"""

_FIRST_HEADERS: Final = 1024


class ByteStrings:
    """Buffers of a column of bytes or text."""

    def __init__(self) -> None:
        self.ends = _allocate(1, np.int32)
        """End of each string in `data`, after a first 0."""
        self.ends[0] = 0
        self.valid = _allocate(0, np.uint8)
        """1, or 0 for null."""
        self.data = _allocate(0, np.uint8)

    def reserve(self, rows: int, size_bytes: int) -> None:
        self.ends = _grown(self.ends, rows + 1)
        self.valid = _grown(self.valid, rows)
        self.data = _grown(self.data, size_bytes)

    def finish(self, kind: Any, rows: int, size_bytes: int, nulls: int) -> Any:
        """Return the Arrow array."""
        buffers = [
            _bitmap(self.valid[:rows]) if nulls else None,
            pa.py_buffer(self.ends[: rows + 1]),
            pa.py_buffer(self.data[:size_bytes]),
        ]
        return pa.Array.from_buffers(kind, rows, buffers, nulls)


class HeaderLists:
    """Buffers of the headers."""

    def __init__(self) -> None:
        self.ends = _allocate(1, np.int32)
        self.ends[0] = 0
        self.names = ByteStrings()
        self.values = ByteStrings()

    def reserve(self, rows: int, headers: int, size_bytes: int) -> None:
        self.ends = _grown(self.ends, rows + 1)
        self.names.reserve(headers, size_bytes)
        self.values.reserve(headers, size_bytes)

    def grow(self) -> None:
        """Make room for twice as many headers."""
        headers = max(_FIRST_HEADERS, 2 * len(self.values.valid))
        self.names.reserve(headers, 0)
        self.values.reserve(headers, 0)

    def finish(self, rows: int, used: Int64s) -> Any:
        """Return the Arrow array: null for a record without headers, as in Spark's Kafka source."""
        count = int(used[HEADERS])
        names = self.names.finish(pa.string(), count, int(used[HEADER_NAME_BYTES]), 0)
        values = self.values.finish(
            pa.binary(), count, int(used[HEADER_VALUE_BYTES]), int(used[HEADER_NULLS])
        )
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
        ends = self.ends[: rows + 1]
        valid = ends[1:] > ends[:-1]
        nulls = rows - int(np.count_nonzero(valid))
        buffers = [_bitmap(valid) if nulls else None, pa.py_buffer(ends)]
        return pa.Array.from_buffers(TYPES["headers"], rows, buffers, nulls, children=[pairs])


class Block:
    """Decoded records that have not been handed over yet.

    Args:
        headers: initial room for headers; if there are more, it grows at the cost of decoding a
            batch again.
    """

    def __init__(self, wanted: Wanted, headers: int = 0) -> None:
        self._wanted = wanted
        self._min_headers = headers
        self.used: Int64s = np.zeros(USED_COLUMNS, np.int64)
        """Used part of each buffer; the columns are numbered in `contract`."""
        self.offsets: Int64s = _allocate(0, np.int64)
        self.timestamps: Int64s = _allocate(0, np.int64)
        self.timestamp_types: Int32s = _allocate(0, np.int32)
        self.key = ByteStrings()
        self.value = ByteStrings()
        self.headers = HeaderLists()

    @property
    def rows(self) -> int:
        return int(self.used[ROWS])

    @property
    def header_room(self) -> int:
        """Return the number of headers that fit."""
        return len(self.headers.values.valid)

    @property
    def content_bytes(self) -> int:
        """Return the bytes of keys, values and headers."""
        used = self.used
        columns = (KEY_BYTES, VALUE_BYTES, HEADER_NAME_BYTES, HEADER_VALUE_BYTES)
        return sum(int(used[column]) for column in columns)

    def reserve(self, rows: int, size_bytes: int) -> None:
        """Make room for this many more records, which come from this many bytes."""
        used = self.used
        total = self.rows + rows
        self.offsets = _grown(self.offsets, total)
        self.timestamps = _grown(self.timestamps, total)
        self.timestamp_types = _grown(self.timestamp_types, total)
        if self._wanted.key:
            self.key.reserve(total, int(used[KEY_BYTES]) + size_bytes)
        if self._wanted.value:
            self.value.reserve(total, int(used[VALUE_BYTES]) + size_bytes)
        if self._wanted.headers:
            strings = max(int(used[HEADER_NAME_BYTES]), int(used[HEADER_VALUE_BYTES]))
            self.headers.reserve(total, self._min_headers, strings + size_bytes)

    def finish(self, columns: Sequence[str], schema: Any) -> Any:
        """Return the Arrow record batch. The block must not be used any more."""
        rows, used = self.rows, self.used
        makers = {
            "key": lambda: self.key.finish(pa.binary(), rows, int(used[KEY_BYTES]), int(used[KEY_NULLS])),
            "value": lambda: self.value.finish(
                pa.binary(), rows, int(used[VALUE_BYTES]), int(used[VALUE_NULLS])
            ),
            "offset": lambda: _numbers(self.offsets, rows),
            "timestamp": lambda: _numbers(self.timestamps, rows),
            "timestampType": lambda: _numbers(self.timestamp_types, rows),
            "headers": lambda: self.headers.finish(rows, used),
        }
        if not columns:
            return pa.RecordBatch.from_struct_array(
                pa.Array.from_buffers(pa.struct([]), rows, [None], children=[])
            )
        return pa.RecordBatch.from_arrays([makers[column]() for column in columns], schema=schema)


def _allocate(count: int, dtype: Any) -> Any:
    """Return a new array in memory of Arrow's pool, not zeroed."""
    size_bytes = count * np.dtype(dtype).itemsize
    return np.frombuffer(pa.allocate_buffer(max(size_bytes, 64)), dtype, count)


def _grown(array: Any, count: int) -> Any:
    """Return the array with room for at least this many values, its content kept."""
    if count <= len(array):
        return array
    # An array with content may grow in small steps; double it, so that copying stays cheap.
    grown = _allocate(count if len(array) <= 1 else max(count, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown


def _bitmap(valid: Bytes | Any) -> Any:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _numbers(array: Any, rows: int) -> Any:
    kind = pa.int64() if array.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array[:rows])], 0)
