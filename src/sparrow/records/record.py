"""Records as their readers get them, and `decode`, which makes them from a batch.

A client's speed is this function's, so there are three ways through it, each leaving to the next
what it does not recognise:

1. `runs`: records that differ in content only are cut into columns by C (about 330 ns each).
2. The loop below: numbers of one or two bytes, read in place (about 750 ns each).
3. `layout`: one record, everything checked; the only place that decides what is corrupt.

So 1 and 2 never judge, and the three give equal records (a property test checks that). Rejected: a
regular expression per shape (as fast as 1, but 0.2 ms to compile), `struct` for the numbers of one
record (slower than indexing), numba (not in a thin install).
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import CorruptBatch
from sparrow.records import compression
from sparrow.records.batch import check_parsed, parse_header
from sparrow.records.layout import plain_records, read_fields, read_headers
from sparrow.records.runs import MIN_RUN, maybe_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.records.batch import BatchHeader

_FIRST_STRETCH: Final = 16
_LONGEST_STRETCH: Final = 1024


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message.

    `gc=False`: a record has only bytes, numbers and text, so the cycle collector has nothing to
    find in it (a third of its cost).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970-01-01T00:00:00Z: the time of the publish or, if the topic is
    configured so, of the append.
    """
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode(
    batch: bytes | memoryview,
    topic: str = "",
    partition: int = -1,
    *,
    check_crc: bool = True,
    min_offset: int = 0,
    max_bytes: int = compression.DEFAULT_MAX_BYTES,
    header: BatchHeader | None = None,
) -> list[Record]:
    """Decode the records of one whole batch, those before `min_offset` left out; none of a control
    batch.

    Args:
        max_bytes: limit of the decompressed records. As objects they take up to some fifteen times
            that, if they are tiny.
        header: the batch's, if it was parsed already.

    Raises:
        CorruptBatch: names the fault, and from which `offset` on. No record is returned.
        UnsupportedCompression: the batch is of a codec that does not exist yet.
        RecordTooLarge: the records would exceed `max_bytes`.
    """
    if header is None:
        header = parse_header(batch)
    if check_crc:
        check_parsed(header, batch)
    if header.is_control:
        return []
    records = _records(header, batch, topic, partition, max_bytes)
    if header.base_offset >= min_offset:
        return records
    return [record for record in records if record.offset >= min_offset]


def _records(
    header: BatchHeader, batch: bytes | memoryview, topic: str, partition: int, max_bytes: int
) -> list[Record]:
    decoder = None
    try:
        decoder = _Decoder(header, plain_records(header, batch, max_bytes), topic, partition)
        return decoder.decode()
    except CorruptBatch as error:
        first, read = header.base_offset, decoder.records if decoder is not None else []
        offset = min(read[-1].offset + 1, header.last_offset) if read else first
        raise CorruptBatch(
            f"the batch of offsets {first} to {header.last_offset} cannot be read from {offset} on:"
            f" {error.text}",
            offset,
        ) from None


