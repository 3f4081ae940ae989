"""Records on their way from one topic to another: taken apart, and packed in batches that the target takes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import BadInput
from sparrow.records.batch import split
from sparrow.records.record import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.deadletters import Content
    from sparrow.broker.queues.source import Source
    from sparrow.records.record import Record

_LOG = logging.getLogger(__name__)

BATCH_RECORDS: Final = 250
"""So that building a batch takes a few milliseconds at most."""
MAX_BYTES: Final = 1 << 20
"""Of one batch, and of what is read at a time."""
_BATCH_OVERHEAD_BYTES: Final = 1024

Range = tuple[int, int]
"""Offsets [first, end)."""


class Parcel(NamedTuple):
    """Records of one source and one lane that go to one partition in one batch."""

    subscriber: str
    source: Source
    offsets: tuple[int, ...]
    contents: tuple[Content, ...]
    """One for each offset."""
    target: Partition
    size_bytes: int
    """About."""

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The offsets as ranges [first, end)."""
        return ranges_of(self.offsets)


def ranges_of(offsets: Sequence[int]) -> tuple[Range, ...]:
    """Ascending offsets as ranges [first, end)."""
    ranges: list[Range] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges)


def readable_records(
    data: Iterable[bytes | memoryview], source: Source
) -> tuple[dict[int, Record], list[Range]]:
    """Records by offset, and ranges whose batches cannot be read."""
    records: dict[int, Record] = {}
    broken: list[Range] = []
    for part in data:
        for header, batch in split(part):
            try:
                records.update((each.offset, each) for each in decode(batch, source.topic, source.index))
            except BadInput as error:
                _LOG.warning("records of %s cannot be read: %s", source.partition.id, error.text)
                broken.append((header.base_offset, header.next_offset))
    return records, broken


def cut(ranges: Iterable[Range], count: int) -> tuple[list[Range], list[Range]]:
    """The first `count` offsets of the ranges, and the rest."""
    head: list[Range] = []
    rest: list[Range] = []
    for first, end in ranges:
        middle = min(end, first + count)
        count -= middle - first
        if first < middle:
            head.append((first, middle))
        if middle < end:
            rest.append((middle, end))
    return head, rest


def packed(
    subscriber: str,
    source: Source,
    contents: Mapping[int, Content],
    target: Partition,
    *,
    is_single: bool = False,
) -> Iterator[Parcel]:
    """Contents, by ascending offset, in batches that the target takes."""
    max_bytes = min(MAX_BYTES, target.config.max_message_bytes - _BATCH_OVERHEAD_BYTES)
    max_records = 1 if is_single else BATCH_RECORDS
    chosen: list[tuple[int, Content]] = []
    size_bytes = 0
    for offset, content in contents.items():
        added_bytes = content.size_bytes
        if chosen and (len(chosen) >= max_records or size_bytes + added_bytes > max_bytes):
            yield _parcel(subscriber, source, chosen, target, size_bytes)
            chosen, size_bytes = [], 0
        chosen.append((offset, content))
        size_bytes += added_bytes
    if chosen:
        yield _parcel(subscriber, source, chosen, target, size_bytes)


def _parcel(
    subscriber: str, source: Source, chosen: list[tuple[int, Content]], target: Partition, size_bytes: int
) -> Parcel:
    offsets, contents = zip(*chosen, strict=True)
    return Parcel(subscriber, source, offsets, contents, target, size_bytes)
