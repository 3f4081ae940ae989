"""Transactional producers and readers of three client libraries, with a common interface."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import ProducerFenced
from kafka.errors import KafkaError

SECONDS = 60
END = b"the end"
"""A value that ends a reader; published in no transaction."""


class Fenced(Exception):
    """Another producer uses the transactional id."""


class Worker(ABC):
    """A transactional producer. Records go to partition 0."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.bootstrap, self.id = bootstrap, transactional_id
        self.open()

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""

    @abstractmethod
    def commit(self) -> None:
        """Commit. Raises Fenced."""

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def send_offset(self, topic: str, offset: int, group: str) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Confluent(Worker):
    def open(self) -> None:
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.id, "log_level": 0, "linger.ms": 0}
        )
        self.producer.init_transactions(SECONDS)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self.producer.produce(topic, value, partition=0)

    def flush(self) -> None:
        self.producer.flush(SECONDS)

    def commit(self) -> None:
        try:
            self.producer.commit_transaction(SECONDS)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise Fenced from error
            raise

    def abort(self) -> None:
        self.producer.abort_transaction(SECONDS)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0}
        )
        try:
            self.producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition(topic, 0, offset)],
                consumer.consumer_group_metadata(),
                SECONDS,
            )
        finally:
            consumer.close()

    def close(self) -> None:
        del self.producer


class KafkaPython(Worker):
    def open(self) -> None:
        self.producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.id)
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self.producer.send(topic, value, partition=0)

    def flush(self) -> None:
        self.producer.flush(SECONDS)

    def commit(self) -> None:
        try:
            self.producer.commit_transaction()
        except KafkaError as error:
            raise Fenced from error

    def abort(self) -> None:
        self.producer.abort_transaction()

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {kafka.TopicPartition(topic, 0): kafka.structs.OffsetAndMetadata(offset, "", -1)}
        self.producer.send_offsets_to_transaction(offsets, group)

    def close(self) -> None:
        self.producer.close()


class Aiokafka(Worker):
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.id)
            await producer.start()
            return producer

        self.producer = self.loop.run_until_complete(start())

    def begin(self) -> None:
        self.loop.run_until_complete(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes) -> None:
        self.loop.run_until_complete(self.producer.send(topic, value, partition=0))

    def flush(self) -> None:
        self.loop.run_until_complete(self.producer.flush())

    def commit(self) -> None:
        try:
            self.loop.run_until_complete(self.producer.commit_transaction())
        except ProducerFenced as error:
            raise Fenced from error

    def abort(self) -> None:
        self.loop.run_until_complete(self.producer.abort_transaction())

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self.loop.run_until_complete(self.producer.send_offsets_to_transaction(offsets, group))

    def close(self) -> None:
        self.loop.run_until_complete(self.producer.stop())
        self.loop.close()


def publish_end(bootstrap: str, *topics: str) -> None:
    """Publish the value that ends readers."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for topic in topics:
        producer.produce(topic, END, partition=0)
    assert producer.flush(SECONDS) == 0


def read_with_confluent(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[bytes] = []
    try:
        while not found or found[-1] != END:
            message = consumer.poll(SECONDS)
            assert message is not None, "nothing came"
            assert not message.error(), message.error()
            found.append(message.value())
    finally:
        consumer.close()
    return found[:-1]


def read_with_kafka_python(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    place = kafka.TopicPartition(topic, 0)
    found: list[bytes] = []
    try:
        consumer.assign([place])
        while not found or found[-1] != END:
            found += [each.value for each in consumer.poll(SECONDS * 1000).get(place, [])]
    finally:
        consumer.close()
    return found[:-1]


def read_with_aiokafka(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        await consumer.start()
        found: list[bytes] = []
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            while not found or found[-1] != END:
                async with asyncio.timeout(SECONDS):
                    found.append((await consumer.getone()).value)
        finally:
            await consumer.stop()
        return found[:-1]

    return asyncio.run(read())


WORKERS = [Confluent, KafkaPython, Aiokafka]
READERS = [read_with_confluent, read_with_kafka_python, read_with_aiokafka]
