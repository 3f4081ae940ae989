"""Topics: created, described, configured, grown, deleted; every change is durable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparrow.base.errors import (
    InvalidArgument,
    InvalidConfig,
    InvalidTopicName,
    SparrowError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.broker.batches import batch


async def test_a_created_topic_is_described_with_partitions_and_configuration(broker: Broker) -> None:
    info = await broker.topics.create("orders", 3, {"retention.ms": "1000"})
    assert broker.topics.describe("orders") == info
    assert [(p.partition, p.start_offset, p.end_offset) for p in info.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert {e.name: e.value for e in info.config}["retention.ms"] == "1000"


async def test_minus_one_partitions_means_the_default(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", config=BrokerConfig(default_partitions=5)) as broker:
        assert (await broker.topics.create("orders")).partition_count == 5


async def test_a_topic_is_created_once(broker: Broker) -> None:
    await broker.topics.create("orders")
    with pytest.raises(TopicExists):
        await broker.topics.create("orders")


async def test_two_that_create_the_same_topic_at_once_get_one_topic_and_one_error(broker: Broker) -> None:
    results = await asyncio.gather(
        *(broker.topics.create("orders") for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(r, TopicExists) for r in results) == 4
    assert [t.name for t in broker.topics.listing()] == ["orders"]


async def test_topic_reported_as_existing_is_found_even_while_it_is_created(broker: Broker) -> None:
    async def create_and_look() -> bool:
        try:
            await broker.topics.create("orders")
        except TopicExists:
            return broker.parts.topic_registry.find("orders") is not None
        return True

    assert all(await asyncio.gather(*(create_and_look() for _ in range(5))))


async def test_many_that_ensure_the_same_topic_at_once_all_get_it(broker: Broker) -> None:
    results = await asyncio.gather(*(broker.topics.ensure("orders") for _ in range(20)))
    assert len({r.id for r in results}) == 1


async def test_a_broker_that_does_not_create_topics_refuses_to(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", config=BrokerConfig(auto_create_topics=False)) as broker:
        with pytest.raises(UnknownTopic, match="sparrow topic create orders"):
            await broker.topics.ensure("orders")


@pytest.mark.parametrize("partitions", [0, -2, 10_001])
async def test_a_wrong_number_of_partitions_is_refused(broker: Broker, partitions: int) -> None:
    with pytest.raises(InvalidArgument):
        await broker.topics.create("orders", partitions)


@pytest.mark.parametrize("name", ["../etc", "x" * 300, ""])
async def test_a_bad_name_is_refused_by_every_operation(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidTopicName):
        await broker.topics.create(name)
    with pytest.raises(InvalidTopicName):
        await broker.topics.ensure(name)
    with pytest.raises(InvalidTopicName):
        broker.records.publish(name, 0, batch(b"x"))
    with pytest.raises(InvalidTopicName):
        await broker.topics.delete(name)
    assert broker.topics.listing() == []


async def test_topics_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        made = await broker.topics.create("orders", 2, {"cleanup.policy": "compact"})
        cluster_id = broker.cluster_id
    async with Broker(tmp_path / "d") as broker:
        found = broker.topics.describe("orders")
        assert broker.cluster_id == cluster_id
    assert found == made


async def test_configuration_is_set_and_unset(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"retention.ms": "1000", "segment.ms": "9"})
    info = await broker.topics.configure("orders", {"retention.bytes": "5"}, ["retention.ms"])
    config = {e.name: (e.value, e.source) for e in info.config}
    assert config["retention.bytes"] == ("5", "topic")
    assert config["retention.ms"] == ("604800000", "default")
    assert config["segment.ms"] == ("9", "topic")


async def test_a_wrong_configuration_changes_nothing(broker: Broker) -> None:
    before = await broker.topics.create("orders")
    with pytest.raises(InvalidConfig):
        await broker.topics.configure("orders", {"retention.bytes": "5", "retention.ms": "soon"})
    assert broker.topics.describe("orders") == before


async def test_a_topic_grows_and_does_not_shrink(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    assert (await broker.topics.add_partitions("orders", 4)).partition_count == 4
    with pytest.raises(InvalidArgument, match="cannot shrink"):
        await broker.topics.add_partitions("orders", 3)
    await broker.records.publish("orders", 3, batch(b"x"))
    with pytest.raises(UnknownPartition, match="partitions 0 to 3"):
        broker.records.publish("orders", 4, batch(b"x"))


async def test_a_deleted_topic_is_gone_with_its_records(broker: Broker) -> None:
    first = await broker.topics.create("orders")
    await broker.records.publish("orders", 0, batch(b"x"))
    await broker.topics.delete("orders")
    with pytest.raises(UnknownTopic):
        broker.records.publish("orders", 0, batch(b"x"))
    second = await broker.topics.create("orders")
    assert second.id != first.id
    assert second.partitions[0].end_offset == 0


@pytest.mark.slow
async def test_publishers_of_a_topic_that_is_deleted_hear_that_it_is_gone(broker: Broker) -> None:
    async def publish_until_refused() -> BaseException:
        try:
            while True:
                await broker.records.publish("orders", 0, batch(b"x" * 1000))
        except SparrowError as error:
            return error

    for _ in range(20):
        await broker.topics.create("orders", 1)
        publishing = [asyncio.create_task(publish_until_refused()) for _ in range(8)]
        await asyncio.sleep(0.005)
        await broker.topics.delete("orders")
        assert {type(error) for error in await asyncio.gather(*publishing)} == {UnknownTopic}


async def test_lists_are_sorted_and_filtered_by_pattern(broker: Broker) -> None:
    for name in ("b.2", "a.1", "b.1"):
        await broker.topics.create(name)
    assert [t.name for t in broker.topics.listing()] == ["a.1", "b.1", "b.2"]
    assert [t.name for t in broker.topics.listing("b.*")] == ["b.1", "b.2"]
