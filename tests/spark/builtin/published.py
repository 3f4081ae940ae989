"""Lines published by either client, and topics as a Kafka client of committed records reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import confluent_kafka

from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.spark.builtin.loglines import Line
from tests.spark.kafka import read_messages


class Got(NamedTuple):
    """A record as a Kafka client gets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def publish_natively(client: Client, topic: str, lines: Iterable[Line]) -> None:
    with client.producer() as producer:
        for line in lines:
            producer.send(
                topic, line.value, key=line.key, headers=line.headers, timestamp_ms=line.timestamp_ms
            )
        producer.flush()


def publish_as_kafka_client(broker: RunningBroker, topic: str, lines: Iterable[Line]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "compression.type": "lz4"})
    for line in lines:
        producer.produce(topic, line.value, line.key, headers=list(line.headers), timestamp=line.timestamp_ms)
    assert producer.flush(30) == 0


def got(broker: RunningBroker, topic: str) -> dict[int, list[Got]]:
    """Return all committed records of a topic, by partition, in order."""
    return {
        partition: [
            Got(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1])
            for each in messages
        ]
        for partition, messages in read_messages(broker, topic).items()
    }


def values_of(found: Mapping[int, list[Got]]) -> list[bytes | None]:
    """Return the values of all partitions."""
    return [record.value for records in found.values() for record in records]
