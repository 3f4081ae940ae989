"""Fetch: by offset, long poll, limits, offsets by timestamp, deleted records."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any

import pytest
from msgspec.structs import replace

from sparrow.base.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from sparrow.broker.broker import Broker
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.storage.store import Chunk
from tests.broker.batches import batch, values


async def test_a_fetch_inside_a_batch_returns_the_batch_that_holds_the_offset(broker: Broker) -> None:
    await broker.topics.create("orders")
    await broker.records.publish("orders", 0, batch(b"a", b"b", b"c"))
    (result,) = await broker.records.fetch([FetchRequest("orders", 0, 1)])
    assert result.chunk is not None
    assert (result.chunk.base_offset, result.chunk.next_offset) == (0, 3)
    assert values(result.chunk.data, 1) == [b"b", b"c"]


async def test_a_long_poll_ends_when_enough_bytes_are_there(broker: Broker) -> None:
    await broker.topics.create("orders")
    one = batch(b"x" * 100)
    waiting = asyncio.ensure_future(
        broker.records.fetch([FetchRequest("orders", 0, 0)], min_bytes=2 * len(one), max_wait_ms=60_000)
    )
    await broker.records.publish("orders", 0, one)
    await asyncio.sleep(0)
    assert not waiting.done()
    await broker.records.publish("orders", 0, one)
    (result,) = await asyncio.wait_for(waiting, 5)
    assert result.size_bytes == 2 * len(one)


async def test_a_long_poll_ends_empty_when_its_wait_is_over(broker: Broker) -> None:
    await broker.topics.create("orders")
    began = time.monotonic()
    (result,) = await broker.records.fetch([FetchRequest("orders", 0, 0)], max_wait_ms=50)
    assert time.monotonic() - began >= 0.045
    assert (result.size_bytes, result.high_watermark, result.error) == (0, 0, None)


async def test_errors_are_per_partition_and_end_the_wait(broker: Broker) -> None:
    await broker.topics.create("orders")
    await broker.records.publish("orders", 0, batch(b"a"))
    results = await asyncio.wait_for(
        broker.records.fetch(
            [
                FetchRequest("orders", 0, 0),
                FetchRequest("orders", 0, 7),
                FetchRequest("orders", 5, 0),
                FetchRequest("missing", 0, 0),
            ],
            min_bytes=1 << 20,
            max_wait_ms=60_000,
        ),
        5,
    )
    assert [type(r.error) for r in results] == [type(None), OffsetOutOfRange, UnknownPartition, UnknownTopic]
    assert results[0].size_bytes > 0


async def test_limits_hold_but_the_first_batch_comes_whole(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    big = batch(b"x" * 10_000)
    for partition in (0, 0, 1):
        await broker.records.publish("orders", partition, big)
    requests = [FetchRequest("orders", 0, 0), FetchRequest("orders", 1, 0)]
    first, second = await broker.records.fetch(requests, max_bytes=100)
    assert (first.size_bytes, second.size_bytes) == (len(big), 0)
    first, second = await broker.records.fetch(requests, max_bytes=2 * len(big) + 10)
    assert (first.size_bytes, second.size_bytes) == (2 * len(big), 0)


async def test_a_deleted_topic_ends_a_long_poll(broker: Broker) -> None:
    await broker.topics.create("orders")
    waiting = asyncio.ensure_future(broker.records.fetch([FetchRequest("orders", 0, 0)], max_wait_ms=60_000))
    await asyncio.sleep(0)
    await broker.topics.delete("orders")
    (result,) = await asyncio.wait_for(waiting, 5)
    assert isinstance(result.error, UnknownTopic)


async def test_offsets_are_found_by_timestamp_and_minus_one_when_nothing_is_that_late(broker: Broker) -> None:
    await broker.topics.create("orders")
    for ms in (1000, 3000, 2000):
        await broker.records.publish("orders", 0, batch(b"a", b"b", timestamp_ms=ms))
    assert await broker.records.offsets("orders", "timestamp", 1500) == [(0, 2, 3000)]
    assert await broker.records.offsets("orders", "timestamp", 1000) == [(0, 0, 1000)]
    assert await broker.records.offsets("orders", "timestamp", 3001) == [(0, -1, -1)]
    assert await broker.records.offsets("orders", "beginning") == [(0, 0, -1)]
    assert await broker.records.offsets("orders", "end") == [(0, 6, -1)]


async def test_deleting_records_moves_the_log_start(broker: Broker) -> None:
    await broker.topics.create("orders")
    for _ in range(3):
        await broker.records.publish("orders", 0, batch(b"a", b"b"))
    assert await broker.topics.delete_records("orders", {0: 3}) == {0: 3}
    assert broker.topics.describe("orders").partitions[0].start_offset == 3
    (before, at) = await broker.records.fetch([FetchRequest("orders", 0, 2), FetchRequest("orders", 0, 3)])
    assert isinstance(before.error, OffsetOutOfRange)
    assert at.chunk is not None
    assert values(at.chunk.data, 3) == [b"b", b"a", b"b"]
    assert await broker.topics.delete_records("orders", {0: -1}) == {0: 6}
    with pytest.raises(OffsetOutOfRange):
        await broker.topics.delete_records("orders", {0: 7})


async def test_a_topic_deleted_while_the_disk_is_read_is_a_result_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders")
    await broker.records.publish("orders", 0, batch(b"a"))
    log = broker.parts.topic_registry.get("orders").partition(0).log
    read_nowait = log.read_nowait

    async def read(_: object, offset: int, max_bytes: int) -> Chunk | None:
        chunk = read_nowait(offset, max_bytes)
        await broker.topics.delete("orders")
        return chunk

    monkeypatch.setattr(type(log), "read_nowait", lambda *_: None)
    monkeypatch.setattr(type(log), "read", read)
    (result,) = await broker.records.fetch([FetchRequest("orders", 0, 0)])
    assert isinstance(result.error, UnknownTopic)


def count_reads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the log of each read."""
    reads: list[str] = []
    kind = type(broker.parts.topic_registry.get("orders").partition(0).log)
    read_nowait = kind.read_nowait

    def read(log: Any, offset: int, max_bytes: int) -> Chunk | None:
        reads.append(str(log.id))
        found: Chunk | None = read_nowait(log, offset, max_bytes)
        return found

    monkeypatch.setattr(kind, "read_nowait", read)
    return reads


