"""Kafka's client libraries in normal use: every way to produce and consume, every compression."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import sparrow.sync
from sparrow.testing.running_broker import RunningBroker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500
SECONDS = 60
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
ROWS: list[Row] = [
    (
        None if n % 50 == 7 else b"value %d " % n * (n % 20),
        None if n % 3 == 0 and n % 50 != 7 else b"key %d" % (n % 11),
        [("n", b"%d" % n), ("empty", b"")] if n % 4 == 0 else [],
    )
    for n in range(COUNT)
]


def with_confluent(bootstrap: str, topic: str, codec: str, acks: str = "all") -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "acks": acks,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    failed: list[Any] = []
    for value, key, headers in ROWS:
        producer.produce(
            topic, value, key, partition=0, headers=headers or None,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0
    assert failed == []


def with_kafka_python(bootstrap: str, topic: str, codec: str, acks: str = "all") -> None:
    chosen = {"all": "all", "1": 1, "0": 0}[acks]
    idempotent = {} if acks == "all" else {"enable_idempotence": False}
    with_codec = {} if codec == "none" else {"compression_type": codec}
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=chosen, **idempotent, **with_codec)
    try:
        sent = [
            producer.send(topic, value, key, headers=headers, partition=0) for value, key, headers in ROWS
        ]
        producer.flush(SECONDS)
        if acks != "0":
            assert [future.get(SECONDS).offset for future in sent] == list(range(COUNT))
    finally:
        producer.close()


def with_aiokafka(bootstrap: str, topic: str, codec: str, acks: str = "all") -> None:
    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks={"all": "all", "1": 1, "0": 0}[acks],
            enable_idempotence=acks == "all",
            compression_type=None if codec == "none" else codec,
        ) as producer:
            for value, key, headers in ROWS:
                await producer.send(topic, value, key, headers=headers, partition=0)
            await producer.flush()

    asyncio.run(run())


def by_confluent(bootstrap: str, topic: str) -> list[Row]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "check.crcs": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[Row] = []
    try:
        while len(found) < COUNT:
            messages = consumer.consume(COUNT, SECONDS)
            assert messages, "nothing came"
            assert not [each.error() for each in messages if each.error()]
            found += [(each.value(), each.key(), each.headers() or []) for each in messages]
    finally:
        consumer.close()
    return found


def by_kafka_python(bootstrap: str, topic: str) -> list[Row]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True)
    place = kafka.TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        found: list[Row] = []
        while len(found) < COUNT:
            records = consumer.poll(SECONDS * 1000).get(place, [])
            assert records, "nothing came"
            found += [(each.value, each.key, list(each.headers)) for each in records]
        return found
    finally:
        consumer.close()


def by_aiokafka(bootstrap: str, topic: str) -> list[Row]:
    async def run() -> list[Row]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            found: list[Row] = []
            async with asyncio.timeout(SECONDS):
                while len(found) < COUNT:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        found += [(each.value, each.key, list(each.headers)) for each in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(run())


PRODUCERS = {"confluent": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}
CONSUMERS = {"confluent": by_confluent, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_client_reads_records_of_every_client(
    broker: RunningBroker, topic: str, producer: str, codec: str
) -> None:
    PRODUCERS[producer](broker.kafka, topic, codec)
    for consume in CONSUMERS.values():
        assert consume(broker.kafka, topic) == ROWS


@pytest.mark.slow
@pytest.mark.parametrize("acks", ["0", "1"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_client_may_wait_for_less(broker: RunningBroker, topic: str, producer: str, acks: str) -> None:
    # with acks 0 the producer does not learn that the topic does not exist yet
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic(topic)
    PRODUCERS[producer](broker.kafka, topic, "none", acks)
    assert sorted(map(repr, by_confluent(broker.kafka, topic))) == sorted(map(repr, ROWS))


@pytest.mark.slow
def test_sparrows_own_client_reads_records_of_kafka_clients(broker: RunningBroker, topic: str) -> None:
    with_confluent(broker.kafka, topic, "zstd")
    with (
        sparrow.sync.connect(broker.url) as client,
        client.subscribe(topic, start="beginning") as subscription,
    ):
        found = list(itertools.islice(subscription, COUNT))
    assert [(each.value, each.key) for each in found] == [(value, key) for value, key, _ in ROWS]


@pytest.mark.slow
def test_kafka_clients_read_records_of_sparrows_own_client(broker: RunningBroker, topic: str) -> None:
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic(topic, partitions=1)
        for value, key, headers in ROWS:
            client.publish(topic, value, key=key, headers=headers)
    for consume in CONSUMERS.values():
        assert [row[:2] for row in consume(broker.kafka, topic)] == [row[:2] for row in ROWS]


def kcat(*arguments: str, given: bytes | None = None) -> bytes:
    found = subprocess.run(
        ["kcat", *arguments], input=given, capture_output=True, timeout=SECONDS, check=True
    )
    return found.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed; on Debian: apt install kcat")
def test_kcat_lists_produces_and_consumes(broker: RunningBroker, topic: str) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(COUNT))
    kcat("-b", broker.kafka, "-P", "-t", topic, "-p", "0", "-z", "lz4", given=lines)
    assert kcat("-b", broker.kafka, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == lines
    assert f'topic "{topic}" with 4 partitions'.encode() in kcat("-b", broker.kafka, "-L")
    assert (
        kcat("-b", broker.kafka, "-Q", "-t", f"{topic}:0:-1").split()
        == f"{topic} [0] offset {COUNT}".encode().split()
    )
