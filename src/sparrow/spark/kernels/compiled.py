"""The kernels as machine code: loops over single records, compiled by numba.

**Bounds.** Nothing here raises, and nothing reads or writes outside its arrays, whatever the bytes
contain: every number and every length is checked against the end of its record before it is used,
and writes are limited by these checks or, for headers, by the room in the block. A fault becomes a
status; `Decoder._explain` turns it into text. A batch is decoded as a whole or not at all: `used`
is only advanced after its last record.

**No late compilation.** Every function that is called from outside has its one signature here, so
importing this module compiles all of them (some seconds) or loads them from numba's cache (a
fraction of one); afterwards other types are refused. The cache only watches the file of a function,
so all functions are in one file.

**Long loops.** If a function gets arrays and passes them on in only one of its branches, numba
counts references to each of them, which takes several times as long as the loop itself. So the two
loops are written out, and only functions of one array are called from them.

With `NUMBA_DISABLE_JIT=1` the same loops run as Python, each access checked; tests use that.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sparrow.spark.kernels import checksums
from sparrow.spark.kernels.contract import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CORRUPT,
    COUNT,
    END,
    FULL,
    HEADER_NAME_BYTES,
    HEADER_NULLS,
    HEADER_VALUE_BYTES,
    HEADERS,
    HIGH,
    KEY_BYTES,
    KEY_NULLS,
    LAST_DELTA,
    LOG_APPEND,
    LOW,
    MAX_TIMESTAMP,
    OK,
    ROWS,
    START,
    VALUE_BYTES,
    VALUE_NULLS,
)

if TYPE_CHECKING:
    from sparrow.spark.kernels.block import Block
    from sparrow.spark.kernels.columns import BytesColumn, Rows
    from sparrow.spark.kernels.contract import Bytes, Int64s, UInt32s, Wanted

_COMPILED: Final = {"cache": True, "nogil": True, "error_model": "numpy"}
_INNER: Final = {"nogil": True, "error_model": "numpy", "forceinline": True}

_READ: Final = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES: Final = types.uint8[::1]
_INT32S: Final = types.int32[::1]
_INT64S: Final = types.int64[::1]
_TABLE: Final = types.int64[:, ::1]
_INT: Final = types.int64
_FLAG: Final = types.boolean

HAS_CRC: Final[bool] = (
    platform.machine() in {"x86_64", "AMD64"}
    and bool(llvmlite.binding.get_host_cpu_features().get("sse4.2"))
    and not (config.DISABLE_JIT or config.CPU_NAME or config.CPU_FEATURES)
)
"""True if the CRC-32C instruction of this processor can be used. The sum then takes as long as the
copy that the library needs.
"""

# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────


@intrinsic
def _copy(_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    """Copy bytes (memcpy). The caller has checked the bounds of both arrays."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_at, source, source_at, count = arguments
        to = context.make_array(signature.args[0])(context, builder, target).data
        start = context.make_array(signature.args[2])(context, builder, source).data
        cgutils.raw_memcpy(builder, builder.gep(to, [target_at]), builder.gep(start, [source_at]), count, 1)
        return context.get_dummy_value()

    return types.void(target, _INT, source, _INT, _INT), generate


