"""Queues that record which messages of a topic were handed out to clients of a seed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import QueueExists
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.leased_records import read_leased, settle_unreadable
from sparrow.frontends.seeds.caller import caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.frontends.leased_records import LeasedRecords
    from sparrow.frontends.seeds.context import Port
    from sparrow.records.record import Record


HANDED_OUT_ONCE: Mapping[str, object] = {"delivery_limit": 0, "dead_letter_topic": None}
"""The policy of a queue whose messages are done when they are handed out: no delivery can fail."""

CURSORS: Final = (".diy", ".mbus")
"""Suffixes of queues that are the cursor of a topic for all clients of a seed."""

SCAN_WAIT_S: Final = 1.0
"""Limit of the time that a request waits until the queue has scanned all published messages."""


async def open_queue(port: Port, name: str, topic: str, consumer_id: str = "") -> QueueConsumer:
    """Return a consumer of a queue on a topic, from its first message on. Create both if they are
    missing.

    Args:
        consumer_id: the id of a consumer that comes back after a restart and finds its leased
            messages ready again; "": a new consumer.

    Raises:
        UnknownTopic, InvalidTopicName, NotAuthorized
        QueueExists: a queue of that name exists on other topics.
    """
    broker = port.broker
    await port.ensure_topic(topic)
    if not broker.queues.exists(name):
        with suppress(QueueExists):  # created by another client at the same time
            await broker.queues.create(name, [topic], HANDED_OUT_ONCE, principal=caller())
    check_queue_topic(broker, name, topic)
    if consumer_id:
        previous = await broker.queues.open_consumer(name, consumer_id=consumer_id, principal=caller())
        await previous.close(release=True)
    return await broker.queues.open_consumer(
        name, consumer_id=consumer_id, client_name=name, principal=caller()
    )


def check_queue_topic(broker: Broker, name: str, topic: str) -> None:
    """Check that a queue has the messages of a topic: other clients choose names of queues and
    topics, too.

    Raises:
        UnknownQueue: deleted meanwhile.
        QueueExists: it does not have the messages of the topic.
    """
    topics = broker.queues.topics_of(name)
    if topic not in topics:
        raise QueueExists(
            f"the messages of topic {topic!r} are handed out by the queue {name!r}, but that one "
            f"is of {', '.join(topics) or 'no topic'};"
            " delete it, or use another name"
        )


def check_not_a_cursor(broker: Broker, name: str) -> None:
    """Check that a queue named by a client is not the cursor of a topic for clients of another
    seed.

    Raises:
        QueueExists: it is one.
    """
    topic, dot, suffix = name.rpartition(".")
    if dot + suffix in CURSORS and broker.queues.topics_of(name) == (topic,):
        raise QueueExists(
            f"queue {name!r} hands out the messages of topic {topic!r} to others; use another "
            "name, or delete it"
        )


async def lease_published(
    consumer: QueueConsumer, max_records: int, max_bytes: int = 1 << 20
) -> list[Record]:
    """Lease messages among all that were published before the call; return [] if there are none.

    Unreadable messages are rejected and logged; they stay in their topic.
    """
    while True:
        leased = await consumer.lease(max_records, max_bytes=max_bytes)
        if not leased and await _catch_up(consumer):
            leased = await consumer.lease(max_records, max_bytes=max_bytes)
        found = [await read_leased(each) for each in leased]
        records = [handed.record for each in found for handed in each.records]
        await _settle_missing(consumer, leased, found)
        if records or not leased:
            return records


async def _settle_missing(
    consumer: QueueConsumer, leased: Sequence[Leased], found: Sequence[LeasedRecords]
) -> None:
    """Acknowledge offsets where compaction left no record, and reject unreadable batches."""
    settlements: list[Settlement] = []
    for each, had in zip(leased, found, strict=True):
        settlements += each.settlements(Verb.ACK, ranges=had.missing)
        settlements += settle_unreadable(each, had.unreadable, consumer.queue.corrupt_batches)
    if settlements:
        await consumer.settle(settlements)


async def _catch_up(consumer: QueueConsumer) -> bool:
    """Let the queue scan the latest publishes. Return False if there were none."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SCAN_WAIT_S
    was_behind = not consumer.queue.scanner.is_idle
    consumer.queue.scanner.catch_up(at_once=True)
    while not consumer.queue.scanner.is_idle and loop.time() < deadline:
        was_behind = True
        await asyncio.sleep(0)
    return was_behind


def settlements_of(records: Iterable[Record], verb: Verb) -> list[Settlement]:
    """Return settlements with this verb for the records, one for each run of offsets."""
    found: list[Settlement] = []
    for record in records:
        last = found[-1] if found else None
        if last is not None and (last.topic, last.partition, last.last + 1) == (
            record.topic,
            record.partition,
            record.offset,
        ):
            found[-1] = replace(last, last=record.offset)
        else:
            found.append(Settlement(verb, record.topic, record.partition, record.offset, record.offset))
    return found
