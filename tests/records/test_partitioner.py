"""A key's partition is that of Kafka's clients: Kafka's own vectors, and two other
implementations.
"""

from __future__ import annotations

import random

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from sparrow.records.batch import split
from sparrow.records.partitioner import murmur2, partition_for_key
from sparrow.records.record import decode
from tests.records.kafka_python import murmur2 as kafka_python_murmur2
from tests.records.librdkafka import SECONDS, MockCluster


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_kafkas_utils_test(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=600))
def test_hash_is_that_of_kafka_python_and_aiokafka(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_partition_is_the_hash_without_its_sign_modulo_the_partitions(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % partitions
    assert partition_for_key(key, partitions) == partition_for_key(key, partitions)


def test_partition_is_that_of_librdkafka() -> None:
    cluster = MockCluster()
    try:
        settings = {"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"}
        producer = Producer(cluster.producer_settings() | settings)
        source = random.Random(5)
        keys = [source.randbytes(size) for size in range(1, 90)]
        for key in keys:
            producer.produce("keyed", b"", key)
        assert producer.flush(SECONDS) == 0
        partitions = len(producer.list_topics("keyed", SECONDS).topics["keyed"].partitions)
        found = {
            record.key: partition
            for partition in range(partitions)
            for _, batch in split(cluster.fetch("keyed", partition))
            for record in decode(batch)
        }
        assert partitions > 1
        assert found == {key: partition_for_key(key, partitions) for key in keys}
    finally:
        cluster.close()