def _sum_step(bits: int) -> Any:
    """Return an intrinsic that adds `bits` bits at a position of an array to a CRC."""
    name = f"llvm.x86.sse42.crc32.{64 if bits == 64 else 32}.{bits}"

    @intrinsic
    def step(_context: Any, crc: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            crc, data, at = arguments
            word, register = ir.IntType(bits), ir.IntType(64 if bits == 64 else 32)
            start = context.make_array(signature.args[1])(context, builder, data).data
            loaded = builder.load(builder.bitcast(builder.gep(start, [at]), word.as_pointer()))
            loaded.align = 1
            kind = ir.FunctionType(register, [register, word])
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            narrow = crc if bits == 64 else builder.trunc(crc, register)
            found = builder.call(function, [narrow, loaded])
            return found if bits == 64 else builder.zext(found, ir.IntType(64))

        return types.uint64(types.uint64, data, _INT), generate

    return step


_crc_of_word = _sum_step(64)
_crc_of_byte = _sum_step(8)

if config.DISABLE_JIT:

    def _copy(target: Any, target_at: int, source: Any, source_at: int, count: int) -> None:
        assert 0 <= target_at <= target_at + count <= len(target), "written behind the end"
        assert 0 <= source_at <= source_at + count <= len(source), "read behind the end"
        target[target_at : target_at + count] = source[source_at : source_at + count]


@njit(**_INNER)
def _crc(data: Any, start: int, end: int) -> Any:
    crc = np.uint64(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        crc = _crc_of_word(crc, data, at)
        at += 8
    while at < end:
        crc = _crc_of_byte(crc, data, at)
        at += 1
    return crc ^ np.uint64(0xFFFFFFFF)


if HAS_CRC:

    @njit(types.void(_READ, _INT64S, _INT64S, _INT64S), **_COMPILED)
    def _crcs(data: Any, starts: Any, ends: Any, found: Any) -> None:
        for number in range(len(starts)):
            found[number] = np.int64(_crc(data, starts[number], ends[number]))


def crcs(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the CRC-32C of each of these ranges, which lie within the data."""
    if not HAS_CRC:
        return checksums.crcs(data, starts, ends)
    found = np.empty(len(starts), np.int64)
    _crcs(data, starts, ends, found)
    return found


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────


@njit(**_INNER)
def _varint(data: Any, at: int, end: int) -> Any:
    """Return the 32-bit number at `at` and the position after it, or -1 as the position if the
    number does not end before `end` or does not fit.
    """
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(data[at])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), np.int64(at + 1)
    folded = byte & 0x7F
    shift = np.int64(7)
    for index in range(at + 1, min(at + 5, end)):
        byte = np.int64(data[index])
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> 32:
                return np.int64(0), np.int64(-1)
            return (folded >> 1) ^ -(folded & 1), np.int64(index + 1)
        shift += 7
    return np.int64(0), np.int64(-1)


@njit(**_INNER)
def _varlong(data: Any, at: int, end: int) -> Any:
    """Return the 64-bit number at `at`, otherwise as `_varint`."""
    if at < end:
        byte = np.int64(data[at])
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), np.int64(at + 1)
    folded = np.uint64(0)
    shift = np.int64(0)
    for index in range(at, min(at + 10, end)):
        byte = np.int64(data[index])
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(-1)
        folded |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return (
                np.int64(folded >> np.uint64(1)) ^ -np.int64(folded & np.uint64(1)),
                np.int64(index + 1),
            )
        shift += 7
    return np.int64(0), np.int64(-1)


@njit(**_INNER)
def _length(data: Any, at: int, end: int) -> Any:
    """Return the length at `at` (-1: null) and the position of its content, or -1 as the position
    if the content does not end before `end`.
    """
    length, start = _varint(data, at, end)
    if start < 0 or length < -1 or length > end - start:
        return np.int64(0), np.int64(-1)
    return length, start


@njit(**_INNER)
def _fold(number: int) -> Any:
    return (np.uint64(number) << np.uint64(1)) ^ np.uint64(number >> 63)


@njit(**_INNER)
def _width(number: int) -> Any:
    """Return the number of bytes that the number takes."""
    if -0x40 <= number < 0x40:
        return np.int64(1)
    if -0x2000 <= number < 0x2000:
        return np.int64(2)
    folded = _fold(number) >> np.uint64(14)
    width = np.int64(3)
    while folded > np.uint64(0x7F):
        folded >>= np.uint64(7)
        width += 1
    return width


@njit(**_INNER)
def _put(out: Any, at: int, number: int) -> Any:
    """Write the number and return the position after it. The caller has checked that there is
    room.
    """
    folded = _fold(number)
    if folded <= np.uint64(0x7F):
        out[at] = np.uint8(folded)
        return at + 1
    while folded > np.uint64(0x7F):
        out[at] = np.uint8(folded & np.uint64(0x7F) | np.uint64(0x80))
        folded >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(folded)
    return at + 1


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


@njit(**_INNER)
def _is_utf8(data: Any, at: Any, end: Any) -> bool:
    """Return True if the bytes are well-formed by RFC 3629: no overlong forms, no surrogates,
    nothing above 10FFFF.
    """
    while at < end:
        first = np.int64(data[at])
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 + (first >= 0xE0) + (first >= 0xF0)
        if more > end - at:
            return False
        second = np.int64(data[at])
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        for index in range(at, at + more):
            if np.int64(data[index]) & 0xC0 != 0x80:
                return False
        at += more
    return True


@njit(
    types.UniTuple(_INT, 2)(
        *(_READ, _TABLE, _INT, _FLAG, _FLAG, _FLAG, _INT64S),
        *(_INT64S, _INT64S, _INT32S),
        *(_INT32S, _BYTES, _BYTES),
        *(_INT32S, _BYTES, _BYTES),
        *(_INT32S, _INT32S, _BYTES, _INT32S, _BYTES, _BYTES),
    ),
    **_COMPILED,
)
def _decode(
    data: Any,
    table: Any,
    first: int,
    wants_key: bool,
    wants_value: bool,
    wants_headers: bool,
    used: Any,
    offsets: Any,
    timestamps: Any,
    timestamp_types: Any,
    key_ends: Any,
    keys: Any,
    key_valid: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    header_ends: Any,
    header_name_ends: Any,
    header_names: Any,
    header_value_ends: Any,
    header_values: Any,
    header_valid: Any,
) -> Any:
    for batch in range(first, len(table)):
        row, key_nulls, value_nulls = used[ROWS], used[KEY_NULLS], used[VALUE_NULLS]
        keys_at, values_at = used[KEY_BYTES], used[VALUE_BYTES]
        header, header_nulls = used[HEADERS], used[HEADER_NULLS]
        names_at, header_values_at = used[HEADER_NAME_BYTES], used[HEADER_VALUE_BYTES]
        position, stop = table[batch, START], table[batch, END]
        base_offset, base_timestamp = table[batch, BASE_OFFSET], table[batch, BASE_TIMESTAMP]
        max_timestamp, is_log_append = table[batch, MAX_TIMESTAMP], table[batch, LOG_APPEND]
        low, high = table[batch, LOW], table[batch, HIGH]
        least = np.int64(0)
        for _ in range(table[batch, COUNT]):
            length, at = _varint(data, position, stop)
            if at < 0 or length < 6 or length > stop - at:
                return CORRUPT, batch
            position = at + length
            timestamp_delta, at = _varlong(data, at + 1, position)
            if at < 0:
                return CORRUPT, batch
            delta, at = _varint(data, at, position)
            if at < 0 or delta < least:
                return CORRUPT, batch
            least = delta + 1
            key_length, key_at = _length(data, at, position)
            if key_at < 0:
                return CORRUPT, batch
            value_length, value_at = _length(data, key_at + max(key_length, 0), position)
            if value_at < 0:
                return CORRUPT, batch
            at = value_at + max(value_length, 0)
            if at >= position:  # No room for the number of headers.
                return CORRUPT, batch
            is_kept = low <= delta < high
            if wants_headers:
                count, at = _varint(data, at, position)
                if at < 0 or count < 0 or count * 2 > position - at:
                    return CORRUPT, batch
                if header + count > len(header_valid):
                    return FULL, batch
                header_end, nulls = header, np.int64(0)
                names_end, header_values_end = names_at, header_values_at
                for _ in range(count):
                    length, start = _length(data, at, position)
                    if start < 0 or length < 0 or not _is_utf8(data, start, start + length):
                        return CORRUPT, batch
                    _copy(header_names, names_end, data, start, length)
                    names_end += length
                    length, at = _length(data, start + length, position)
                    if at < 0:
                        return CORRUPT, batch
                    if length < 0:
                        nulls += 1
                        header_valid[header_end] = 0
                    else:
                        header_valid[header_end] = 1
                        _copy(header_values, header_values_end, data, at, length)
                        header_values_end += length
                        at += length
                    header_end += 1
                    header_name_ends[header_end] = names_end
                    header_value_ends[header_end] = header_values_end
                if at != position:
                    return CORRUPT, batch
                if is_kept:
                    header, header_nulls = header_end, header_nulls + nulls
                    names_at, header_values_at = names_end, header_values_end
            if not is_kept:
                continue
            if wants_key:
                if key_length < 0:
                    key_nulls += 1
                    key_valid[row] = 0
                else:
                    key_valid[row] = 1
                    _copy(keys, keys_at, data, key_at, key_length)
                    keys_at += key_length
                key_ends[row + 1] = keys_at
            if wants_value:
                if value_length < 0:
                    value_nulls += 1
                    value_valid[row] = 0
                else:
                    value_valid[row] = 1
                    _copy(values, values_at, data, value_at, value_length)
                    values_at += value_length
                value_ends[row + 1] = values_at
            if wants_headers:
                header_ends[row + 1] = header
            offsets[row] = base_offset + delta
            timestamps[row] = max_timestamp if is_log_append else base_timestamp + timestamp_delta
            timestamp_types[row] = is_log_append
            row += 1
        if position != stop or least > table[batch, LAST_DELTA] + 1:
            return CORRUPT, batch
        used[ROWS], used[KEY_NULLS], used[VALUE_NULLS] = row, key_nulls, value_nulls
        used[KEY_BYTES], used[VALUE_BYTES] = keys_at, values_at
        used[HEADERS], used[HEADER_NULLS] = header, header_nulls
        used[HEADER_NAME_BYTES], used[HEADER_VALUE_BYTES] = names_at, header_values_at
    return OK, len(table)


def decode(data: Bytes, table: Int64s, first: int, wanted: Wanted, block: Block) -> tuple[int, int]:
    """Decode the batches of `table` from number `first` on into the block.

    The block has room for all their rows, keys and values, and for the bytes of their headers.

    Returns: a status, and the number of the batch that it is about (the number after the last one
    with OK). Batches before it are in the block, others are not.
    """
    key, value, headers = block.key, block.value, block.headers
    status, batch = _decode(
        data, table, first, wanted.key, wanted.value, wanted.headers, block.used,
        block.offsets, block.timestamps, block.timestamp_types,
        key.ends, key.data, key.valid,
        value.ends, value.data, value.valid,
        headers.ends, headers.names.ends, headers.names.data,
        headers.values.ends, headers.values.data, headers.values.valid,
    )  # fmt: skip
    return int(status), int(batch)


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────


@njit(
    types.UniTuple(_INT, 3)(
        *(_INT64S, _INT, _INT, _INT64S),
        *(_INT64S, _READ, _BYTES, _FLAG),
        *(_INT64S, _READ, _BYTES, _FLAG),
        *(_FLAG, _INT64S),
        *(_INT64S, _READ, _INT64S, _READ, _BYTES, _FLAG),
        *(_BYTES, _INT, _INT),
    ),
    **_COMPILED,
)
def _encode(
    rows: Any,
    first: int,
    last: int,
    timestamps: Any,
    key_offsets: Any,
    keys: Any,
    key_valid: Any,
    key_nulls: bool,
    value_offsets: Any,
    values: Any,
    value_valid: Any,
    value_nulls: bool,
    has_headers: bool,
    header_offsets: Any,
    name_offsets: Any,
    names: Any,
    header_value_offsets: Any,
    header_values: Any,
    header_valid: Any,
    header_nulls: bool,
    out: Any,
    start: int,
    limit: int,
) -> Any:
    """Encode as `encode` says. A record is measured before it is written, so its room is known."""
    base_timestamp = timestamps[rows[first]]
    at = start
    for number in range(first, last):
        row = rows[number]
        timestamp_delta = timestamps[row] - base_timestamp
        delta = number - first
        key_length = key_offsets[row + 1] - key_offsets[row]
        if key_nulls and key_valid[row] == 0:
            key_length = np.int64(-1)
        value_length = value_offsets[row + 1] - value_offsets[row]
        if value_nulls and value_valid[row] == 0:
            value_length = np.int64(-1)
        size = 1 + _width(timestamp_delta) + _width(delta)
        size += _width(key_length) + max(key_length, 0) + _width(value_length) + max(value_length, 0)
        header_start = header_end = np.int64(0)
        if has_headers:
            header_start, header_end = header_offsets[row], header_offsets[row + 1]
            for header in range(header_start, header_end):
                length = name_offsets[header + 1] - name_offsets[header]
                size += _width(length) + length
                length = header_value_offsets[header + 1] - header_value_offsets[header]
                if header_nulls and header_valid[header] == 0:
                    length = np.int64(-1)
                size += _width(length) + max(length, 0)
        size += _width(header_end - header_start)
        end = at + _width(size) + size
        if end > limit and number > first:
            return number, at, np.int64(0)
        if end > len(out):
            return number, at, end
        at = _put(out, at, size)
        out[at] = 0
        at = _put(out, at + 1, timestamp_delta)
        at = _put(out, at, delta)
        at = _put(out, at, key_length)
        if key_length > 0:
            _copy(out, at, keys, key_offsets[row], key_length)
            at += key_length
        at = _put(out, at, value_length)
        if value_length > 0:
            _copy(out, at, values, value_offsets[row], value_length)
            at += value_length
        at = _put(out, at, header_end - header_start)
        for header in range(header_start, header_end):
            length = name_offsets[header + 1] - name_offsets[header]
            at = _put(out, at, length)
            _copy(out, at, names, name_offsets[header], length)
            at += length
            length = header_value_offsets[header + 1] - header_value_offsets[header]
            if header_nulls and header_valid[header] == 0:
                length = np.int64(-1)
            at = _put(out, at, length)
            if length > 0:
                _copy(out, at, header_values, header_value_offsets[header], length)
                at += length
    return last, at, np.int64(0)


def encode(
    rows: Rows, order: Int64s, first: int, last: int, out: Bytes, *, start: int, limit: int
) -> tuple[int, int, int]:
    """Write the records of rows `order[first:last]` to `out` from `start` on, one after the other,
    while they end at or before `limit`; the first one in any case.

    Returns: the position in `order` after the last written row, the end of the records in `out`,
    and 0; or, if `out` is too short, the length that it needs at least.
    """
    key, value, headers = rows.key, rows.value, rows.headers
    end, at, needed = _encode(
        order, first, last, rows.timestamps,
        key.offsets, key.data, key.valid, key.has_nulls,
        value.offsets, value.data, value.valid, value.has_nulls,
        rows.has_headers, headers.offsets,
        headers.names.offsets, headers.names.data,
        headers.values.offsets, headers.values.data, headers.values.valid, headers.values.has_nulls,
        out, start, limit,
    )  # fmt: skip
    return int(end), int(at), int(needed)


# ── partitions ────────────────────────────────────────────────────────────────────────────────────


@njit(types.void(_INT64S, _READ, types.uint32[::1]), **_COMPILED)
def _murmur2(offsets: Any, data: Any, found: Any) -> None:
    factor = np.uint32(0x5BD1E995)
    for row in range(len(found)):
        at, end = offsets[row], offsets[row + 1]
        folded = np.uint32(0x9747B28C) ^ np.uint32(end - at)
        while at + 4 <= end:
            word = np.uint32(
                np.uint32(data[at])
                | np.uint32(data[at + 1]) << np.uint32(8)
                | np.uint32(data[at + 2]) << np.uint32(16)
                | np.uint32(data[at + 3]) << np.uint32(24)
            )
            word = np.uint32(word * factor)
            word = np.uint32((word ^ word >> np.uint32(24)) * factor)
            folded = np.uint32(np.uint32(folded * factor) ^ word)
            at += 4
        if at < end:
            rest = np.uint32(0)
            for index in range(end - 1, at - 1, -1):
                rest = np.uint32(rest << np.uint32(8) | np.uint32(data[index]))
            folded = np.uint32((folded ^ rest) * factor)
        folded = np.uint32((folded ^ folded >> np.uint32(13)) * factor)
        found[row] = folded ^ folded >> np.uint32(15)


def murmur2(column: BytesColumn) -> UInt32s:
    """Return the hash of each row, as `records.partitioner.murmur2`; for a null row it has no
    meaning.
    """
    found = np.empty(len(column.offsets) - 1, np.uint32)
    _murmur2(column.offsets, column.data, found)
    return found
