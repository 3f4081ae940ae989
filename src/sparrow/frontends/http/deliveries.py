"""Leased batches made into the messages of one answer, within a bound: a batch of some kilobytes may become gigabytes when it is decompressed.

What does not fit into the answer beside others goes back uncounted, and comes with the next. What cannot be read, or is too large by itself, counts as a delivery that
failed: it ends in the dead letters, and holds up nobody. What may take long is done in a thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparrow.base.errors import RecordTooLarge, SparrowError
from sparrow.frontends.http.leases import LeaseToken, queue_mark, token_text
from sparrow.frontends.http.rendering import MAX_PLAIN_BYTES
from sparrow.frontends.record_json import encode, members_of_record
from sparrow.records.batch import split
from sparrow.records.record import decode
from sparrow.records.wellknown import priority_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.records.batch import BatchHeader
    from sparrow.records.record import Record

_QUICK_BYTES: Final = 64 << 10
"""A batch that is not compressed and no larger is decoded on the loop."""


class Delivery(NamedTuple):
    """A message, which delivery of it this is, and for how long it is leased."""

    record: Record
    number: int
    lease_ms: int


class Refused(NamedTuple):
    """What cannot be delivered here, and why."""

    leased: Leased
    error: SparrowError


class Unpacked(NamedTuple):
    """What became of a lease. `content_bytes`: of the deliveries."""

    deliveries: list[Delivery]
    returned: list[Leased]
    refused: list[Refused]
    content_bytes: int


async def unpacked(leased: Sequence[Leased], *, max_bytes: int = MAX_PLAIN_BYTES) -> Unpacked:
    """The messages of a lease.

    Args:
        max_bytes: what they may be together, decompressed.
    """
    unpacking = _Unpacking(max_bytes)
    for each in leased:
        for header, batch in split(each.data):
            part = each._replace(ranges=_within(each, header), data=batch)
            if part.ranges:
                await unpacking.add(part, header)
        await asyncio.sleep(0)
    return unpacking.done()


class _Unpacking:
    """Fills an answer until it is full."""

    def __init__(self, max_bytes: int) -> None:
        self._deliveries: list[Delivery] = []
        self._returned: list[Leased] = []
        self._refused: list[Refused] = []
        self._room = max_bytes

    async def add(self, part: Leased, header: BatchHeader) -> None:
        """What was leased of one batch."""
        if self._room <= 0:
            self._returned.append(part)
            return
        try:
            found = await _decoded(part, header, self._room)
        except SparrowError as error:
            self._cannot(part, error)
        else:
            self._deliveries += found
            self._room -= sum(_size_of(each.record) for each in found)

    def _cannot(self, part: Leased, error: SparrowError) -> None:
        if isinstance(error, RecordTooLarge) and self._deliveries:  # maybe only beside the others
            self._room = 0
            self._returned.append(part)
        else:
            self._refused.append(Refused(part, error))

    def done(self) -> Unpacked:
        content_bytes = sum(_size_of(each.record) for each in self._deliveries)
        return Unpacked(self._deliveries, self._returned, self._refused, content_bytes)


async def _decoded(part: Leased, header: BatchHeader, room: int) -> list[Delivery]:
    if header.compression or len(part.data) > _QUICK_BYTES:
        return await asyncio.to_thread(_decode, part, room)
    return _decode(part, room)


def _decode(part: Leased, room: int) -> list[Delivery]:
    records = {
        record.offset: record
        for record in decode(part.data, part.topic, part.partition, check_crc=False, max_bytes=room)
    }
    return [
        Delivery(records[offset], number, part.lease_ms)
        for first, last, number in part.ranges
        for offset in range(first, last + 1)
        if offset in records
    ]


def _within(leased: Leased, header: BatchHeader) -> list[tuple[int, int, int]]:
    """The ranges that lie in a batch."""
    return [
        (max(first, header.base_offset), min(last, header.last_offset), number)
        for first, last, number in leased.ranges
        if first <= header.last_offset and last >= header.base_offset
    ]


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


# ── shown ─────────────────────────────────────────────────────────────────────────────────────────


class Showing:
    """Shows what one consumer leased.

    Args:
        now_ms: wall time of the answer.
    """

    def __init__(self, consumer: QueueConsumer, now_ms: int) -> None:
        self._mark = queue_mark(consumer)
        self._consumer_id = consumer.id
        self._subscriber = consumer.subscriber
        self._now_ms = now_ms

    def rendered(self, deliveries: Sequence[Delivery], *, as_base64: bool) -> list[bytes]:
        """Each message as JSON."""
        return [
            encode(members_of_record(each.record, as_base64=as_base64) | self.members_of(each))
            for each in deliveries
        ]

    def members_of(self, each: Delivery) -> dict[str, Any]:
        """What is said of a message beside the record."""
        record = each.record
        token = LeaseToken(
            self._mark,
            self._consumer_id,
            self._subscriber,
            record.topic,
            record.partition,
            record.offset,
            each.number,
        )
        return {
            "lease": token_text(token),
            "delivery_count": each.number,
            "priority": priority_of(record.headers),
            "leased_until_ms": self._now_ms + each.lease_ms,
        }
