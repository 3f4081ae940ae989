"""The batches of a segment file, one after the other, with the fault of each; offline, without the
broker's storage.

Holds one batch at a time. A batch with a wrong CRC is reported and skipped, since its length still
says where the next one begins; after bytes that are no batch at all nothing more can be found.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import HEADER_BYTES, check, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from sparrow.records.batch import BatchHeader


class FoundBatch(Struct, frozen=True):
    """One batch and its position. `header` is None where it cannot be read; `problem` is empty for
    a sound batch.
    """

    position: int
    header: BatchHeader | None
    data: bytes
    problem: str


def read_batches(path: str) -> Iterator[FoundBatch]:
    """Yield all batches of a segment file.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        position = 0
        while position < end:
            found = _read_batch(file, position, end)
            yield found
            if found.header is None:
                return
            position += found.header.size_bytes


def _read_batch(file: BinaryIO, position: int, end: int) -> FoundBatch:
    head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return FoundBatch(
            position, None, head, f"the last {len(head)} bytes are too few for a batch: a torn tail"
        )
    header = parse_header(head)
    if header.magic != 2 or header.size_bytes < HEADER_BYTES:
        what = "only zeros" if not any(head) else f"magic {header.magic}, length {header.batch_length}"
        return FoundBatch(position, None, head, f"no record batch begins here ({what})")
    if position + header.size_bytes > end:
        missing = position + header.size_bytes - end
        return FoundBatch(
            position,
            None,
            head,
            f"the batch at offset {header.base_offset} lacks its last {missing} bytes: a torn tail",
        )
    data = head + file.read(header.size_bytes - HEADER_BYTES)
    try:
        return FoundBatch(position, check(data), data, "")
    except CorruptBatch as error:
        return FoundBatch(position, header, data, error.text)
