"""Reading a topic by a Kafka client, from its beginning to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

    from sparrow.testing.running_broker import RunningBroker


def read_messages(
    broker: RunningBroker, topic: str, *, isolation: str = "read_committed"
) -> dict[int, list[Message]]:
    """Return the messages by partition, in the order of their offsets, including empty
    partitions.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        found: dict[int, list[Message]] = {each: [] for each in sorted(partitions)}
        open_partitions = set(partitions)
        while open_partitions:
            # One by one: a batch that is fetched while the assignment changes sometimes loses its
            # messages, but not the ends of partitions.
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise AssertionError(message.error())
        return found
    finally:
        consumer.close()


def read_topic(
    broker: RunningBroker, topic: str, *, isolation: str = "read_committed"
) -> dict[int, list[bytes | None]]:
    """Return the values."""
    found = read_messages(broker, topic, isolation=isolation)
    return {partition: [each.value() for each in messages] for partition, messages in found.items()}
