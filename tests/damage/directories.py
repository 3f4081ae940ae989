"""A data directory that a real broker wrote, and ways to damage its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sparrow.base.errors import SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import decode
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.queues.work import ack, take

TOPICS = ("orders", "payments", "events")
QUEUE, WORKER = "work", "worker"
ACKNOWLEDGED, LEASED = range(10), range(10, 15)
"""Offsets of the queue's records after `write` with work."""
HOUR_MS = 3_600_000
JOURNAL_BYTES = 64 << 10
BATCHES = 24
RECORDS = 2
CONFIG = BrokerConfig(default_partitions=1, auto_create_topics=False)


def value_of(topic: str, offset: int) -> bytes:
    """Return the value of the record at an offset."""
    return f"{topic} {offset}".encode().ljust(60, b".")


async def publish(broker: Broker, topic: str, first: int, count: int = RECORDS) -> int:
    """Publish records whose values are their expected offsets. Return the offset of the first."""
    values = [value_of(topic, first + number) for number in range(count)]
    return (await broker.records.publish(topic, 0, build_batch(values))).base_offset


async def write(path: Path, *, copy_to: Path | None = None, works: bool = False) -> None:
    """Write three topics, a queue on the second, a group that read the third; all checkpointed,
    none compacted.

    Args:
        copy_to: copy the directory there while the broker runs, as a kill -9 would leave it.
        works: lease and acknowledge records of the queue, so that there is a journal. It has
            records of the topics, too.
    """
    logs = LocalLogStore(str(path), options=StorageOptions(journal_file_bytes=JOURNAL_BYTES))
    meta = SqliteMetaStore(f"{path}/meta.db")
    async with Broker(log_store=logs, meta_store=meta, config=CONFIG) as broker:
        for topic in TOPICS:
            await broker.topics.create(topic, config={"segment.bytes": "2048", "index.interval.bytes": "256"})
        await broker.parts.queue_registry.create(QUEUE, ("payments",), {"lease_ms": HOUR_MS})
        for number in range(BATCHES):
            if works and number == BATCHES // 2:
                await work(broker)
            for topic in TOPICS:
                await publish(broker, topic, number * RECORDS)
        await broker.groups.commit_offsets("readers", {("events", 0): (7, "")})
        for topic in TOPICS:
            await broker.parts.topic_registry.get(topic).partition(0).checkpoint()
        if copy_to is not None:
            shutil.copytree(path, copy_to)


async def work(broker: Broker) -> None:
    """Acknowledge some records one by one, and keep others leased."""
    consumer = await broker.queues.open_consumer(QUEUE, consumer_id=WORKER)
    for _ in ACKNOWLEDGED:
        await ack(consumer, await take(consumer, 1))
    assert [record.offset for record in await take(consumer, len(LEASED))] == list(LEASED)


def files(path: Path) -> list[str]:
    """Return all files of a data directory, relative."""
    return sorted(
        os.path.relpath(os.path.join(parent, name), path)
        for parent, _, names in os.walk(path)
        for name in names
    )


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_one(path: Path) -> None:
    os.truncate(path, max(path.stat().st_size - 1, 0))


def remove(path: Path) -> None:
    path.unlink()


def flip_middle(path: Path) -> None:
    _flip(path, path.stat().st_size // 2)


def flip_first(path: Path) -> None:
    """Flip a bit of the first batch's base offset, which no CRC covers."""
    _flip(path, min(7, path.stat().st_size - 1))


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[position] ^= 0x04
        path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: tuple[Callable[[Path], None], ...] = (cut, cut_by_one, remove, flip_middle, flip_first, zero)


async def read_what_can_be_read(broker: Broker, topic: str) -> tuple[list[tuple[int, bytes]], str]:
    """Read from every offset. Return all records, and the code of the first error."""
    found: dict[int, bytes] = {}
    problem = ""
    try:
        log = broker.parts.topic_registry.get(topic).partition(0).log
    except SparrowError as error:
        return [], error.code
    for offset in range(log.start_offset, log.end_offset):
        try:
            chunk = await log.read(offset, 1)
            for _, data in split(chunk.data):
                found.update((record.offset, record.value or b"") for record in decode(data, topic, 0))
        except SparrowError as error:
            problem = problem or error.code
    return sorted(found.items()), problem
