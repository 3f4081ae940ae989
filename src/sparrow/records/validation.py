"""The check of a publisher's records before they are kept: `check_records`.

A batch's CRC proves that its bytes came as they were sent, not that they are records. Every
consumer reads them later, and one that cannot read a batch stops there. So a broker checks before
it appends. Records that pass are decoded alike by `record.decode`, librdkafka and kafka-python
(`tests/kafka_frontend/test_kafka_mutants.py`).

`walker` does the work, the compiled one if there is one (`IS_COMPILED`). Compressed records are
decompressed first, within a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from sparrow.records import compression, walker
from sparrow.records.batch import COMPRESSION, HEADER_BYTES, OVERHEAD_BYTES
from sparrow.records.walker import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.records.batch import BatchHeader
    from sparrow.records.walker import Walked

    Walk = Callable[[bytes | memoryview, int, int, int, int, int, int, bool, bool], Walked]


def _compiled() -> Walk | None:
    try:
        from sparrow.records import _walker  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return None
    # One that was built from another version of the source stays unused.
    return _walker.walk if walker.VERSION == _walker.VERSION else None


_COMPILED: Final = _compiled()
IS_COMPILED: Final = _COMPILED is not None
"""True if records are walked by compiled code."""
_walk: Final[Walk] = _COMPILED or walker.walk

_TEXTS: Final = {
    FaultKind.NUMBER: "has a number that does not fit its bits, or runs over the end",
    FaultKind.LENGTH: "has a length that is too small or runs over the end",
    FaultKind.ATTRIBUTES: "has attributes, which must be 0",
    FaultKind.TIMESTAMP: "has a timestamp that does not fit 64 bits",
    FaultKind.OFFSET: "has another offset delta than its number; they count from 0 without holes",
    FaultKind.KEY: "has a key of a length that does not fit",
    FaultKind.VALUE: "has a value of a length that does not fit",
    FaultKind.HEADER_COUNT: "has a header count that is negative or larger than the record",
    FaultKind.HEADER_NAME: "has a header whose name is null, or of a length that does not fit",
    FaultKind.HEADER_TEXT: "has a header whose name is not UTF-8",
    FaultKind.HEADER_VALUE: "has a header value of a length that does not fit",
    FaultKind.RECORD_REST: "has bytes behind its last header",
}


class Terms(Struct, frozen=True, gc=False):
    """Terms that records have to keep besides their format."""

    earliest: int = walker.MIN_TIMESTAMP
    """The least timestamp (ms) of a record that has one, i.e. one other than -1."""
    latest: int = walker.MAX_TIMESTAMP
    """The greatest timestamp (ms)."""
    needs_keys: bool = False


ANY: Final = Terms()


class CheckedRecords(Struct, frozen=True, gc=False):
    """Properties of correct records."""

    max_timestamp: int
    """The greatest timestamp, ms; -1 if no record has one."""
    plain_bytes: int
    """Size of the records when they are not compressed."""


def check_records(
    header: BatchHeader,
    batch: bytes | memoryview,
    terms: Terms = ANY,
    max_bytes: int = compression.DEFAULT_MAX_BYTES,
    *,
    in_thread: bool = False,
) -> CheckedRecords:
    """Check the records of a batch whose header and CRC are right.

    Args:
        max_bytes: limit of the decompressed records.
        in_thread: True lets other threads run meanwhile.

    Raises:
        InvalidRecord: a record breaks the format or lacks a key, or decompression fails.
        InvalidTimestamp: a record is too early or too late. Both errors name the first hundred
            wrong records in `record_indexes`; it is empty if the batch as a whole is wrong.
        RecordTooLarge: the records would exceed `max_bytes`.
        UnsupportedCompression: the header names no known codec.
    """
    data: bytes | memoryview = batch
    start, end = HEADER_BYTES, header.batch_length + OVERHEAD_BYTES
    if header.attributes & COMPRESSION:
        data = _plain(header, batch, max_bytes)
        start, end = 0, len(data)
    kind, index, position, max_timestamp, untimely, keyless = _walk(
        data,
        start,
        end,
        header.record_count,
        header.base_timestamp,
        terms.earliest,
        terms.latest,
        terms.needs_keys,
        in_thread,
    )
    if kind:
        raise _refusal(FaultKind(kind), index, position - start, end - position)
    if keyless:
        raise InvalidRecord("the topic is compacted: every record needs a key", keyless)
    if untimely:
        raise InvalidTimestamp(
            f"record {untimely[0]} of the batch has a timestamp that the topic does not take: it takes"
            f" those from {terms.earliest} ms (now less message.timestamp.before.max.ms) to"
            f" {terms.latest} ms (now and message.timestamp.after.max.ms)",
            untimely,
        )
    return CheckedRecords(max_timestamp, end - start)


def _plain(header: BatchHeader, batch: bytes | memoryview, max_bytes: int) -> bytes:
    stored = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    try:
        return compression.decompress(header.compression, stored, max_bytes, one_stream=True)
    except CorruptBatch as error:
        # The CRC is right, so the publisher sent these bytes; sending them again does not help.
        raise InvalidRecord(error.text) from None


def _refusal(kind: FaultKind, index: int, position: int, left: int) -> InvalidRecord:
    if kind is FaultKind.BATCH_REST:
        return InvalidRecord(f"{left} bytes follow the last of {index} records of the batch")
    return InvalidRecord(
        f"record {index} of the batch {_TEXTS[kind]} (byte {position} of its records)", (index,)
    )
