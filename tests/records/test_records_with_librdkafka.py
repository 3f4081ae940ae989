"""librdkafka reads what we build, and we read what it builds, over its own broker, in every
compression.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.record import decode
from tests.records.columns import NOW_MS
from tests.records.librdkafka import SECONDS, MockCluster

COUNT = 70
ROWS: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]] = [
    (
        None if n % 10 == 3 else b"value %d " % n * (n % 30),
        None if n % 4 == 0 else b"key %d" % (n % 7),
        (("message-id", b"%d" % n), ("null", None), ("", b"")) if n % 5 == 0 else (),
        NOW_MS + n * 3,
    )
    for n in range(COUNT)
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    cluster = MockCluster()
    yield cluster
    cluster.close()


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_of_librdkafka_are_decoded(cluster: MockCluster, codec: Compression) -> None:
    topic = f"from-librdkafka-{codec.name}"
    settings = cluster.producer_settings() | {
        "bootstrap.servers": cluster.bootstrap,
        "compression.type": codec.name.lower(),
        # one batch as a rule: librdkafka sends one that compression would not make smaller as
        # it is
        "linger.ms": 1000,
    }
    producer = Producer(settings)
    for value, key, headers, timestamp in ROWS:
        producer.produce(topic, value, key, headers=list(headers), timestamp=timestamp, partition=0)
    assert producer.flush(SECONDS) == 0

    batches = list(split(cluster.fetch(topic)))
    found = {header.compression for header, _ in batches}
    assert codec in found
    assert found <= {codec, Compression.NONE}
    records = [record for _, batch in batches for record in decode(batch)]
    assert [(each.value, each.key, each.headers, each.timestamp) for each in records] == ROWS
    assert [each.offset for each in records] == list(range(COUNT))


def built(codec: Compression) -> bytes:
    values, keys, headers, timestamps = zip(*ROWS, strict=True)
    return build_batch(values, keys, headers, timestamps, codec)


@pytest.mark.parametrize("codec", list(Compression))
def test_our_batches_are_consumed_by_librdkafka(cluster: MockCluster, codec: Compression) -> None:
    topic = f"to-librdkafka-{codec.name}"
    assert cluster.produce(topic, built(codec)) == 0
    assert cluster.produce(topic, built(codec)) == COUNT

    messages = consumed(cluster, topic, 2 * COUNT)
    rows = [(each.value(), each.key(), tuple(each.headers() or ()), each.timestamp()[1]) for each in messages]
    assert rows == ROWS + ROWS
    assert [each.offset() for each in messages] == list(range(2 * COUNT))


def consumed(cluster: MockCluster, topic: str, count: int) -> list[Any]:
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap,
        "group.id": topic,
        "check.crcs": True,
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = []
        while len(messages) < count:
            more = consumer.consume(count - len(messages), SECONDS)
            assert more, "librdkafka gave nothing"
            assert [each.error() for each in more] == [None] * len(more)
            messages += more
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", list(Compression))
def test_librdkafka_fetches_the_published_batch(cluster: MockCluster, codec: Compression) -> None:
    topic = f"raw-{codec.name}"
    batch = built(codec)
    cluster.produce(topic, batch)
    fetched = cluster.fetch(topic)
    assert fetched[16:] == batch[16:]
