"""Administration of classic groups with confluent-kafka, kafka-python and aiokafka: listed,
described, moved, deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import kafka.errors as errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as Partition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

import sparrow
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_admin.messages import make
from tests.kafka_frontend.raw import RawClient

SECONDS = 30


@pytest.fixture
def group(broker: RunningBroker, raw: RawClient, topic: str) -> str:
    """Create a topic with three records, and return the name of a group that will read it."""
    make(raw, topic)
    with sparrow.sync.connect(broker.url) as client:
        for number in range(3):
            client.publish(topic, b"%d" % number)
    return f"group-of-{topic}"


@contextmanager
def member(broker: RunningBroker, group: str, topic: str) -> Iterator[Consumer]:
    """Start a consumer that has read and committed all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = consumer.consume(3, SECONDS)
    assert [message.value() for message in read] == [b"0", b"1", b"2"]
    consumer.commit(asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


def committed(admin: AdminClient, group: str) -> list[tuple[str, int]]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return [(each.topic, each.offset) for each in future.result(SECONDS).topic_partitions]


def test_groups_with_confluent_kafka(broker: RunningBroker, group: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    with member(broker, group, topic):
        (described,) = (f.result(SECONDS) for f in admin.describe_consumer_groups([group]).values())
        assert (described.state, described.coordinator.id) == (ConsumerGroupState.STABLE, 1)
        assert [each.assignment.topic_partitions[0].topic for each in described.members] == [topic]
        (deleted,) = admin.delete_consumer_groups([group]).values()
        with pytest.raises(KafkaException):
            deleted.result(SECONDS)
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(SECONDS)
    assert group in {each.group_id for each in listed.valid}
    assert committed(admin, group) == [(topic, 3)]
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    (altered,) = admin.alter_consumer_group_offsets([moved]).values()
    altered.result(SECONDS)
    assert committed(admin, group) == [(topic, 1)]
    (deleted,) = admin.delete_consumer_groups([group]).values()
    deleted.result(SECONDS)
    listed = admin.list_consumer_groups().result(SECONDS)
    assert group not in {each.group_id for each in listed.valid}


def test_groups_with_kafka_python(broker: RunningBroker, group: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.kafka)
    partition = Partition(topic, 0)
    try:
        with member(broker, group, topic):
            described = admin.describe_groups([group])[group]
            assert described["group_state"] == "Stable"
            refused = admin.delete_group_offsets(group, [partition])
            assert refused[partition] is errors.GroupSubscribedToTopicError
        assert admin.list_group_offsets([group])[group][partition].offset == 3
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(2, "two", None)})
        found = admin.list_group_offsets([group])[group][partition]
        assert (found.offset, found.metadata) == (2, "two")
        assert admin.delete_group_offsets(group, [partition])[partition] is errors.NoError
        assert group in {each["group_id"] for each in admin.list_groups()}
    finally:
        admin.close()


async def test_groups_with_aiokafka(broker: RunningBroker, group: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.kafka)
    await admin.start()
    try:
        with member(broker, group, topic):
            (described,) = await admin.describe_consumer_groups([group])
            assert described.groups[0][1:3] == (group, "Stable")
        found = await admin.list_consumer_group_offsets(group)
        assert {(each.topic, offset.offset) for each, offset in found.items()} == {(topic, 3)}
        assert group in {name for name, _ in await admin.list_consumer_groups()}
    finally:
        await admin.close()
