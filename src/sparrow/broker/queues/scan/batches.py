"""Batches in a chunk of the log, and which of them a queue must read record by record.

A batch is plain, so that nothing of its records need be known, if none of the well-known header
names (`records/wellknown.py`) occurs in it. There are three ways to find out:

- no record has any header, which `records/headerless.py` proves quickly where it can;
- else the bytes are searched for the names. One that occurs within a payload costs only the time to
  read the batch;
- a compressed batch is decompressed first.

A batch with gaps (compaction took records) is read record by record, whatever its headers, to know
which offsets are left.

Pure.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import BadInput
from sparrow.records.batch import HEADER_BYTES, OVERHEAD_BYTES
from sparrow.records.compression import decompress
from sparrow.records.headerless import is_headerless
from sparrow.records.wellknown import QUEUE_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER: Final = struct.Struct(">qi4xb4xhiqq14xi")
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
_MAGIC: Final = 2
_BATCH_WORK_BYTES: Final = 1024
"""Work for a batch, however small."""
_SEARCH_BYTES: Final = 128 << 10
_SEARCHED_SHIFT: Final = 3
"""Searching eight bytes for one name takes as long as decompressing one and searching it for
all.
"""
_LITTLE_BYTES: Final = 2048
"""For so little, one expression over all names is faster than a search for each."""
_ANY_NAME: Final = re.compile(b"|".join(map(re.escape, QUEUE_HEADERS)))
_MIN_PROOF_BYTES: Final = 2048
"""Smaller batches are searched for the names at once."""
_SEARCHED_BYTES: Final = 192
"""Searching this many bytes for the names costs as much as reading a record."""
_TRIED_RECORDS: Final = 32
"""Number of records to read, where records are smaller than that, to find out if all have one
size.
"""


class Batch(NamedTuple):
    """Position of a batch in the data, and the fields of its header that matter. Times are in
    ms.
    """

    start: int
    end: int
    base_offset: int
    next_offset: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    record_count: int

    @property
    def has_records(self) -> bool:
        """True if it has records: a control batch has none, nor one that compaction has emptied."""
        return self.record_count > 0 and not self.attributes & _CONTROL

    @property
    def has_gaps(self) -> bool:
        """True if some of its offsets have no record."""
        return self.record_count < self.next_offset - self.base_offset

    @property
    def timestamp(self) -> int | None:
        """The time of all its records, if they share it because the log set it."""
        return self.max_timestamp if self.attributes & _LOG_APPEND_TIME else None


def are_plain(data: bytes | memoryview, first: int, next_offset: int) -> bool:
    """Return True if the data is little, and shows at first sight that it is plain batches with
    exactly the records [first, next_offset): messages that were published one by one.
    """
    size = len(data)
    if size > _LITTLE_BYTES or _ANY_NAME.search(data) is not None:
        return False
    position, due = 0, first
    while position + HEADER_BYTES <= size:
        base, length, magic, attributes, last_delta, _, _, count = _HEADER.unpack_from(data, position)
        if (
            base != due
            or magic != _MAGIC
            or attributes & (_COMPRESSION | _CONTROL)
            or count != last_delta + 1
            or length < HEADER_BYTES - OVERHEAD_BYTES
        ):
            return False
        position += OVERHEAD_BYTES + length
        due += count
    return position == size and first < due == next_offset


class Batches:
    """Batches back to back, and which of them must be read record by record.

    Args:
        max_bytes: a batch that becomes larger when it is decompressed counts as plain.
        looks_always: no batch is plain but those that cannot be read.
    """

    def __init__(self, data: bytes | memoryview, max_bytes: int, *, looks_always: bool) -> None:
        self.is_broken = False
        """True if something in the data is no batch, so that what follows cannot be parsed."""
        self.work_bytes = 0
        """Work done, as the bytes that would be decompressed and searched in that time. The caller
        resets it when it makes a pause.
        """
        self._raw = data if isinstance(data, bytes) else bytes(data)
        self._max_bytes = max_bytes
        self._looks_always = looks_always
        self._names = _Names(self._raw)

    def before(self, next_offset: int) -> Iterator[Batch]:
        """Yield those that begin before this offset, in order."""
        position = due = 0
        while position < len(self._raw) and due < next_offset:
            batch = self._maybe_batch(position, due)
            if batch is None:
                self.is_broken = True
                return
            self.work_bytes += _BATCH_WORK_BYTES
            yield batch
            position, due = batch.end, batch.next_offset

    def _maybe_batch(self, position: int, due: int) -> Batch | None:
        """Return the batch at `position`, whose base offset is `due` or more; None if there is no
        such batch.
        """
        raw = self._raw
        if position + HEADER_BYTES > len(raw):
            return None
        base, length, magic, attributes, last_delta, first_time, last_time, count = _HEADER.unpack_from(
            raw, position
        )
        end = position + OVERHEAD_BYTES + length
        fits = position + HEADER_BYTES <= end <= len(raw)
        if magic != _MAGIC or not fits or not 0 <= count <= last_delta + 1 or base < due:
            return None
        return Batch(position, end, base, base + last_delta + 1, attributes, first_time, last_time, count)

    def maybe_body(self, batch: Batch) -> bytes | None:
        """Return the decompressed records of a batch that must be read record by record; None for a
        plain one.
        """
        must_look = self._looks_always or batch.has_gaps
        codec = batch.attributes & _COMPRESSION
        start = batch.start + HEADER_BYTES
        if not codec:
            return self._raw[start : batch.end] if must_look or self._may_have_names(batch, start) else None
        try:
            body = decompress(codec, memoryview(self._raw)[start : batch.end], self._max_bytes)
        except BadInput:
            return None
        self.work_bytes += len(body)
        return body if must_look or any(name in body for name in QUEUE_HEADERS) else None

    def _may_have_names(self, batch: Batch, start: int) -> bool:
        size_bytes, count = batch.end - start, batch.record_count
        if size_bytes >= _MIN_PROOF_BYTES:
            max_single = count if size_bytes >= _SEARCHED_BYTES * count else _TRIED_RECORDS
            if is_headerless(self._raw, start, batch.end, count, max_single):
                return False
        searched_bytes = self._names.searched_bytes
        occurs = self._names.occur(batch.start, batch.end)
        self.work_bytes += self._names.searched_bytes - searched_bytes >> _SEARCHED_SHIFT
        return occurs


class _Next(NamedTuple):
    """Next position of a name; or the position up to which it does not occur, and behind which it
    was not searched yet.
    """

    position: int
    is_found: bool


class _Names:
    """Positions of the well-known names in the data. Queried from its beginning to its end, so each
    byte is searched once for each name.
    """

    def __init__(self, raw: bytes) -> None:
        self.searched_bytes = 0
        """Number of bytes searched, for all names together."""
        self._raw = raw
        self._next = dict.fromkeys(QUEUE_HEADERS, _Next(0, is_found=False))
        self._nearest = 0

    def occur(self, start: int, end: int) -> bool:
        """Return True if one of the names begins in [start, end)."""
        if self._nearest >= end:
            return False
        for name, known in self._next.items():
            if known.position < (start if known.is_found else end):
                self._next[name] = self._search(name, max(start, known.position), end)
        self._nearest = min(known.position for known in self._next.values())
        return any(known.is_found and known.position < end for known in self._next.values())

    def _search(self, name: bytes, start: int, end: int) -> _Next:
        """Search at least to `end`; further, if that is near, because calls cost more than
        bytes.
        """
        end = max(end, start + _SEARCH_BYTES)
        position = self._raw.find(name, start, end + len(name) - 1)
        self.searched_bytes += (position if position >= 0 else end) - start
        return _Next(position, is_found=True) if position >= 0 else _Next(end, is_found=False)