async def test_long_poll_does_not_reread_data_below_the_minimum(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders")
    one = batch(b"x" * 100)
    await broker.records.publish("orders", 0, one)
    reads = count_reads(broker, monkeypatch)
    waiting = asyncio.ensure_future(
        broker.records.fetch([FetchRequest("orders", 0, 0)], min_bytes=50 * len(one), max_wait_ms=60_000)
    )
    for _ in range(49):
        await asyncio.sleep(0)
        assert not waiting.done()
        await broker.records.publish("orders", 0, one)
    (result,) = await asyncio.wait_for(waiting, 5)
    assert (result.size_bytes, len(reads)) == (50 * len(one), 2)


async def test_a_long_poll_over_many_partitions_reads_those_that_got_records(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders", 50)
    reads = count_reads(broker, monkeypatch)
    waiting = asyncio.ensure_future(
        broker.records.fetch([FetchRequest("orders", n, 0) for n in range(50)], max_wait_ms=60_000)
    )
    while len(reads) < 50:
        await asyncio.sleep(0)
    await broker.records.publish("orders", 7, batch(b"a"))
    results = await asyncio.wait_for(waiting, 5)
    assert [number for number, result in enumerate(results) if result.size_bytes] == [7]
    assert reads[50:] == ["orders-7"]


async def test_a_long_poll_holds_no_records_while_it_waits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders")
    await broker.records.publish("orders", 0, batch(b"x" * 100))
    held: list[weakref.ref[memoryview]] = []
    kind = type(broker.parts.topic_registry.get("orders").partition(0).log)
    read_nowait = kind.read_nowait

    def read(log: Any, offset: int, max_bytes: int) -> Chunk:
        chunk = read_nowait(log, offset, max_bytes)
        assert chunk is not None
        data = memoryview(bytes(chunk.data))
        held.append(weakref.ref(data))
        return replace(chunk, data=data)

    monkeypatch.setattr(kind, "read_nowait", read)
    waiting = asyncio.ensure_future(
        broker.records.fetch([FetchRequest("orders", 0, 0)], min_bytes=1 << 20, max_wait_ms=60_000)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert held
    assert not any(each() is not None for each in held)
    waiting.cancel()


async def test_a_reader_that_is_behind_does_not_wait_at_the_end_of_a_segment(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"segment.bytes": "1048576"})
    big = batch(b"x" * 600_000)
    for _ in range(3):
        await broker.records.publish("orders", 0, big)
    (result,) = await asyncio.wait_for(
        broker.records.fetch(
            [FetchRequest("orders", 0, 0, 10 << 20)],
            max_bytes=10 << 20,
            min_bytes=2 * len(big),
            max_wait_ms=60_000,
        ),
        5,
    )
    assert result.size_bytes == len(big)


async def test_a_fetch_of_nothing_does_not_wait(broker: Broker) -> None:
    assert await asyncio.wait_for(broker.records.fetch([], max_wait_ms=60_000), 5) == []
