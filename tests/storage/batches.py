"""Batches for the tests of the storage, and helpers that read them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.records.batch import BatchHeader, parse_header, split
from sparrow.records.builder import build_batch
from sparrow.records.rewrite import iterate_raw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.storage.store import Appended, Chunk, PartitionLog

NOW_MS = 1_700_000_000_000

Batch = tuple[BatchHeader, memoryview]


def batch(*values: bytes, timestamps: int | Sequence[int] = NOW_MS) -> Batch:
    """Return one batch of these values."""
    data = build_batch(list(values), timestamps=timestamps)
    return parse_header(data), memoryview(data)


def keyed(
    pairs: Sequence[tuple[bytes | None, bytes | None]], timestamp: int = NOW_MS, **fields: int | bool
) -> Batch:
    """Return one batch of keys and values; `fields` go to `build_batch`."""
    values, keys = [value for _, value in pairs], [key for key, _ in pairs]
    data = build_batch(values, keys, timestamps=timestamp, **fields)  # type: ignore[arg-type]
    return parse_header(data), memoryview(data)


def wrap(data: bytes) -> Batch:
    return parse_header(data), memoryview(data)


def numbered(number: int, count: int = 1, size: int = 20) -> Batch:
    """Return a batch of `count` records whose values name their append."""
    return batch(*(f"{number}.{position}".encode().ljust(size, b".") for position in range(count)))


def append(log: PartitionLog, *batches: Batch) -> Appended:
    """Append to a log that confirms at once."""
    return log.append(batches).result()


async def kept(log: PartitionLog, *batches: Batch) -> Appended:
    """Append, and wait for the confirmation."""
    return await log.append(batches)


def offsets_of(chunk: Chunk) -> list[tuple[int, int]]:
    """Return (base offset, last offset) of each batch in a chunk; checks every CRC."""
    return [(header.base_offset, header.last_offset) for header, _ in split(chunk.data)]


async def read_batches(log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[bytes]:
    """Return all batches from `offset` (the start) to the end, each as its bytes; checks every CRC
    and that offsets grow.
    """
    found: list[bytes] = []
    position = log.start_offset if offset is None else offset
    while position < log.end_offset:
        chunk = await log.read(position, max_bytes)
        assert chunk.next_offset > position
        for header, data in split(chunk.data):
            assert header.last_offset >= position
            position = header.next_offset
            found.append(bytes(data))
        position = chunk.next_offset
    return found


def payload(data: bytes) -> bytes:
    """Return the batch without the two fields that the log stamps."""
    return data[8:12] + data[16:]


async def read_values(log: PartitionLog, offset: int | None = None) -> list[tuple[int, bytes | None]]:
    """Return (offset, raw record) of everything."""
    return [
        (record.offset, record.raw)
        for data in await read_batches(log, offset)
        for record in iterate_raw(data)
    ]
