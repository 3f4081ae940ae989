"""Classic groups with librdkafka, kafka-python and aiokafka: sharing, rebalancing, killed members,
killed brokers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.consumer_groups.clients import DEADLINE_S, Cluster, poll_until, shares, values_of


def numbers(count: int) -> set[bytes]:
    return {str(number).encode() for number in range(count)}


# ── members share ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_three_that_join_at_once_read_everything_once(cluster: Cluster, name: str, strategy: str) -> None:
    cluster.make_topic(name, 6)
    config = {"partition.assignment.strategy": strategy}
    readers = [cluster.classic_reader(name, name, **config) for _ in range(3)]
    poll_until(readers, lambda: shares(readers) == [2, 2, 2])
    cluster.fill(name, 6, range(600))
    poll_until(readers, lambda: values_of(readers).total() >= 600)
    assert values_of(readers) == Counter(numbers(600))
    assert not [error for reader in readers for error in reader.errors]


def test_static_members_that_join_at_once_share_and_come_back_without_a_rebalance(
    cluster: Cluster, name: str
) -> None:
    cluster.make_topic(name, 3)
    readers = [cluster.classic_reader(name, name, **{"group.instance.id": f"i{n}"}) for n in range(3)]
    poll_until(readers, lambda: shares(readers) == [1, 1, 1])
    held = readers[0].partitions
    before = {m.member_id for m in described(cluster, name).members}
    readers[0].close()
    back = cluster.classic_reader(name, name, **{"group.instance.id": "i0"})
    cluster.fill(name, 3, range(30))
    now = [back, *readers[1:]]
    poll_until(now, lambda: values_of(now).keys() == numbers(30))
    assert back.partitions == held
    group = described(cluster, name)
    assert len(before & {m.member_id for m in group.members}) == 2
    assert {m.group_instance_id for m in group.members} == {"i0", "i1", "i2"}
    assert not [error for reader in now for error in reader.errors]


def described(cluster: Cluster, group: str) -> Any:
    return cluster.admin.describe_consumer_groups([group])[group].result(DEADLINE_S)


def test_three_of_kafka_python_read_everything(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 6, records=120)
    readers = [cluster.python_reader(name, name) for _ in range(3)]
    poll_until(readers, lambda: shares(readers) == [2, 2, 2])
    poll_until(readers, lambda: values_of(readers).keys() == numbers(120))


async def test_three_of_aiokafka_that_join_at_once_read_everything_once(
    broker: RunningBroker, cluster: Cluster, name: str
) -> None:
    cluster.make_topic(name, 6)
    consumers = [
        AIOKafkaConsumer(
            name,
            bootstrap_servers=broker.kafka,
            group_id=name,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
        )
        for _ in range(3)
    ]
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    try:
        read: Counter[bytes] = Counter()
        async with asyncio.timeout(DEADLINE_S):
            while sorted(len(c.assignment()) for c in consumers) != [2, 2, 2]:
                await asyncio.sleep(0.05)
            cluster.fill(name, 6, range(300))
            while read.total() < 300:
                for consumer in consumers:
                    for records in (await consumer.getmany(timeout_ms=50)).values():
                        read.update(record.value for record in records)
        assert read == Counter(numbers(300))
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))


def test_members_of_librdkafka_and_kafka_python_share_a_group(cluster: Cluster, name: str) -> None:
    """Range is the assignment that both have."""
    cluster.make_topic(name, 4)
    readers = [cluster.classic_reader(name, name), cluster.python_reader(name, name)]
    poll_until(readers, lambda: shares(readers) == [2, 2])
    cluster.fill(name, 4, range(100))
    poll_until(readers, lambda: values_of(readers).keys() == numbers(100))


def test_nothing_is_lost_while_members_come_and_go(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 4)
    readers = [cluster.classic_reader(name, name)]
    everybody = list(readers)
    expected = 0
    for step in range(5):
        cluster.fill(name, 4, range(expected, expected + 40))
        expected += 40
        if step % 2:
            readers.pop(0).close()
        else:
            readers += [cluster.classic_reader(name, name), cluster.classic_reader(name, name)]
            everybody += readers[-2:]
        poll_until(readers, lambda now=tuple(readers): sum(shares(now)) == 4)  # type: ignore[misc]
    poll_until(readers, lambda: values_of(everybody).keys() == numbers(expected))


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────


async def test_offsets_with_metadata_are_the_same_for_all_clients(
    broker: RunningBroker, cluster: Cluster, name: str
) -> None:
    cluster.make_topic(name, 3, records=30)
    rdkafka = Consumer({"bootstrap.servers": broker.kafka, "group.id": name})
    rdkafka.commit(offsets=[TopicPartition(name, 0, 4, "by librdkafka")], asynchronous=False)
    python = KafkaConsumer(bootstrap_servers=broker.kafka, group_id=name, enable_auto_commit=False)
    python.assign([PythonPartition(name, 1)])
    python.commit({PythonPartition(name, 1): OffsetAndMetadata(5, "by kafka-python", -1)})
    aio = AIOKafkaConsumer(bootstrap_servers=broker.kafka, group_id=name, enable_auto_commit=False)
    await aio.start()
    try:
        aio.assign([AioPartition(name, 2)])
        await aio.commit({AioPartition(name, 2): (6, "by aiokafka")})
        found = [python.committed(PythonPartition(name, n), metadata=True) for n in range(3)]
        # confluent-kafka also sends the end of a C string, and needs it when it reads.
        assert [(each.offset, each.metadata.rstrip("\0")) for each in found] == [
            (4, "by librdkafka"),
            (5, "by kafka-python"),
            (6, "by aiokafka"),
        ]
        (own,) = rdkafka.committed([TopicPartition(name, 0)], timeout=DEADLINE_S)
        assert (own.offset, own.metadata) == (4, "by librdkafka")
        assert await aio.committed(AioPartition(name, 0)) == 4
    finally:
        await aio.stop()
        python.close()
        rdkafka.close()


# ── members and brokers that die ──────────────────────────────────────────────────────────────────


@pytest.fixture
def mortal() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(process=True, group_min_session_timeout_ms=1_000) as running:
        yield running


def test_records_of_killed_members_are_read_by_the_others(cluster: Cluster, name: str) -> None:
    servers = cluster.servers
    cluster.make_topic(name, 6)
    readers = [cluster.classic_reader(name, name)]
    killed = [start_process(servers, name) for _ in range(3)]
    poll_until(readers, lambda: cluster.member_count(name) == 4 and shares(readers) in ([1], [2]))
    cluster.fill(name, 6, range(300))
    for process in killed:
        process.kill()
    cluster.fill(name, 6, range(300, 600))
    poll_until(readers, lambda: shares(readers) == [6])
    read_elsewhere: set[bytes] = set()
    for process in killed:
        output, _ = process.communicate()
        read_elsewhere.update(output.split())
    poll_until(readers, lambda: values_of(readers).keys() | read_elsewhere >= numbers(600))


def start_process(servers: str, group: str) -> subprocess.Popen[bytes]:
    """Start a member in its own process that prints its records."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kafka_groups.member", servers, group], stdout=subprocess.PIPE
    )


def test_a_stable_group_continues_after_the_broker_was_killed(mortal: RunningBroker, name: str) -> None:
    with Cluster(mortal.kafka) as cluster:
        cluster.make_topic(name, 4, records=100)
        readers = [cluster.classic_reader(name, name) for _ in range(2)]
        poll_until(readers, lambda: shares(readers) == [2, 2] and len(values_of(readers)) == 100)
        held = [reader.partitions for reader in readers]
        before = described(cluster, name)
        mortal.kill()
        mortal.restart()
        cluster.fill(name, 4, range(100, 200))
        poll_until(readers, lambda: values_of(readers).keys() == numbers(200))
        assert [reader.partitions for reader in readers] == held
        assert not [error for reader in readers for error in reader.errors if not error.retriable()]
        # librdkafka's admin client does not find a lost coordinator again; a new one does.
        with Cluster(mortal.kafka) as later:
            after = described(later, name)
        assert {m.member_id for m in after.members} == {m.member_id for m in before.members}
