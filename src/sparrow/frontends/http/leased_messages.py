"""Messages of one response, decoded from leased batches within a limit: a batch of some
kilobytes may become gigabytes when it is decompressed.

Messages that do not fit into the response beside others are released without counting the delivery,
and come with the next one. A batch that cannot be read, or is too large by itself, counts as a
failed delivery: it ends in the dead letters and does not block others. Slow work is done in a
thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparrow.base.errors import CorruptBatch, RecordTooLarge, SparrowError, UnsupportedCompression
from sparrow.frontends.batches import split_batches
from sparrow.frontends.http.leases import LeaseToken, queue_tag, token_text
from sparrow.frontends.http.render_cache import MAX_PLAIN_BYTES
from sparrow.frontends.record_json import encode, members_of_record
from sparrow.records.batch import parse_header
from sparrow.records.readable import corrupt_batch
from sparrow.records.record import decode
from sparrow.records.wellknown import priority_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.records.batch import BatchHeader
    from sparrow.records.record import Record

_QUICK_BYTES: Final = 64 << 10
"""An uncompressed batch up to this size is decoded on the loop."""


class LeasedMessage(NamedTuple):
    """A message, the number of this delivery, and the duration of its lease."""

    record: Record
    number: int
    lease_ms: int


class RefusedLease(NamedTuple):
    """A lease that cannot be delivered by HTTP, and the reason."""

    leased: Leased
    error: SparrowError


class UnpackedLeases(NamedTuple):
    """The result of unpacking a lease. `content_bytes` is the size of the deliveries."""

    deliveries: list[LeasedMessage]
    released: list[Leased]
    refused: list[RefusedLease]
    content_bytes: int


async def unpack(leased: Sequence[Leased], *, max_bytes: int = MAX_PLAIN_BYTES) -> UnpackedLeases:
    """Decode the messages of a lease.

    Args:
        max_bytes: limit for all of them together, decompressed.
    """
    unpacker = _Unpacker(max_bytes)
    for each in leased:
        for batch in split_batches(each.topic, each.partition, each.data):
            part = each._replace(ranges=_within(each, batch.header), data=batch.data)
            if part.ranges:
                await unpacker.add(part, batch.header)
        await asyncio.sleep(0)
    return unpacker.done()


class _Unpacker:
    """The messages of a response, collected until it is full."""

    def __init__(self, max_bytes: int) -> None:
        self._messages: list[LeasedMessage] = []
        self._released: list[Leased] = []
        self._refused: list[RefusedLease] = []
        self._room = max_bytes

    async def add(self, part: Leased, header: BatchHeader) -> None:
        """Add the leased part of one batch."""
        if self._room <= 0:
            self._released.append(part)
            return
        try:
            found = await _decoded(part, header, self._room)
        except SparrowError as error:
            self._cannot(part, error)
        else:
            self._messages += found
            self._room -= sum(_size_of(each.record) for each in found)

    def _cannot(self, part: Leased, error: SparrowError) -> None:
        if isinstance(error, RecordTooLarge) and self._messages:  # it may fit by itself
            self._room = 0
            self._released.append(part)
        else:
            self._refused.append(RefusedLease(part, error))

    def done(self) -> UnpackedLeases:
        content_bytes = sum(_size_of(each.record) for each in self._messages)
        return UnpackedLeases(self._messages, self._released, self._refused, content_bytes)


async def _decoded(part: Leased, header: BatchHeader, room: int) -> list[LeasedMessage]:
    if header.compression or len(part.data) > _QUICK_BYTES:
        return await asyncio.to_thread(_decode, part, room)
    return _decode(part, room)


def _decode(part: Leased, room: int) -> list[LeasedMessage]:
    try:
        found = decode(part.data, part.topic, part.partition, max_bytes=room)
    except (CorruptBatch, UnsupportedCompression) as error:
        raise corrupt_batch(parse_header(part.data), part.topic, part.partition, error) from None
    records = {record.offset: record for record in found}
    return [
        LeasedMessage(records[offset], number, part.lease_ms)
        for first, last, number in part.ranges
        for offset in range(first, last + 1)
        if offset in records
    ]


def _within(leased: Leased, header: BatchHeader) -> list[tuple[int, int, int]]:
    """Return the ranges that lie in a batch."""
    return [
        (max(first, header.base_offset), min(last, header.last_offset), number)
        for first, last, number in leased.ranges
        if first <= header.last_offset and last >= header.base_offset
    ]


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


# ── rendering  ────────────────────────────────────────────────────────────────────────────────────


class LeaseRenderer:
    """Renderer of the messages that one consumer has leased.

    Args:
        now_ms: wall time of the response.
    """

    def __init__(self, consumer: QueueConsumer, now_ms: int) -> None:
        self._tag = queue_tag(consumer)
        self._consumer_id = consumer.id
        self._subscriber = consumer.subscriber
        self._now_ms = now_ms

    def rendered(self, deliveries: Sequence[LeasedMessage], *, as_base64: bool) -> list[bytes]:
        """Render each message as JSON."""
        return [
            encode(members_of_record(each.record, as_base64=as_base64) | self.members_of(each))
            for each in deliveries
        ]

    def members_of(self, each: LeasedMessage) -> dict[str, Any]:
        """Return the members of a message beside the record."""
        record = each.record
        token = LeaseToken(
            self._tag,
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
