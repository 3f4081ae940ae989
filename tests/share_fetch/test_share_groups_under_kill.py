"""Members of a share group whose broker is killed and restarted: acknowledged records stay so, all
others are redelivered.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, ShareConsumer
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.share_fetch.calls import (
    ACCEPT,
    RELEASE,
    Member,
    Partition,
    batch,
    configure,
    errors,
    fill,
    offsets,
)

SECONDS = 60
RECORDS = 1500
KILLS = 2
AT_ONCE = 50


class Worker:
    """Fetches and acknowledges until it is stopped, and continues after errors. Remembers its
    records in order.
    """

    def __init__(self, running: RunningBroker, topic: str, zero: Partition, seen: Seen) -> None:
        self._running = running
        self._topic = topic
        self._zero = zero
        self._seen = seen
        self._member_id = str(uuid.uuid4())
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._seen.is_over.is_set():
            try:
                member = Member(self._running.kafka, "g", self._member_id)
            except OSError:
                time.sleep(0.02)
                continue
            try:
                self._work(member)
            except (OSError, AssertionError):
                pass  # the broker is down or starting: join again
            finally:
                member.die()

    def _work(self, member: Member) -> None:
        member.raw.socket.settimeout(10)
        member.join(self._topic)
        response = member.fetch([self._zero], wait_ms=100, max_records=AT_ONCE)
        while not self._seen.is_over.is_set():
            assert response.error_code is ErrorCode.none
            got = offsets(response)
            self._seen.delivered(got)
            if not got:
                response = member.fetch(wait_ms=100, max_records=AT_ONCE)
                continue
            types = [RELEASE if offset % 97 == 0 and self._seen.is_new(offset) else ACCEPT for offset in got]
            spoken = [(offset, offset, [kind]) for offset, kind in zip(got, types, strict=True)]
            acknowledged = member.acknowledge({self._zero: spoken})
            assert errors(acknowledged) == {0: ErrorCode.none}
            self._seen.confirmed([o for o, kind in zip(got, types, strict=True) if kind == ACCEPT])
            response = member.fetch(wait_ms=100, max_records=AT_ONCE)


class Seen:
    """The records that all workers received."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.done: set[int] = set()
        self.deliveries: Counter[int] = Counter()
        self.again: list[int] = []
        self._lock = threading.Lock()

    def delivered(self, found: list[int]) -> None:
        with self._lock:
            self.deliveries.update(found)
            self.again += [each for each in found if each in self.done]

    def is_new(self, offset: int) -> bool:
        with self._lock:
            return self.deliveries[offset] < 2

    def confirmed(self, found: list[int]) -> None:
        with self._lock:
            self.done.update(found)


@pytest.mark.slow
def test_acknowledged_records_never_come_again_and_every_record_is_acknowledged(topic: str) -> None:
    with sparrow.testing.broker(process=True) as running:
        with RawClient(running.kafka) as raw:
            configure(
                raw,
                "g",
                {
                    "share.auto.offset.reset": "earliest",
                    "share.record.lock.duration.ms": "1000",
                    "share.delivery.count.limit": "25",
                },
            )
            zero = (fill(raw, topic, [batch(100, first) for first in range(0, RECORDS, 100)]), 0)
        seen = Seen()
        workers = [Worker(running, topic, zero, seen) for _ in range(3)]
        for each in workers:
            each.thread.start()
        try:
            for number in range(1, KILLS + 1):
                _wait(lambda number=number: len(seen.done) >= number * RECORDS // (KILLS + 2))
                running.kill()
                running.restart()
            _wait(lambda: lag(running, topic) == 0)
        finally:
            seen.is_over.set()
            for each in workers:
                each.thread.join(SECONDS)
        assert seen.again == []
        assert set(seen.deliveries) == set(range(RECORDS))
        assert len(seen.done) >= RECORDS - KILLS * len(workers) * AT_ONCE, (
            "more than what a kill left without an answer"
        )


def lag(running: RunningBroker, topic: str) -> int:
    """Return the number of records of the topic's first partition that the group has not
    finished.
    """
    kind = load_request_schema(90, 1)
    wanted = new(part(kind, "groups.topics"), topic_name=topic, partitions=(0,))
    with RawClient(running.kafka) as raw:
        response = raw.call(
            request(90, 1, groups=(new(part(kind, "groups"), group_id="g", topics=(wanted,)),))
        )
    (found,) = response.groups[0].topics[0].partitions
    assert found.error_code is ErrorCode.none
    return int(found.lag)


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_a_share_consumer_of_librdkafka_continues_after_its_broker_was_killed(topic: str) -> None:
    with sparrow.testing.broker(process=True) as running:
        with RawClient(running.kafka) as raw:
            configure(
                raw, "g", {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
            )
        config = {"bootstrap.servers": running.kafka, "log_level": 0, "reconnect.backoff.max.ms": 200}
        producer = Producer(config)
        consumer = ShareConsumer(config | {"group.id": "g"})
        consumer.subscribe([topic])
        found: set[int] = set()
        for turn in range(2):
            for number in range(turn * 100, turn * 100 + 100):
                producer.produce(topic, b"%d" % number)
            producer.flush(SECONDS)
            deadline = time.monotonic() + SECONDS
            while len(found) < turn * 100 + 100 and time.monotonic() < deadline:
                found |= {int(each.value()) for each in consumer.poll(0.1) if each.error() is None}
            assert found == set(range(turn * 100 + 100))
            if turn == 0:
                running.kill()
                running.restart()
        consumer.close()
