"""Configurations of brokers take effect on topics at once and are kept."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import (
    DirectoryUnreadable,
    InvalidConfig,
    InvalidTopicName,
    NewerFormat,
    PolicyViolation,
    RecordTooLarge,
)
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.configs.changes import ConfigChange, ConfigOperation
from sparrow.broker.configs.service import ConfigResource, ConfigResourceType
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import Put
from tests.broker.batches import batch

if TYPE_CHECKING:
    pass

ALL, NODE = (ConfigResource(ConfigResourceType.BROKER, name) for name in ("", "1"))
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")


async def set_(broker: Broker, resource: ConfigResource, name: str, value: str) -> None:
    change = ConfigChange(name, ConfigOperation.SET, value)
    await broker.configs.alter(resource, [change], principal=ANONYMOUS)


async def test_a_default_of_topics_that_is_changed_holds_for_the_next_publish(broker: Broker) -> None:
    await broker.topics.create("orders", 1)
    await broker.records.publish("orders", 0, batch(b"x" * 200))
    await set_(broker, ALL, "message.max.bytes", "100")
    with pytest.raises(RecordTooLarge):
        await broker.records.publish("orders", 0, batch(b"x" * 200))
    await set_(broker, TOPIC, "max.message.bytes", "1000")
    await broker.records.publish("orders", 0, batch(b"x" * 200))


async def test_topics_made_later_and_after_a_restart_have_the_changed_default(tmp_path: Path) -> None:
    for name in ("a", "b"):
        async with Broker(
            tmp_path / "d", config=BrokerConfig(topic_defaults={"retention.ms": "3"})
        ) as broker:
            if name == "a":
                await broker.topics.create("before")
                await set_(broker, ALL, "log.retention.ms", "5")
                await set_(broker, NODE, "log.retention.ms", "6")
            await broker.topics.create(name)
            assert {
                broker.parts.topic_registry.get(each).config.log.retention_ms for each in ("before", name)
            } == {6}


async def test_many_changes_at_once_are_all_kept(broker: Broker) -> None:
    await broker.topics.create("orders", 1)
    names = ["flush.ms", "flush.messages", "retention.ms", "segment.ms", "retention.bytes"]
    await asyncio.gather(*(set_(broker, TOPIC, name, "77") for name in names))
    assert broker.parts.topic_registry.get("orders").config.overrides == dict.fromkeys(names, "77")


async def test_a_change_whose_caller_went_away_is_carried_out(broker: Broker) -> None:
    await broker.topics.create("orders", 1)
    change = asyncio.ensure_future(set_(broker, ALL, "log.retention.ms", "5"))
    await asyncio.sleep(0)
    change.cancel()
    await broker.configs.settle()
    assert broker.parts.topic_registry.get("orders").config.log.retention_ms == 5


async def test_a_refused_change_leaves_the_others_of_its_call_undone(broker: Broker) -> None:
    await broker.topics.create("orders", 1)
    changes = [
        ConfigChange("flush.ms", ConfigOperation.SET, "5"),
        ConfigChange("retention.ms", ConfigOperation.SET, "soon"),
    ]
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        await broker.configs.alter(TOPIC, changes, principal=ANONYMOUS)
    assert broker.parts.topic_registry.get("orders").config.overrides == {}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"\x92\x02\x80", NewerFormat),
        (b"nonsense", DirectoryUnreadable),
        (b"\x92\x01\x91\x01", DirectoryUnreadable),
    ],
)
async def test_a_stored_configuration_that_cannot_be_read_stops_the_start(
    tmp_path: Path, value: bytes, error: type[Exception]
) -> None:
    async with Broker(tmp_path / "d"):
        pass
    meta = SqliteMetaStore(str(tmp_path / "d" / "meta.db"))
    await meta.write([Put("config", "broker/", value)])
    await meta.close()
    with pytest.raises(error, match="broker/"):
        async with Broker(tmp_path / "d"):
            pass


# ── names and numbers of topics ───────────────────────────────────────────────────────────────────


async def test_names_that_are_the_same_in_metrics_are_refused_until_one_is_free(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("a.b_c")
    async with Broker(tmp_path / "d") as broker:
        for name in ("a_b_c", "a.b.c", "a_b.c"):
            with pytest.raises(InvalidTopicName, match=r"a\.b_c"):
                await broker.topics.create(name)
            with pytest.raises(InvalidTopicName):
                await broker.topics.ensure(name)
        results = await asyncio.gather(
            *(broker.topics.create(name) for name in ("x.y", "x_y")), return_exceptions=True
        )
        assert sorted(type(result).__name__ for result in results) == ["InvalidTopicName", "TopicDescription"]
        await broker.topics.delete("a.b_c")
        await broker.topics.create("a_b_c")


async def test_partitions_of_all_topics_together_are_limited(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", config=BrokerConfig(max_partitions=10)) as broker:
        results = await asyncio.gather(
            *(broker.topics.create(f"t{i}", 4) for i in range(5)), return_exceptions=True
        )
        assert sum(isinstance(result, PolicyViolation) for result in results) == 3
        await broker.topics.delete("t0")
        await broker.topics.add_partitions("t1", 10)
        with pytest.raises(PolicyViolation):
            await broker.topics.create("t9", 1)


async def test_checking_a_new_topic_makes_none(broker: Broker) -> None:
    info = await broker.topics.create("orders", 3, {"flush.ms": "5"}, validate_only=True)
    assert (info.partition_count, info.id) == (3, str(uuid.UUID(int=0)))
    assert broker.topics.listing() == []
    await broker.topics.create("orders", 2)
    grown = await broker.topics.add_partitions("orders", 3, validate_only=True)
    assert grown.partition_count == 2


async def test_making_topics_opens_no_logs(broker: Broker) -> None:
    await broker.topics.create("orders", 3)
    await broker.topics.add_partitions("orders", 5)
    assert not any(
        partition.is_open for partition in broker.parts.topic_registry.get("orders").partitions[3:]
    )


async def test_the_log_directory_has_sizes_of_logs_that_were_not_opened_since_the_start(
    tmp_path: Path,
) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 2)
        await broker.records.publish("orders", 1, batch(b"x" * 500))
    async with Broker(tmp_path / "d") as broker:
        found = await broker.describe_log_directory()
        assert found.topics["orders"][0] == 0
        assert found.topics["orders"][1] > 500
        assert found.path == str(tmp_path / "d" / "logs")
        some = await broker.describe_log_directory({"orders": [0, 7], "none": [0]})
        assert some.topics == {"orders": {0: 0}}
