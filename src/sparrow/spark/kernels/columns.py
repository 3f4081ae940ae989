"""Arrow columns as the arrays that the encoding kernels read: offsets as int64, content as bytes,
validity as a byte for each row.

Content is not copied. Kernels trust offsets, so they are checked here: they must rise, and end
within the content.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.base.errors import InvalidRecord, InvalidTimestamp
from sparrow.spark.kernels.varints import widths

if TYPE_CHECKING:
    from sparrow.spark.kernels.contract import Bytes, Int64s

_MAX_TIMESTAMP_MS: Final = (1 << 62) - 1
_NO_BYTES: Final = np.zeros(0, np.uint8)
_NARROW: Final = {pa.binary(), pa.string()}
_WIDE: Final = {pa.large_binary(), pa.large_string()}


@dataclass(frozen=True)
class BytesColumn:
    """A column of bytes: row n is `data[offsets[n]:offsets[n + 1]]`, or null."""

    offsets: Int64s
    data: Bytes
    valid: Bytes
    """1, or 0 for null; empty if there is no null."""

    @property
    def has_nulls(self) -> bool:
        return len(self.valid) > 0

    @cached_property
    def lengths(self) -> Int64s:
        """Return the length of each row, -1 for null."""
        lengths = np.diff(self.offsets)
        return np.where(self.valid, lengths, -1) if self.has_nulls else lengths

    @cached_property
    def sizes(self) -> Int64s:
        """Return the bytes that each row takes in a record, with its length field."""
        return widths(self.lengths) + np.maximum(self.lengths, 0)

    def row(self, number: int) -> bytes | None:
        if self.has_nulls and not self.valid[number]:
            return None
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes()


@dataclass(frozen=True)
class HeadersColumn:
    """A column of headers: those of row n are from `offsets[n]` to `offsets[n + 1]`."""

    offsets: Int64s
    names: BytesColumn
    values: BytesColumn


@dataclass(frozen=True)
class Rows:
    """Records to encode."""

    key: BytesColumn
    value: BytesColumn
    headers: HeadersColumn
    has_headers: bool
    timestamps: Int64s
    """Milliseconds."""

    @cached_property
    def sizes(self) -> Int64s:
        """Return the bytes of each row as a record, without its length and the deltas of time and
        offset.
        """
        sizes = 1 + self.key.sizes + self.value.sizes
        if not self.has_headers:
            return sizes + 1
        ends = self.headers.offsets
        contents = np.concatenate(([0], np.cumsum(self.headers.names.sizes + self.headers.values.sizes)))
        return sizes + widths(np.diff(ends)) + contents[ends[1:]] - contents[ends[:-1]]


def bytes_column(name: str, array: Any, rows: int) -> BytesColumn:
    """Convert an Arrow array of binary or text; without an array all rows are null.

    Raises:
        InvalidRecord: an array of another type, or a malformed one.
    """
    if array is None or array.type == pa.null():
        return BytesColumn(np.zeros(rows + 1, np.int64), _NO_BYTES, np.zeros(rows, np.uint8))
    if array.type not in _NARROW | _WIDE:
        array = _as_binary(name, array)
    _, ends, content = array.buffers()
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else _NO_BYTES
    width = np.int32 if array.type in _NARROW else np.int64
    if ends is None or not rows:
        return BytesColumn(np.zeros(rows + 1, np.int64), _NO_BYTES, valid.astype(np.uint8))
    offsets = np.frombuffer(ends, width)[array.offset : array.offset + rows + 1].astype(np.int64)
    data = _NO_BYTES if content is None else np.frombuffer(content, np.uint8)
    if len(offsets) != rows + 1 or offsets[0] < 0 or offsets[-1] > len(data) or np.any(np.diff(offsets) < 0):
        raise InvalidRecord(f"column {name} is malformed: its offsets do not fit its content")
    return BytesColumn(offsets, data, valid.astype(np.uint8))


def _as_binary(name: str, array: Any) -> Any:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_dictionary(kind) or str(kind).endswith("_view"):
        return array.cast(pa.large_binary())
    raise InvalidRecord(f"column {name} must be binary or string, not {kind}; cast it first")


def headers_column(array: Any, rows: int) -> HeadersColumn:
    """Convert an Arrow array of lists of (key, value); a null list is an empty one.

    Raises:
        InvalidRecord: an array of another type; a header without a name, or a null instead of one.
    """
    if array is None or array.type == pa.null():
        nothing = bytes_column("headers", None, 0)
        return HeadersColumn(np.zeros(rows + 1, np.int64), nothing, nothing)
    kind = array.type
    if not _is_headers(kind):
        raise InvalidRecord(
            f"column headers must be an array of (key string, value binary), not {kind}; cast it first"
        )
    pairs = array.flatten()
    names, values = pairs.field("key"), pairs.field("value")
    if pairs.null_count or names.null_count:
        raise InvalidRecord("column headers has a header that is null or has no name")
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    return HeadersColumn(
        np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
        bytes_column("headers.key", names, len(pairs)),
        bytes_column("headers.value", values, len(pairs)),
    )


def _is_headers(kind: Any) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        return False
    pair = kind.value_type
    names = {pair.field(number).name for number in range(pair.num_fields)}
    return names == {"key", "value"} and pair.field("key").type in {pa.string(), pa.large_string()}


def timestamps_column(array: Any, rows: int, default_ms: int) -> Int64s:
    """Return the milliseconds of an Arrow array of int64 (ms) or of timestamps; the default for
    null, and if there is no array.

    Raises:
        InvalidRecord: an array of another type.
        InvalidTimestamp: negative, or beyond 2**62.
    """
    if array is None or array.type == pa.null():
        found = np.full(rows, default_ms, np.int64)
    else:
        found = pc.fill_null(_as_milliseconds(array), default_ms).to_numpy()
    if rows and (found.min() < 0 or found.max() > _MAX_TIMESTAMP_MS):
        raise InvalidTimestamp(
            f"timestamps are milliseconds from 0 to 2**62 since 1970; these are {found.min()} to "
            f"{found.max()}"
        )
    return np.array(found, np.int64)


def _as_milliseconds(array: Any) -> Any:
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    raise InvalidRecord(f"column timestamp must be a timestamp or milliseconds, not {array.type}")
