"""Disturbed changes of topics: cancelled callers, names that are used again, watchers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparrow.base.errors import DirectoryUnreadable, InvalidConfig, NewerFormat, StorageFailed, UnknownTopic
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.partition import Partition
from sparrow.broker.topics.registry import Topic
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from sparrow.storage.local import LocalLogStore
from tests.broker.batches import batch


async def _abandon(change: Coroutine[Any, Any, object]) -> None:
    """Begin a change and cancel its caller while the meta store writes."""
    caller = asyncio.ensure_future(change)
    for _ in range(2):
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_creation_whose_caller_goes_away_makes_the_topic(broker: Broker) -> None:
    await _abandon(broker.topics.create("orders"))
    await broker.parts.topic_registry.settle()
    await broker.records.publish("orders", 0, batch(b"a"))


async def test_a_deletion_whose_caller_goes_away_lets_nobody_publish_to_a_topic_that_a_restart_forgets(
    tmp_path: Path,
) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 2)
        await broker.records.publish("orders", 1, batch(b"a"))
        await _abandon(broker.topics.delete("orders"))
        await broker.parts.topic_registry.settle()
        with pytest.raises(UnknownTopic):
            broker.records.publish("orders", 0, batch(b"a"))
    async with Broker(tmp_path / "d") as broker:
        assert broker.parts.topic_registry.find("orders") is None


async def test_a_configuration_whose_caller_goes_away_holds(broker: Broker) -> None:
    await broker.topics.create("orders")
    await _abandon(broker.topics.configure("orders", {"retention.ms": "5"}))
    await _abandon(broker.topics.add_partitions("orders", 3))
    await broker.parts.topic_registry.settle()
    topic = broker.parts.topic_registry.get("orders")
    assert (topic.config.log.retention_ms, len(topic.partitions)) == (5, 3)


async def test_closing_waits_for_a_change_that_nobody_waits_for(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await _abandon(broker.topics.create("orders"))
    async with Broker(tmp_path / "d") as broker:
        assert broker.parts.topic_registry.find("orders") is not None


async def test_a_name_is_free_when_the_deleted_topic_is_gone_with_all_that_it_had(broker: Broker) -> None:
    first = await broker.topics.create("orders", 4)
    for partition in range(4):
        await broker.records.publish("orders", partition, batch(b"a"))
    await broker.groups.commit_offsets("billing", {("orders", 0): (1, "")})
    deleting = asyncio.ensure_future(broker.topics.delete("orders"))
    while broker.parts.topic_registry.find("orders") is not None:
        await asyncio.sleep(0)
    created, ensured = await asyncio.gather(broker.topics.create("orders", 4), broker.topics.ensure("orders"))
    assert deleting.done()
    assert created.id == ensured.id != first.id
    assert [p.end_offset for p in created.partitions] == [0, 0, 0, 0]
    assert broker.groups.fetch_offsets("billing") == []


async def test_a_watcher_that_fails_fails_no_change_and_silences_nobody(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    created: list[str] = []

    def fail(topic: Topic) -> None:
        raise RuntimeError(topic.name)

    broker.parts.topic_registry.watch(fail)
    broker.parts.topic_registry.watch(lambda topic: created.append(topic.name))
    await broker.topics.create("orders")
    assert created == ["orders"]
    assert "a watcher of topic 'orders' failed" in caplog.text


@pytest.mark.parametrize(
    ("stored", "error"),
    [(b"\xc1", DirectoryUnreadable), (b"\x95\x02\xc4\x01a\x01\x80\x00", NewerFormat)],
    ids=["garbage", "newer"],
)
async def test_a_stored_topic_that_cannot_be_read_stops_the_start_with_its_name(
    tmp_path: Path, stored: bytes, error: type[Exception]
) -> None:
    meta, logs = MemoryMetaStore(), LocalLogStore(str(tmp_path / "d"))
    await meta.write([Put("topic", "orders", stored)])
    with pytest.raises(error, match="'orders'"):
        await Broker(log_store=logs, meta_store=meta).start()
    await logs.close()


def test_wrong_defaults_of_topics_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms cannot be 'soon'"):
        Broker(tmp_path / "d", config=BrokerConfig(topic_defaults={"retention.ms": "soon"}))


async def test_closing_twice_is_no_error(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.close()


async def test_a_broker_that_cannot_checkpoint_gives_its_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Partition) -> None:
        raise StorageFailed("no checkpoint today")

    broker = Broker(tmp_path / "d")
    await broker.start()
    await broker.topics.create("orders", 1)
    await broker.records.publish("orders", 0, batch(b"a"))
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "checkpoint", fail)
        with pytest.raises(StorageFailed):
            await broker.close()
    async with Broker(tmp_path / "d") as again:
        assert again.topics.describe("orders").partitions[0].end_offset == 1
