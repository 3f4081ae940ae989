"""Batches of records to be moved from one topic to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.records.readable import decode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.dead_letters.format import Content
    from sparrow.broker.queues.source import QueueSource
    from sparrow.records.record import Record

BATCH_RECORDS: Final = 250
"""Building a batch of this many records takes a few milliseconds at most."""
MAX_BYTES: Final = 1 << 20
"""Maximum size of one batch, and of one read."""
_BATCH_OVERHEAD_BYTES: Final = 1024

Range = tuple[int, int]
"""Offsets [first, end)."""


class MoveBatch(NamedTuple):
    """Records of one source and one subscriber that go to one partition in one batch."""

    subscriber: str
    source: QueueSource
    offsets: tuple[int, ...]
    contents: tuple[Content, ...]
    """Contents, one for each offset."""
    target: Partition
    size_bytes: int
    """Estimated size."""

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Offsets as ranges [first, end)."""
        return ranges_of(self.offsets)


def ranges_of(offsets: Sequence[int]) -> tuple[Range, ...]:
    """Return ascending offsets as ranges [first, end)."""
    ranges: list[Range] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges)


def readable_records(
    data: Iterable[bytes | memoryview], source: QueueSource
) -> tuple[dict[int, Record], list[Range]]:
    """Return the records by offset, and the ranges whose batches cannot be read."""
    records: dict[int, Record] = {}
    broken: list[Range] = []
    for part in data:
        found = decode_batches(part, source.topic, source.index)
        records.update((each.offset, each) for each in found.records)
        for error in found.corrupt:
            source.partition.corrupt_batches.met("mover", "skip", error)
            broken.append((error.base_offset, error.next_offset))
    return records, broken


def cut(ranges: Iterable[Range], count: int) -> tuple[list[Range], list[Range]]:
    """Return the first `count` offsets of the ranges, and the rest."""
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
    source: QueueSource,
    contents: Mapping[int, Content],
    target: Partition,
    *,
    is_single: bool = False,
) -> Iterator[MoveBatch]:
    """Yield contents, which are sorted by offset, in batches that the target takes."""
    max_bytes = min(MAX_BYTES, target.config.max_message_bytes - _BATCH_OVERHEAD_BYTES)
    max_records = 1 if is_single else BATCH_RECORDS
    chosen: list[tuple[int, Content]] = []
    size_bytes = 0
    for offset, content in contents.items():
        added_bytes = content.size_bytes
        if chosen and (len(chosen) >= max_records or size_bytes + added_bytes > max_bytes):
            yield _move_batch(subscriber, source, chosen, target, size_bytes)
            chosen, size_bytes = [], 0
        chosen.append((offset, content))
        size_bytes += added_bytes
    if chosen:
        yield _move_batch(subscriber, source, chosen, target, size_bytes)


def _move_batch(
    subscriber: str,
    source: QueueSource,
    chosen: list[tuple[int, Content]],
    target: Partition,
    size_bytes: int,
) -> MoveBatch:
    offsets, contents = zip(*chosen, strict=True)
    return MoveBatch(subscriber, source, offsets, contents, target, size_bytes)
