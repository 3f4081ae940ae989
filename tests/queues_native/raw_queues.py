"""Operations of a raw client on a queue, frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.messages import SettleVerb
from sparrow.records.batch import split
from sparrow.records.record import decode
from tests.native_frontend.raw import RawClient, batch_of

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.model.queues import QueueStatistics

CHANNEL = 7
QUEUE = "emails"
Range = tuple[int, int]
Taken = list[tuple[int, bytes, int]]
"""(offset, value, delivery count)."""


async def made(broker: Broker, *values: bytes, topic: str = QUEUE, **policy: object) -> None:
    """Make a queue on one partition of the topic of its name, with one batch of records."""
    await broker.queues.create(topic, policy=policy, partitions=1)
    await filled(broker, *values, topic=topic)


async def filled(broker: Broker, *values: bytes, topic: str = QUEUE) -> None:
    if values:
        await broker.records.publish(topic, 0, batch_of(*values, clock=broker.clock), acks=1)


def statistics(broker: Broker, queue: str = QUEUE) -> QueueStatistics:
    return broker.queues.describe(queue).statistics


async def opened(client: RawClient, channel: int = CHANNEL, **fields: object) -> m.QueueOpened:
    """Open a channel that pushes only with credit."""
    client.send(m.OpenQueue(QUEUE, **fields), channel)  # type: ignore[arg-type]
    return await client.expect(m.QueueOpened, channel)


def taken_of(head: m.Leased, data: bytes) -> Taken:
    values = {record.offset: record.value or b"" for _, view in split(data) for record in decode(view)}
    return [
        (offset, values[offset], count)
        for first, last, count in head.ranges
        for offset in range(first, last + 1)
        if offset in values
    ]


async def pushed(client: RawClient, count: int, channel: int = CHANNEL) -> Taken:
    """Return the next records that are pushed, at least `count`."""
    found: Taken = []
    while len(found) < count:
        head = await client.expect(m.Leased, channel)
        assert head.ref == -1
        found += taken_of(head, client.batches)
    return found


async def leased(
    client: RawClient, max_records: int = 100, channel: int = CHANNEL, ref: int = 1, **fields: int
) -> Taken:
    """Return the records that a LEASE brings."""
    client.send(m.Lease(ref, max_records, **fields), channel)
    return await lease_answer(client, channel, ref)


async def lease_answer(client: RawClient, channel: int = CHANNEL, ref: int = 1) -> Taken:
    found: Taken = []
    while True:
        event = await client.receive()
        assert event.channel == channel, event
        if isinstance(event.head, m.LeaseDone):
            assert event.head == m.LeaseDone(ref, len(found))
            return found
        assert isinstance(event.head, m.Leased), event
        assert event.head.ref == ref
        found += taken_of(event.head, bytes(event.batches or b""))


def settlement(
    verb: int,
    *ranges: Range | int,
    delay_ms: int = -1,
    text: str = "",
    topic: str = QUEUE,
    partition: int = 0,
) -> m.Settlement:
    pairs = [(each, each) if isinstance(each, int) else each for each in ranges]
    return m.Settlement(verb, topic, partition, pairs, delay_ms, text)


async def settled(
    client: RawClient, *settlements: m.Settlement, channel: int = CHANNEL, ref: int = 1
) -> list[m.SettleFailure]:
    """Return the failures of a SETTLE. What is pushed meanwhile is still to be read."""
    client.send(m.Settle(ref, list(settlements)), channel)
    early = []
    while isinstance((event := await client.receive()).head, m.Leased):
        early.append(event)
    client.waiting[:0] = early
    assert event.channel == channel
    assert isinstance(event.head, m.Settled), event
    assert event.head.ref == ref
    return event.head.failures


async def acked(client: RawClient, *ranges: Range | int, channel: int = CHANNEL) -> None:
    assert await settled(client, settlement(SettleVerb.ACK, *ranges), channel=channel) == []


def codes(failures: Iterable[m.SettleFailure]) -> list[tuple[int, int, str]]:
    return [(each.settlement, each.range, each.code) for each in failures]


async def until_scanned(broker: Broker, queue: str = QUEUE) -> None:
    """Wait until the queue knows all records that are there."""
    async with asyncio.timeout(10):
        while not broker.parts.queue_registry.get(queue).scanner.is_idle:
            await asyncio.sleep(0)
