"""Background work: retention, compaction, checkpoints, sessions; with a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import FetchRequest
from tests.broker.batches import batch, values

HOUR_MS = 3_600_000
NEVER_MS = 1 << 40


@pytest_asyncio.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS, checkpoint_bytes=1000
    )
    async with Broker(tmp_path / "d", config=config, clock=clock) as running:
        yield running


async def walk(broker: Broker) -> None:
    await broker._maintenance.walk()


async def test_old_segments_go_and_the_log_start_moves(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("orders", 1, {"retention.ms": str(HOUR_MS), "segment.ms": "60000"})
    await broker.records.publish("orders", 0, batch(b"old", timestamp_ms=clock.wall_ms()))
    clock.advance(2 * 3600)
    await broker.records.publish("orders", 0, batch(b"new", timestamp_ms=clock.wall_ms()))
    await walk(broker)
    (partition,) = broker.topics.describe("orders").partitions
    assert (partition.start_offset, partition.end_offset) == (1, 2)


async def test_a_topic_over_its_size_loses_its_oldest_segments(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("orders", 1, {"retention.bytes": "3000", "segment.bytes": "1024"})
    for i in range(10):
        await broker.records.publish("orders", 0, batch(bytes([i]) * 900, timestamp_ms=clock.wall_ms()))
    await walk(broker)
    (partition,) = broker.topics.describe("orders").partitions
    assert partition.start_offset > 0
    assert 2000 <= partition.bytes <= 4000


async def test_a_changed_retention_holds_at_the_next_walk(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("orders", 1, {"segment.ms": "60000"})
    await broker.records.publish("orders", 0, batch(b"old", timestamp_ms=clock.wall_ms()))
    clock.advance(2 * 3600)
    await broker.records.publish("orders", 0, batch(b"new", timestamp_ms=clock.wall_ms()))
    await walk(broker)
    assert broker.topics.describe("orders").partitions[0].start_offset == 0
    await broker.topics.configure("orders", {"retention.ms": str(HOUR_MS)})
    await walk(broker)
    assert broker.topics.describe("orders").partitions[0].start_offset == 1


async def test_compaction_keeps_the_last_value_of_each_key(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create(
        "prices",
        1,
        {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"},
    )
    for i in range(60):
        key = f"key-{i % 3}".encode()
        await broker.records.publish(
            "prices", 0, batch(b"%03d" % i * 50, key=key, timestamp_ms=clock.wall_ms())
        )
    await walk(broker)
    left, offset = [], 0
    while offset < 60:
        (result,) = await broker.records.fetch([FetchRequest("prices", 0, offset)])
        assert result.chunk is not None
        left += values(result.chunk.data, offset)
        offset = result.chunk.next_offset
    assert left[-3:] == [b"%03d" % i * 50 for i in (57, 58, 59)]
    assert len(left) < 30
    assert broker.topics.describe("prices").partitions[0].end_offset == 60


async def test_a_log_that_grew_gets_a_checkpoint(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("orders", 1)
    await broker.records.publish("orders", 0, batch(b"x" * 5000, timestamp_ms=clock.wall_ms()))
    log = broker.parts.topic_registry.get("orders").partition(0).log
    assert log.uncheckpointed_bytes > 1000
    await walk(broker)
    assert log.uncheckpointed_bytes == 0


async def test_idle_topics_are_kept_after_a_clean_restart_too(tmp_path: Path) -> None:
    clock = ManualClock()
    config = BrokerConfig(tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS)
    async with Broker(tmp_path / "d", config=config, clock=clock) as broker:
        await broker.topics.create("orders", 1, {"retention.ms": str(HOUR_MS), "segment.ms": "60000"})
        await broker.records.publish("orders", 0, batch(b"old", timestamp_ms=clock.wall_ms()))
    clock.advance(2 * 3600)
    async with Broker(tmp_path / "d", config=config, clock=clock) as broker:
        assert not broker.parts.topic_registry.get("orders").partition(0).is_open
        await walk(broker)
        assert broker.topics.describe("orders").partitions[0].start_offset == 1


async def test_a_bug_with_one_partition_keeps_the_walk_from_no_other(
    broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        await broker.topics.create(name, 1)
        await broker.records.publish(name, 0, batch(b"x" * 5000, timestamp_ms=clock.wall_ms()))
    first, second = (broker.parts.topic_registry.get(name).partition(0) for name in ("a", "b"))

    def fail(_: int) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(first, "forget_silent_producers", fail)
    await walk(broker)
    assert second.log.uncheckpointed_bytes == 0
    assert "housekeeping of a-0 failed" in caplog.text
