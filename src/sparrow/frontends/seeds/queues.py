"""Queues that stand for what a seed remembers of a topic: which of its messages were handed out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import QueueExists
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.frontends.seeds.topics import ensure_topic
from sparrow.records.batch import split
from sparrow.records.record import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.records.record import Record

HANDED_OUT_ONCE: Mapping[str, object] = {"delivery_limit": 0, "dead_letter_topic": None}
"""The policy of a queue whose messages are done when they are handed out: nothing can fail that would be counted."""

SCAN_WAIT_S: Final = 1.0
"""How long a question waits until all that was published is looked at."""


async def open_queue(broker: Broker, name: str, topic: str, consumer_id: str = "") -> QueueConsumer:
    """A consumer of a queue on a topic, from its first message on; both are made if they are missing.

    Args:
        consumer_id: who comes back after a restart, and finds ready again what it had leased; "": somebody new.

    Raises:
        UnknownTopic, InvalidTopicName, NotAuthorized
    """
    await ensure_topic(broker, topic)
    if broker.queues.registry.find(name) is None:
        with suppress(QueueExists):  # made by another at the same time
            await broker.queues.create(name, [topic], HANDED_OUT_ONCE, principal=ANONYMOUS)
    if consumer_id:
        before = await broker.queues.open_consumer(name, consumer_id=consumer_id, principal=ANONYMOUS)
        await before.close(give_back=True)
    return await broker.queues.open_consumer(
        name, consumer_id=consumer_id, client_name=name, principal=ANONYMOUS
    )


async def lease_published(
    consumer: QueueConsumer, max_records: int, max_bytes: int = 1 << 20
) -> list[Leased]:
    """What can be had now of all that was published before; [] if there is nothing."""
    leased = await consumer.lease(max_records, max_bytes=max_bytes)
    if leased or not await _has_looked(consumer):
        return leased
    return await consumer.lease(max_records, max_bytes=max_bytes)


async def _has_looked(consumer: QueueConsumer) -> bool:
    """Let the queue look at what was just published; False when there was nothing to look at."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SCAN_WAIT_S
    was_behind = False
    while not consumer.queue.scanner.is_idle and loop.time() < deadline:
        was_behind = True
        await asyncio.sleep(0)
    return was_behind


def records_of(leased: Iterable[Leased]) -> list[Record]:
    """The records that were leased, in the order of the lease.

    Raises:
        CorruptBatch
    """
    found: list[Record] = []
    for each in leased:
        wanted = {offset for first, last, _ in each.ranges for offset in range(first, last + 1)}
        for _, batch in split(each.data):
            records = decode(batch, each.topic, each.partition, check_crc=False)
            found += [record for record in records if record.offset in wanted]
    return found


def settlements(leased: Iterable[Leased], verb: Verb) -> list[Settlement]:
    """What says the same of all that was leased."""
    return [
        Settlement(verb, each.topic, each.partition, first, last)
        for each in leased
        for first, last, _ in each.ranges
    ]
