"""Queues that stand for what a seed remembers of a topic: which of its messages were handed out."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import QueueExists, SparrowError
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.broker.queues.state import ONE_OF
from sparrow.frontends.leased_records import read_leased
from sparrow.frontends.seeds.topics import ensure_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.frontends.leased_records import LeasedRecords
    from sparrow.records.record import Record

_LOG = logging.getLogger("sparrow.seeds")

HANDED_OUT_ONCE: Mapping[str, object] = {"delivery_limit": 0, "dead_letter_topic": None}
"""The policy of a queue whose messages are done when they are handed out: nothing can fail that would be counted."""

CURSORS: Final = (".diy", ".mbus")
"""With one of these the name of a queue ends that is the cursor of a topic for all clients of a seed."""

SCAN_WAIT_S: Final = 1.0
"""How long a question waits until all that was published is looked at."""


async def open_queue(broker: Broker, name: str, topic: str, consumer_id: str = "") -> QueueConsumer:
    """A consumer of a queue on a topic, from its first message on; both are made if they are missing.

    Args:
        consumer_id: who comes back after a restart, and finds ready again what it had leased; "": somebody new.

    Raises:
        UnknownTopic, InvalidTopicName, NotAuthorized
        QueueExists: there is one of that name, on other topics.
    """
    await ensure_topic(broker, topic)
    if broker.queues.registry.find(name) is None:
        with suppress(QueueExists):  # made by another at the same time
            await broker.queues.create(name, [topic], HANDED_OUT_ONCE, principal=ANONYMOUS)
    check_is_of(broker, name, topic)
    if consumer_id:
        before = await broker.queues.open_consumer(name, consumer_id=consumer_id, principal=ANONYMOUS)
        await before.close(give_back=True)
    return await broker.queues.open_consumer(
        name, consumer_id=consumer_id, client_name=name, principal=ANONYMOUS
    )


def check_is_of(broker: Broker, name: str, topic: str) -> None:
    """A queue of that name may be there for something else: names of topics and queues are chosen by others, too.

    Raises:
        UnknownQueue: deleted meanwhile.
        QueueExists: it does not have the messages of the topic.
    """
    topics = broker.queues.registry.get(name).definition.topics
    if topic not in topics:
        raise QueueExists(
            f"the messages of topic {topic!r} are handed out by the queue {name!r}, but that one is of {', '.join(topics) or 'no topic'};"
            " delete it, or use another name"
        )


def check_is_no_cursor(broker: Broker, name: str) -> None:
    """Whoever names a queue by its own name must not get one that is the cursor of a topic for clients of another seed.

    Raises:
        QueueExists: it is.
    """
    queue = broker.queues.registry.find(name)
    topic, dot, suffix = name.rpartition(".")
    if queue is not None and dot + suffix in CURSORS and queue.definition.topics == (topic,):
        raise QueueExists(
            f"queue {name!r} hands out the messages of topic {topic!r} to others; use another name, or delete it"
        )


async def take_back(broker: Broker, name: str, prefix: str) -> None:
    """What consumers whose ids begin so had leased, and who are not there any more, is ready again: a broker that was killed gave nothing back.

    Raises:
        UnknownQueue: deleted meanwhile.
        DiskFull, StorageFailed
    """
    queue = broker.queues.registry.get(name)
    lane = queue.state.lanes.get(ONE_OF)
    holders = () if lane is None else lane.holders
    for holder in [each for each in holders if each.startswith(prefix) and each not in queue.consumers]:
        ghost = await broker.queues.open_consumer(name, consumer_id=holder, principal=ANONYMOUS)
        await ghost.close(give_back=True)


async def lease_published(
    consumer: QueueConsumer, max_records: int, max_bytes: int = 1 << 20
) -> list[Record]:
    """What can be had now of all that was published before; [] if there is nothing.

    What nobody can read is dropped from the queue, with a line in the log, when it is the only one; it stays in its topic.
    """
    limit = max_records
    while True:
        leased = await consumer.lease(limit, max_bytes=max_bytes)
        if not leased and await _has_looked(consumer):
            leased = await consumer.lease(limit, max_bytes=max_bytes)
        try:
            found = [await read_leased(each) for each in leased]
        except SparrowError as error:
            is_only = sum(each.records for each in leased) == 1
            if is_only:
                _LOG.error("queue %r drops a record that cannot be read: %s", consumer.queue_name, error.text)
            await consumer.settle(settlements(leased, Verb.REJECT if is_only else Verb.RETURN))
            limit = max_records if is_only else 1
            continue
        records = [handed.record for each in found for handed in each.records]
        await _settle_missing(consumer, leased, found)
        if records or not leased:
            return records


async def _settle_missing(
    consumer: QueueConsumer, leased: Sequence[Leased], found: Sequence[LeasedRecords]
) -> None:
    """There is nothing to be done where compaction left no record."""
    missing = [
        Settlement(Verb.ACK, each.topic, each.partition, first, last)
        for each, had in zip(leased, found, strict=True)
        for first, last, _ in had.missing
    ]
    if missing:
        await consumer.settle(missing)


async def _has_looked(consumer: QueueConsumer) -> bool:
    """Let the queue look at what was just published; False when there was nothing to look at."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SCAN_WAIT_S
    was_behind = not consumer.queue.scanner.is_idle
    consumer.queue.scanner.catch_up(at_once=True)
    while not consumer.queue.scanner.is_idle and loop.time() < deadline:
        was_behind = True
        await asyncio.sleep(0)
    return was_behind


def settlements(leased: Iterable[Leased], verb: Verb) -> list[Settlement]:
    """What says the same of all that was leased."""
    return [
        Settlement(verb, each.topic, each.partition, first, last)
        for each in leased
        for first, last, _ in each.ranges
    ]


def settlements_of(records: Iterable[Record], verb: Verb) -> list[Settlement]:
    """What says the same of these records, with one for each run of offsets."""
    found: list[Settlement] = []
    for record in records:
        last = found[-1] if found else None
        if last is not None and (last.topic, last.partition, last.last + 1) == (
            record.topic,
            record.partition,
            record.offset,
        ):
            found[-1] = last._replace(last=record.offset)
        else:
            found.append(Settlement(verb, record.topic, record.partition, record.offset, record.offset))
    return found
