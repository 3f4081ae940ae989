"""`sparrow log skip`: through the running broker and on a stopped data directory; Kafka's clients
continue.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import CorruptBatch, InvalidArgument, NotAuthorized, OffsetOutOfRange, UnknownTopic
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.publishes import Published
from sparrow.client.results import AccessRule
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.readable import decode_batches
from sparrow.storage.store import PartitionLog
from sparrow.testing.running_broker import RunningBroker
from tests.corrupt.bad import (
    BEFORE,
    BEHIND,
    KINDS,
    good,
    good_bad_good,
    mended,
    record_lengths,
    varint_overflow,
)


def sparrow_log(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparrow", "log", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def by_librdkafka(broker: RunningBroker, topic: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": "g",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    try:
        while len(found) < 6:
            message = consumer.poll(20)
            assert message is not None, found
            assert message.error() is None, message.error()
            found.append(message.value())
    finally:
        consumer.close()
    return found


def by_kafka_python(broker: RunningBroker, topic: str) -> list[bytes | None]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.kafka,
        consumer_timeout_ms=20_000,
        check_crcs=True,
        auto_offset_reset="earliest",
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    try:
        return [next(consumer).value for _ in range(6)]
    finally:
        consumer.close()


def by_aiokafka(broker: RunningBroker, topic: str) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.kafka, check_crcs=True)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            async with asyncio.timeout(20):
                return [(await consumer.getone()).value for _ in range(6)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def read_all(broker: RunningBroker, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    with sparrow.sync.connect(broker.url) as client, client.subscribe(topic, start="beginning") as reading:
        while len(found) < 6:
            found += [each.value for each in reading.pull(10)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_skip_kafka_clients_and_ours_read_on(broker: RunningBroker, kind: str) -> None:
    topic = good_bad_good(broker, kind)
    done = sparrow_log("skip", topic, "0", "4", "--url", broker.url)
    assert done.returncode == 0, done.stderr
    assert "offsets 3 to 5" in done.stdout
    for read in (by_librdkafka, by_kafka_python, by_aiokafka, read_all):
        assert read(broker, topic) == BEFORE + BEHIND, read.__name__


def test_a_batch_that_can_be_read_goes_only_by_force(broker: RunningBroker) -> None:
    topic = good_bad_good(broker)
    refused = sparrow_log("skip", topic, "0", "0", "--url", broker.url)
    assert refused.returncode != 0
    assert "can be read" in refused.stderr
    with sparrow.sync.connect(broker.url) as client:
        assert client.admin.skip_batch(topic, 0, 0, force=True).reason == ""
        removed = client.admin.skip_batch(topic, 0, 3)
        assert (removed.base_offset, removed.last_offset, removed.record_count) == (3, 5, 3)
        with pytest.raises(InvalidArgument, match="no records"):
            client.admin.skip_batch(topic, 0, 5)
        with pytest.raises(OffsetOutOfRange):
            client.admin.skip_batch(topic, 0, 9)
        with pytest.raises(UnknownTopic):
            client.admin.skip_batch("nowhere", 0, 0)
        with client.subscribe(topic, start="beginning") as reading:
            assert [each.value for each in reading.pull(10)] == BEHIND


def test_a_skip_takes_the_right_to_delete_records_of_the_topic_or_to_alter_the_cluster() -> None:
    tokens = {
        "root": "root-token",
        "reader": "reader-token",
        "keeper": "keeper-token",
        "chief": "chief-token",
    }
    with sparrow.testing.broker(super_users=["root"], tokens=tokens, acl_default="deny") as broker:
        with sparrow.sync.connect(broker.url, token=tokens["root"]) as root:
            root.admin.create_topic("safe", partitions=1)
            root.publish("safe", b"1")
            root.admin.create_access_rules(
                [
                    AccessRule("Topic", "safe", "User:reader", "Read"),
                    AccessRule("Topic", "safe", "User:keeper", "Delete"),
                    AccessRule("Cluster", "kafka-cluster", "User:chief", "Alter"),
                ]
            )
        for user in ("keeper", "chief"):
            with (
                sparrow.sync.connect(broker.url, token=tokens[user]) as client,
                pytest.raises(InvalidArgument, match="can be read"),
            ):
                client.admin.skip_batch("safe", 0, 0)
        with (
            sparrow.sync.connect(broker.url, token=tokens["reader"]) as client,
            pytest.raises(NotAuthorized),
        ):
            client.admin.skip_batch("safe", 0, 0)


@pytest.mark.parametrize("ends_by", ["stop", "kill"])
def test_a_skip_of_a_stopped_data_directory(tmp_path: Path, ends_by: str) -> None:
    data_dir = str(tmp_path / "data")
    with sparrow.testing.broker(process=True, data_dir=data_dir) as broker:
        topic = good_bad_good(broker)
        other = good_bad_good(broker)
        in_use = sparrow_log("skip", topic, "0", "3", "--data-dir", data_dir)
        assert in_use.returncode != 0
        assert "in use" in in_use.stderr
        broker.kill() if ends_by == "kill" else broker.stop()
        done = sparrow_log("skip", topic, "0", "3", "--data-dir", data_dir)
        assert done.returncode == 0, done.stderr
        assert "offsets 3 to 5" in done.stdout
        missing = sparrow_log("skip", "nowhere", "0", "3", "--data-dir", data_dir)
        assert missing.returncode != 0
        assert "nowhere" in missing.stderr
        broker.restart()
        assert read_all(broker, topic) == BEFORE + BEHIND
        with (
            sparrow.sync.connect(broker.url) as client,
            client.subscribe(other, start="beginning") as reading,
        ):
            assert [each.value for each in reading.pull(10)] == BEFORE
            with pytest.raises(CorruptBatch):
                reading.pull(10)


def test_log_dump_continues_behind_a_batch_that_it_cannot_read(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    with sparrow.testing.broker(data_dir=data_dir) as broker:
        topic = good_bad_good(broker)
    (segment,) = Path(data_dir, "logs", f"{topic}-0").glob("*.log")
    dumped = sparrow_log("dump", str(segment), "--records")
    assert dumped.returncode == 65
    assert "value 'a2'" in dumped.stdout
    assert "value 'b2'" in dumped.stdout
    assert "cannot be read" in dumped.stderr


async def test_skips_at_the_ends_beside_a_wrong_crc_below_a_queue_and_on_a_compacted_topic(
    tmp_path: Path,
) -> None:
    config = {"record.validation": "header", "min.cleanable.dirty.ratio": "0"}
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as broker:
        await broker.topics.create("t", config=config)
        await broker.parts.queue_registry.create("q", ("t",))
        for batch in (
            record_lengths(),
            good("a"),
            varint_overflow(),
            good("rotten"),
            good("b"),
            record_lengths(),
        ):
            await broker.records.publish("t", 0, batch)
    (segment,) = (tmp_path / "data/logs/t-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"rotten1")] ^= 1
    segment.write_bytes(content)
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as broker:
        for offset, first in ((0, 0), (7, 6), (17, 15)):
            assert (await broker.topics.skip_batch("t", 0, offset)).base_offset == first
        log = broker.parts.topic_registry.get("t").partition(0).log
        assert await readable(log) == [*range(3, 6), *range(12, 15)]
        assert "CRC" in (await broker.topics.skip_batch("t", 0, 9)).reason
        with pytest.raises(InvalidArgument, match="no records"):
            await broker.topics.skip_batch("t", 0, 10)
        assert await broker.records.publish("t", 0, good("a")) == Published(18, 20)
        await broker.topics.configure("t", {"cleanup.policy": "compact"}, [])
        await broker.topics.skip_batch("t", 0, 13, force=True)
        assert await log.compact(broker.clock.wall_ms()) > 0
        assert await readable(log) == [3, 4, 5, 18, 19, 20]
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as broker:
        log = broker.parts.topic_registry.get("t").partition(0).log
        assert (log.end_offset, await readable(log)) == (21, [3, 4, 5, 18, 19, 20])
        assert broker.damages.known() == []


async def test_a_skip_inside_of_an_open_transaction_leaves_its_end_and_its_readers_alone(
    tmp_path: Path,
) -> None:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as broker:
        await broker.topics.create("t", config={"record.validation": "header"})
        transactions = broker.transactions
        producer = await transactions.initialize("tx", 60_000)
        await transactions.add_partitions("tx", producer, [("t", 0)])
        admit = transactions.admission("tx")
        for sequence, spoil in ((0, False), (3, True), (6, False)):
            batch = bytearray(
                build_batch(
                    [b"1", b"2", b"3"],
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
            batch[HEADER_BYTES] = 0x7E if spoil else batch[HEADER_BYTES]
            await broker.records.publish("t", 0, mended(batch), admit=admit)
        partition = broker.parts.topic_registry.get("t").partition(0)
        assert (await broker.topics.skip_batch("t", 0, 4)).base_offset == 3
        assert partition.last_stable_offset == 0
        await transactions.end("tx", producer, commit=True)
        assert partition.last_stable_offset == 10
        assert await readable(partition.log) == [0, 1, 2, 6, 7, 8]
        with pytest.raises(InvalidArgument, match="ends a transaction"):
            await broker.topics.skip_batch("t", 0, 9, force=True)


async def readable(log: PartitionLog) -> list[int]:
    """Return the offsets of the readable records, markers left out."""
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        chunk = await log.read(offset, 1)
        found += [each.offset for each in decode_batches(chunk.data, "t", 0).records]
        offset = chunk.next_offset
    return found
