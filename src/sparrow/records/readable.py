"""Batches as readers decode them: the records, or one error with the offset to continue from.

A batch may have a right CRC and unreadable records: it was stored before records were checked at
publish, or by a topic with `record.validation=header`. Every reader decodes through this module, so
that all report such a batch in the same way, and continue behind it by the same rule: `fail` or
`skip`, always a whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct

from sparrow.base.errors import (
    BadInput,
    CorruptBatch,
    CorruptStoredBatch,
    RecordTooLarge,
    UnsupportedCompression,
)
from sparrow.records import compression
from sparrow.records.batch import check, parse_header
from sparrow.records.record import decode
from sparrow.records.validation import check_records

if TYPE_CHECKING:
    from sparrow.records.batch import BatchHeader
    from sparrow.records.record import Record

OnCorrupt = Literal["fail", "skip"]
"""A reader's behaviour at a batch that it cannot read."""
FAIL: Final = "fail"
SKIP: Final = "skip"
ON_CORRUPT: Final[tuple[OnCorrupt, ...]] = get_args(OnCorrupt)


class Readable(Struct, frozen=True):
    """The records of the readable batches, in order, and one error for each of the others."""

    records: list[Record]
    corrupt: list[CorruptBatch]


def decode_readable(
    batch: bytes | memoryview,
    topic: str,
    partition: int,
    *,
    check_crc: bool = True,
    min_offset: int = 0,
    max_bytes: int = compression.DEFAULT_MAX_BYTES,
    header: BatchHeader | None = None,
) -> list[Record]:
    """Return the records of one whole batch; the arguments are those of `decode`.

    Raises:
        CorruptBatch: with topic, partition, base offset and next offset, whatever the reason is.
    """
    if header is None:
        header = parse_header(batch)
    try:
        return decode(
            batch,
            topic,
            partition,
            check_crc=check_crc,
            min_offset=min_offset,
            max_bytes=max_bytes,
            header=header,
        )
    except (CorruptBatch, UnsupportedCompression, RecordTooLarge) as error:
        raise corrupt_batch(header, topic, partition, error) from None


def decode_batches(
    data: bytes | memoryview,
    topic: str,
    partition: int,
    *,
    min_offset: int = 0,
    max_bytes: int = compression.DEFAULT_MAX_BYTES,
    stops: bool = False,
) -> Readable:
    """Decode whole batches, back to back. Batches before `min_offset` are skipped.

    Args:
        stops: decode nothing behind the first unreadable batch.
    """
    records: list[Record] = []
    corrupt: list[CorruptBatch] = []
    view, position, size = memoryview(data), 0, len(data)
    while position < size:
        header = parse_header(view, position)
        end = position + header.size_bytes
        if header.next_offset > min_offset:
            try:
                records += decode_readable(
                    view[position:end],
                    topic,
                    partition,
                    min_offset=min_offset,
                    max_bytes=max_bytes,
                    header=header,
                )
            except CorruptBatch as error:
                corrupt.append(error)
                if stops:
                    break
        position = end
    return Readable(records, corrupt)


def corruption_of(
    header: BatchHeader,
    batch: bytes | memoryview,
    topic: str = "",
    partition: int = -1,
    *,
    max_bytes: int = compression.DEFAULT_MAX_BYTES,
) -> CorruptBatch | None:
    """Return the error of a batch that cannot be decoded; None if it can.

    Nearly all batches take one pass of the walker. Those that it refuses may be readable all the
    same (compaction leaves holes between their offsets), so `decode` decides. Other threads may run
    meanwhile.
    """
    if header.is_control:
        return None
    try:
        check(batch)
        check_records(header, batch, max_bytes=max_bytes, in_thread=True)
    except BadInput:
        try:
            decode_readable(batch, topic, partition, max_bytes=max_bytes)
        except CorruptBatch as error:
            return error
    return None


def corrupt_batch(
    header: BatchHeader,
    topic: str,
    partition: int,
    error: CorruptBatch | UnsupportedCompression | RecordTooLarge,
) -> CorruptBatch:
    """Return the error with the place of the batch, the reason and the next offset."""
    first, last = header.base_offset, header.last_offset
    offset = error.offset if isinstance(error, CorruptBatch) else -1
    reason = (
        error.text if offset >= 0 else f"the batch of offsets {first} to {last} cannot be read: {error.text}"
    )
    return CorruptStoredBatch(
        f"topic {topic!r}, partition {partition}: {reason}. The next batch begins at offset "
        f"{header.next_offset}",
        offset,
        topic=topic,
        partition=partition,
        base_offset=first,
        next_offset=header.next_offset,
        is_limit=not isinstance(error, CorruptBatch),
    )
