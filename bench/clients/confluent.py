"""confluent-kafka (librdkafka), the fastest of Kafka's Python clients: for Kafka itself, and for
Sparrow's Kafka frontend.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.pace import due_times, late_s, stamped
from bench.together import Span, Start, Stopwatch

CHUNK = 10_000
PATIENCE_S = 60
_QUIET: dict[str, Any] = {"log_level": 0}


def make(bootstrap: str, topic: str, **config: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()


def make_shared(bootstrap: str, topic: str, **config: str) -> None:
    """A topic of one partition, and a share group of its name that reads it from its beginning."""
    make(bootstrap, topic, **config)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    admin.incremental_alter_configs([group])[group].result()


def end(bootstrap: str, topic: str) -> int:
    """Where the topic's partition ends."""
    consumer = _consumer(bootstrap)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1])
    finally:
        consumer.close()


def brokers(bootstrap: str) -> int:
    """Return the number of brokers.

    Raises:
        ConnectionError: none says that it does.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    found = len(admin.list_topics(timeout=PATIENCE_S).brokers)
    if not found:
        raise ConnectionError("the node does not take part yet")
    return found


def warm_up(bootstrap: str, count: int, start: Start) -> Span:
    """Let the JVM compile what publishing and reading need."""
    make(bootstrap, "warm-up")
    publish(bootstrap, "warm-up", b"m" * 100, count, "all", lambda: 0.0)
    return read(bootstrap, "warm-up", count, start)


class Failures:
    """Messages that could not be delivered."""

    def __init__(self) -> None:
        self._first: Any = None

    def take(self, error: Any, _message: Any) -> None:
        """A delivery report."""
        if error is not None and self._first is None:
            self._first = error

    def check(self) -> None:
        """Raises RuntimeError if there was one."""
        if self._first is not None:
            raise RuntimeError(f"Kafka's client could not deliver a message: {self._first}")


def _producer(bootstrap: str, acks: str, failures: Failures, linger_ms: int) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "linger.ms": linger_ms,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 512 << 10,
        "delivery.report.only.error": True,
        "on_delivery": failures.take,
        **_QUIET,
    }
    return Producer(settings)


def _consumer(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **_QUIET,
            **settings,
        }
    )


def publish(bootstrap: str, topic: str, value: bytes, count: int, acks: str, start: Start) -> Span:
    """Pipelined with a linger of 5 ms, each counted when it is acknowledged."""
    failures = Failures()
    producer = _producer(bootstrap, acks, failures, 5)
    producer.produce(topic, value, partition=0)
    _flush(producer, failures)
    watch = Stopwatch(start)
    for first in range(0, count, CHUNK):
        _hand_over(producer, topic, [{"value": value} for _ in range(min(CHUNK, count - first))])
    _flush(producer, failures)
    return watch.span()


def _hand_over(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> None:
    left = messages
    while left:
        producer.produce_batch(topic, left, partition=0)
        left = [each for each in left if each.pop("_error", None) is not None]
        producer.poll(0.01 if left else 0)


def _flush(producer: Producer, failures: Failures) -> None:
    left = producer.flush(PATIENCE_S)
    failures.check()
    if left:
        raise RuntimeError(f"Kafka's client has {left} messages without acknowledgement after {PATIENCE_S} s")


def read(bootstrap: str, topic: str, count: int, start: Start) -> Span:
    """Each message a Python object; found: how many were counted.

    Counted from the first messages on: before it librdkafka waits half a second of its own accord
    (its timer for offset queries), whatever the broker.
    """
    settings = {
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1 << 20,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = _consumer(bootstrap, **settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = first = len(consumer.consume(1, PATIENCE_S))
    watch = Stopwatch(start)
    while seen < count:
        messages = consumer.consume(min(CHUNK, count - seen), PATIENCE_S)
        if not messages:
            raise RuntimeError(f"Kafka's client got {seen} of {count} messages, and then none")
        seen += len(messages)
    span = watch.span(seen - first)
    consumer.close()
    return span


def publish_at_rate(
    bootstrap: str, topic: str, rate: int, count: int, acks: str, start: Start, *, linger_ms: int = 0
) -> Span:
    """One message of 100 B after the other, each when it is due."""
    failures = Failures()
    producer = _producer(bootstrap, acks, failures, linger_ms)
    send = functools.partial(producer.produce, topic, partition=0)
    send(stamped(0, 100))
    _flush(producer, failures)
    watch = Stopwatch(start)
    for due in due_times(watch.began, rate, count):
        send(stamped(due, 100))
        producer.poll(0)
    _flush(producer, failures)
    return watch.span()


def read_late(bootstrap: str, topic: str, count: int, start: Start) -> Span:
    """Looks how late each message is; found: the latencies in seconds."""
    consumer = _consumer(bootstrap, **{"fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert consumer.consume(1, PATIENCE_S)
    watch = Stopwatch(start)
    times: list[float] = []
    while len(times) < count:
        message = consumer.poll(PATIENCE_S)
        if message is None:
            raise RuntimeError(f"Kafka's client got {len(times)} of {count} messages, and then none")
        value = message.value()
        assert value is not None
        times.append(late_s(value))
    span = watch.span(times)
    consumer.close()
    return span


def _sharing(bootstrap: str, topic: str) -> tuple[ShareConsumer, list[Message]]:
    """A member of the topic's share group, and the first messages that it got."""
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic, **_QUIET})
    consumer.subscribe([topic])
    return consumer, _shared(consumer)


def _shared(consumer: ShareConsumer) -> list[Message]:
    """Accept the messages that the last call returned, and return the next ones."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if messages := list(consumer.poll(1.0)):
            return messages
    raise RuntimeError(f"Kafka's share consumer got no message within {PATIENCE_S} s")


def _accept_all(consumer: ShareConsumer) -> None:
    """Wait until all that was accepted is acknowledged."""
    for error in consumer.commit_sync(PATIENCE_S).values():
        if error is not None:
            raise RuntimeError(f"Kafka's share consumer could not acknowledge: {error}")


def share(bootstrap: str, topic: str, count: int, start: Start) -> Span:
    """Read as the only member of a share group; a batch is accepted with the call for the next."""
    consumer, messages = _sharing(bootstrap, topic)
    watch, seen = Stopwatch(start), len(messages)
    while seen < count:
        seen += len(_shared(consumer))
    _accept_all(consumer)
    span = watch.span(seen)
    consumer.close()
    return span


def share_late(bootstrap: str, topic: str, count: int, start: Start) -> Span:
    """The same, and looks how late each message is; found: the latencies in seconds."""
    consumer, _ = _sharing(bootstrap, topic)
    watch = Stopwatch(start)
    times: list[float] = []
    while len(times) < count:
        for message in _shared(consumer):
            value = message.value()
            assert value is not None
            times.append(late_s(value))
    _accept_all(consumer)
    span = watch.span(times)
    consumer.close()
    return span
