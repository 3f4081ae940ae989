"""Real consumers of librdkafka, polled one after the other until a condition holds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

DEADLINE_S = 60.0


class Cluster:
    """A broker as clients see it; closes the consumers that it created."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient(self._config())
        self.producer = Producer(self._config())
        self._consumers: list[Reader | PythonReader] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for consumer in self._consumers:
            consumer.close()

    def _config(self, **more: object) -> dict[str, Any]:
        backoff = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        return {"bootstrap.servers": self.servers, "log_level": 0, **backoff, **more}

    def make_topic(self, name: str, partitions: int, records: int = 0) -> None:
        for future in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(DEADLINE_S)
        self.fill(name, partitions, range(records))

    def fill(self, name: str, partitions: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.producer.produce(name, str(number).encode(), partition=number % partitions)
        assert self.producer.flush(DEADLINE_S) == 0

    def member_count(self, group: str) -> int:
        described = self.admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        return len(described.members)

    def reader(self, group: str, *topics: str, **config: object) -> Reader:
        """Return a consumer of the new protocol."""
        return self._add(
            Reader(self._config(**_reading(group), **{"group.protocol": "consumer"}, **config), topics)
        )

    def classic_reader(self, group: str, *topics: str, **config: object) -> Reader:
        """Return a consumer of the classic protocol."""
        timeouts = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 100}
        return self._add(Reader(self._config(**_reading(group), **timeouts, **config), topics))

    def python_reader(self, group: str, topic: str) -> PythonReader:
        """Return a consumer of the classic protocol that is not librdkafka's."""
        return self._add(PythonReader(self.servers, group, topic))

    def _add(self, reader: AnyReader) -> AnyReader:
        self._consumers.append(reader)
        return reader


def _reading(group: str) -> dict[str, object]:
    return {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 200,
        "allow.auto.create.topics": "false",
    }


class Reader:
    """A consumer that remembers its records and errors."""

    def __init__(self, config: dict[str, Any], topics: Sequence[str]) -> None:
        self.consumer = Consumer(config)
        self.consumer.subscribe(list(topics))
        self.values: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._is_closed = False

    def poll(self, timeout_s: float = 0.01) -> None:
        message: Message | None = self.consumer.poll(timeout_s)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.values.append(message.value() or b"")
        else:
            self.errors.append(error)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.consumer.close()


class PythonReader:
    """The same with kafka-python."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=10_000,
        )
        self.values: list[bytes] = []
        self._is_closed = False

    def poll(self, timeout_s: float = 0.01) -> None:
        for records in self.consumer.poll(timeout_ms=int(timeout_s * 1000)).values():
            self.values.extend(record.value for record in records)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.consumer.close()


AnyReader = TypeVar("AnyReader", Reader, PythonReader)


def poll_until(readers: Sequence[Reader | PythonReader], is_done: Callable[[], bool]) -> None:
    """Poll all consumers until a condition holds; fail after a long time."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < deadline, [sorted(reader.partitions) for reader in readers]
        for reader in readers:
            reader.poll()


def shares(readers: Sequence[Reader | PythonReader]) -> list[int]:
    """Return the number of partitions of each, the fewest first; each partition is counted once or
    the list is empty.
    """
    counted = Counter(partition for reader in readers for partition in reader.partitions)
    if any(times > 1 for times in counted.values()):
        return []
    return sorted(len(reader.partitions) for reader in readers)


def values_of(readers: Sequence[Reader | PythonReader]) -> Counter[bytes]:
    return Counter(value for reader in readers for value in reader.values)


__all__ = ["DEADLINE_S", "Cluster", "KafkaException", "Reader", "poll_until", "shares", "values_of"]