class _Decoder:
    """The state of one decoding.

    `position` is the start of the next record in `data`, `previous` the start of the last one read
    by the loop, `next_delta` the least offset delta that the next may have (and nearly always has).
    """

    __slots__ = (
        "data",
        "header",
        "names",
        "next_delta",
        "partition",
        "position",
        "previous",
        "records",
        "timestamp_of",
        "topic",
    )

    def __init__(self, header: BatchHeader, data: bytes, topic: str, partition: int) -> None:
        self.header = header
        self.data = data
        self.topic = topic
        self.partition = partition
        self.position = 0
        self.previous = 0
        self.next_delta = 0
        self.records: list[Record] = []
        self.names: dict[bytes, str] = {}
        self.timestamp_of: Callable[[int], int] = header.base_timestamp.__add__
        if header.is_log_append_time:
            self.timestamp_of = lambda _: header.max_timestamp

    def decode(self) -> list[Record]:
        """Alternate between runs and the loop; the longer no run was found, the longer the loop
        runs before the next attempt.
        """
        count = self.header.record_count
        stretch = 1
        try:
            left = count
            while left > 0:
                self._one_by_one(min(stretch, left))
                left = count - len(self.records)
                if left >= MIN_RUN and self._maybe_take_run(left):
                    stretch = 1
                    left = count - len(self.records)
                else:
                    stretch = min(max(stretch * 2, _FIRST_STRETCH), _LONGEST_STRETCH)
        except IndexError:
            raise CorruptBatch(f"record {len(self.records)} of the batch runs over its end") from None
        if self.position != len(self.data):
            raise CorruptBatch(
                f"{len(self.data) - self.position} bytes follow the last of {count} records of the batch"
            )
        if self.next_delta > self.header.last_offset_delta + 1:
            raise CorruptBatch(
                f"record batch whose last offset delta is {self.header.last_offset_delta} has a "
                f"record at delta {self.next_delta - 1}"
            )
        return self.records

    def _maybe_take_run(self, max_count: int) -> bool:
        data, position, previous = self.data, self.position, self.previous
        # Two neighbours of unlike length begin no run; nearly all attempts end here.
        if data[position : position + 2] != data[previous : previous + 2]:
            return False
        run = maybe_run(data, position, self.next_delta, max_count, self.timestamp_of)
        if run is None:
            return False
        first = self.header.base_offset + self.next_delta
        offsets = range(first, first + run.record_count)
        same = (repeat(self.topic), repeat(self.partition))
        self.records += map(Record, *same, offsets, run.timestamps, run.keys, run.values, repeat(()))
        self.next_delta += run.record_count
        self.position = run.end
        return True

    def _one_by_one(self, count: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one loop without calls is the point
        """Read `count` records. A number of more than two bytes, a null value or anything odd goes
        to `_one`.
        """
        data, size, topic, partition = self.data, len(self.data), self.topic, self.partition
        base_offset = self.header.base_offset
        add = self.records.append
        position, delta = self.position, self.next_delta
        start = position
        folded_stamp = 0
        timestamp = self.timestamp_of(0)
        for _ in range(count):
            start = position
            # Numbers are left folded (twice themselves when natural, odd when negative) as long as
            # that is enough.
            number = data[position]
            position += 1
            if number > 0x7F:
                number += (data[position] << 7) - 0x80
                position += 1
            end = position + (number >> 1)
            stamp = data[position + 1]
            position += 2
            if stamp > 0x7F:
                stamp += (data[position] << 7) - 0x80
                position += 1
            offset = data[position]
            position += 1
            if offset > 0x7F:
                offset += (data[position] << 7) - 0x80
                position += 1
            # A third byte shows as a bit above the fourteenth. Offsets may skip, as compaction
            # leaves them, but not go back.
            if (number | stamp | offset) > 0x3FFF or (number | offset) & 1 or offset < delta + delta:
                position = self._one(start, delta)
                delta = self.next_delta
                continue
            least_delta, delta = delta, offset >> 1
            number = data[position]
            position += 1
            if number == 1:
                key = None
            else:
                if number > 0x7F:
                    number += (data[position] << 7) - 0x80
                    position += 1
                if number & 1 or number > 0x3FFF:
                    position = self._one(start, least_delta)
                    delta = self.next_delta
                    continue
                key_end = position + (number >> 1)
                key = data[position:key_end]
                position = key_end
            number = data[position]
            position += 1
            if number > 0x7F:
                number += (data[position] << 7) - 0x80
                position += 1
            value_end = position + (number >> 1)
            if number & 1 or number > 0x3FFF or end > size:
                position = self._one(start, least_delta)
                delta = self.next_delta
                continue
            if value_end + 1 == end and not data[value_end]:
                headers: tuple[tuple[str, bytes | None], ...] = ()
            else:
                headers = self._headers(value_end, end)
            if stamp != folded_stamp:
                folded_stamp = stamp
                timestamp = self.timestamp_of((stamp >> 1) ^ -(stamp & 1))
            value = data[position:value_end]
            add(Record(topic, partition, base_offset + delta, timestamp, key, value, headers))
            delta += 1
            position = end
        self.previous, self.position, self.next_delta = start, position, delta

    def _one(self, position: int, least_delta: int) -> int:
        """Read the record at `position` with every check. Return the position behind it."""
        fields = read_fields(self.data, position)
        headers = read_headers(self.data, fields.headers_at, fields.end)
        if fields.offset_delta < least_delta:
            raise CorruptBatch(
                f"record {len(self.records)} of the batch has offset delta {fields.offset_delta}, "
                f"at least {least_delta} is due"
            )
        offset = self.header.base_offset + fields.offset_delta
        timestamp = self.timestamp_of(fields.timestamp_delta)
        self.records.append(
            Record(self.topic, self.partition, offset, timestamp, fields.key, fields.value, headers)
        )
        self.next_delta = fields.offset_delta + 1
        return fields.end

    def _headers(self, start: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers from `start` to `end`, which lies within the data; lengths of one byte
        (values: two) are read here.
        """
        data, names = self.data, self.names
        count = data[start]
        if count & 1 or count > 0x7F:
            return read_headers(data, start, end)
        position = start + 1
        headers = []
        for _ in range(count >> 1):
            number = data[position]
            name_end = position + 1 + (number >> 1)
            raw_name = data[position + 1 : name_end]
            name = names.get(raw_name)
            if number > 0x7F or number & 1 or name is None:
                return self._new_names(start, end)
            number = data[name_end]
            position = name_end + 1
            if number > 0x7F:
                number += (data[position] << 7) - 0x80
                position += 1
            if number & 1 or number > 0x3FFF:
                return read_headers(data, start, end)
            value_end = position + (number >> 1)
            headers.append((name, data[position:value_end]))
            position = value_end
        return tuple(headers) if position == end else read_headers(data, start, end)

    def _new_names(self, start: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
        """Read as `_headers`, and remember the names: the next record likely has the same."""
        headers = read_headers(self.data, start, end)
        self.names.update((name.encode(), name) for name, _ in headers)
        return headers
