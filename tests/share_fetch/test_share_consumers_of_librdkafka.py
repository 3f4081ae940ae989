"""confluent-kafka's ShareConsumer, unchanged, with share groups of Sparrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

import sparrow.sync
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.share_fetch.calls import configure

SECONDS = 60
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
Start = Callable[..., ShareConsumer]


def values(messages: Any) -> list[int]:
    for each in messages:
        assert each.error() is None
    return [int(each.value()) for each in messages]


def publish(bootstrap: str, topic: str, numbers: range, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **config})
    for number in numbers:
        producer.produce(topic, b"%d" % number, key=b"%d" % number)
    assert producer.flush(SECONDS) == 0


def poll(consumer: ShareConsumer, seconds: float = SECONDS) -> list[Message]:
    """Return the next messages, or [] if there are none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = list(consumer.poll(0.2))
        if found:
            return found
    return []


def drain(consumer: ShareConsumer, count: int) -> list[int]:
    """Poll until there are `count` messages; each is accepted by the next poll."""
    found: list[int] = []
    while len(found) < count:
        messages = poll(consumer)
        assert messages, f"{len(found)} of {count}"
        found += values(messages)
    return found


def members(raw: RawClient, group: str) -> int:
    """Return the number of members of a group."""
    (found,) = raw.call(request(77, 1, group_ids=(group,))).groups
    assert found.error_code in {ErrorCode.none, ErrorCode.group_id_not_found}
    return len(found.members)


@pytest.fixture
def topic(raw: RawClient, sparrow_topic: str) -> str:
    """Create a topic with one partition, of which every member gets records."""
    kind = load_request_schema(19, 7)
    wanted = new(part(kind, "topics"), name=sparrow_topic, num_partitions=1, replication_factor=1)
    (made,) = raw.call(request(19, 7, topics=(wanted,), timeout=timedelta(seconds=SECONDS))).topics
    assert made.error_code is ErrorCode.none
    return sparrow_topic


@pytest.fixture
def start(broker: RunningBroker, group: str, topic: str) -> Iterator[Start]:
    """Start share consumers of the group on the topic."""
    made: list[ShareConsumer] = []

    def begin(mode: str = "implicit", **config: Any) -> ShareConsumer:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": broker.kafka,
                "group.id": group,
                "share.acknowledgement.mode": mode,
                "log_level": 0,
                **config,
            }
        )
        consumer.subscribe([topic])
        made.append(consumer)
        return consumer

    yield begin
    for each in made:
        with suppress(KafkaException, RuntimeError):
            each.close()


def test_members_share_the_records_and_each_is_delivered_once(
    broker: RunningBroker, start: Start, topic: str
) -> None:
    consumers = [start() for _ in range(3)]
    publish(broker.kafka, topic, range(3000))
    found: list[int] = []
    lock = threading.Lock()
    stop = threading.Event()

    def consume(consumer: ShareConsumer) -> None:
        while not stop.is_set():
            got = values(consumer.poll(0.2))
            with lock:
                found.extend(got)
                if len(found) >= 3000:
                    stop.set()
        consumer.commit_sync(SECONDS)

    threads = [threading.Thread(target=consume, args=[each]) for each in consumers]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)
    assert sorted(found) == list(range(3000))
    assert all(poll(each, 0.3) == [] for each in consumers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_shared_in_pieces(
    broker: RunningBroker, start: Start, topic: str, codec: str
) -> None:
    publish(broker.kafka, topic, range(500), **{"compression.type": codec, "linger.ms": 200})
    one, other = start(**{"max.poll.records": 70}), start(**{"max.poll.records": 30})
    found: Counter[int] = Counter()
    while sum(found.values()) < 500:
        for consumer in (one, other):
            found.update(values(consumer.poll(0.2)))
    assert found == Counter(range(500))


def test_explicit_acknowledgements_accept_release_and_reject(
    broker: RunningBroker, start: Start, topic: str
) -> None:
    publish(broker.kafka, topic, range(30))
    consumer = start("explicit")
    seen: dict[int, list[int]] = {}
    for _ in range(2):
        waiting = 30 if not seen else 10
        while waiting:
            messages = poll(consumer)
            assert messages
            for each in messages:
                number = int(each.value())
                seen.setdefault(number, []).append(each.delivery_count())
                again = RELEASE if len(seen[number]) == 1 else ACCEPT
                consumer.acknowledge(each, (ACCEPT, again, REJECT)[number % 3])
            waiting -= len(messages)
    results = consumer.commit_sync(SECONDS)
    assert results
    assert set(results.values()) == {None}
    assert seen == {number: [1, 2] if number % 3 == 1 else [1] for number in range(30)}
    assert poll(consumer, 0.3) == []


def test_a_poison_message_is_delivered_to_the_limit_and_does_not_block_others(
    broker: RunningBroker, start: Start, topic: str
) -> None:
    publish(broker.kafka, topic, range(10))
    consumer = start("explicit")
    counts: list[int] = []
    accepted: set[int] = set()
    while messages := poll(consumer, 1.0 if len(counts) >= 5 else SECONDS):
        for each in messages:
            if each.value() == b"3":
                counts.append(each.delivery_count())
                consumer.acknowledge(each, RELEASE)
            else:
                accepted.add(int(each.value()))
                consumer.acknowledge(each)
    assert counts == [1, 2, 3, 4, 5]
    assert accepted == set(range(10)) - {3}


def test_a_record_that_is_not_acknowledged_in_time_is_redelivered_and_the_late_member_is_informed(
    broker: RunningBroker, raw: RawClient, group: str, start: Start, topic: str
) -> None:
    configure(raw, group, {"share.record.lock.duration.ms": "1000"})
    publish(broker.kafka, topic, range(1))
    slow, quick = start("explicit"), start("explicit")
    (late,) = poll(slow)
    configure(raw, group, {"share.record.lock.duration.ms": "60000"})
    (again,) = poll(quick)
    assert (again.offset(), again.delivery_count()) == (late.offset(), 2)
    slow.acknowledge(late)
    (refusal,) = slow.commit_sync(SECONDS).values()
    assert refusal is not None
    assert refusal.args[0].code() == ErrorCode.invalid_record_state
    quick.acknowledge(again)
    assert list(quick.commit_sync(SECONDS).values()) == [None]


def test_results_of_asynchronous_commits_come_by_callback(
    broker: RunningBroker, start: Start, topic: str
) -> None:
    publish(broker.kafka, topic, range(5))
    consumer = start("explicit")
    told: list[int] = []

    def committed(offsets: Any, error: Any) -> None:
        assert error is None
        told.extend(len(each) for each in offsets.values())

    consumer.set_acknowledgement_commit_callback(committed)
    got = 0
    while got < 5:
        for each in poll(consumer):
            consumer.acknowledge_offset(each.topic(), each.partition(), each.offset(), ACCEPT)
            got += 1
    consumer.commit_async()
    deadline = time.monotonic() + SECONDS
    while sum(told) < 5 and time.monotonic() < deadline:
        consumer.poll(0.1)
    assert sum(told) == 5


def test_closing_leaves_the_group_and_releases_the_rest(
    broker: RunningBroker, raw: RawClient, group: str, start: Start, topic: str
) -> None:
    publish(broker.kafka, topic, range(20))
    first = start("explicit")
    for each in poll(first):
        if each.offset() % 2:
            first.acknowledge(each)
        else:
            first.acknowledge(each, RELEASE)
    first.close()
    assert members(raw, group) == 0
    second = start()
    rest = drain(second, 10)
    assert len(rest) == len(set(rest))


_VICTIM = """
import json, os, sys, time
from confluent_kafka import ShareConsumer
bootstrap, group, topic = sys.argv[1:]
consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0,
                          "share.acknowledgement.mode": "explicit", "max.poll.records": 10})
consumer.subscribe([topic])
while True:
    got = [message.offset() for message in consumer.poll(1.0)]
    if got:
        print(json.dumps(got), flush=True)
        time.sleep(600)
"""


def test_records_of_a_member_that_is_killed_come_to_another_at_once(
    broker: RunningBroker, group: str, start: Start, topic: str
) -> None:
    publish(broker.kafka, topic, range(30))
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, broker.kafka, group, topic],
        stdout=subprocess.PIPE,
        env={**os.environ},
    )
    assert victim.stdout is not None
    with victim.stdout as out:
        held = json.loads(out.readline())
        victim.kill()
        victim.wait(SECONDS)
    assert held
    survivor = start("explicit")
    counts: dict[int, int] = {}
    while len(counts) < 30:
        messages = poll(survivor)
        assert messages
        for each in messages:
            counts[int(each.value())] = each.delivery_count()
            survivor.acknowledge(each)
    assert sum(count == 2 for count in counts.values()) == len(held)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_group_says_whether_records_of_transactions_are_read_before_their_end(
    broker: RunningBroker, raw: RawClient, group: str, start: Start, topic: str, level: str
) -> None:
    configure(raw, group, {"share.isolation.level": level})
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(SECONDS)
    for number, ends in [(0, producer.commit_transaction), (10, producer.abort_transaction), (20, None)]:
        producer.begin_transaction()
        for each in range(number, number + 10):
            producer.produce(topic, b"%d" % each, partition=0)
        producer.flush(SECONDS)
        if ends is not None:
            ends(SECONDS)
    consumer = start()
    seen = list(range(30)) if level == "read_uncommitted" else list(range(10))
    assert sorted(drain(consumer, len(seen))) == seen
    assert poll(consumer, 0.3) == []
    producer.commit_transaction(SECONDS)
    if level == "read_committed":
        assert sorted(drain(consumer, 10)) == list(range(20, 30))
    assert poll(consumer, 0.3) == []


def test_a_share_consumer_and_a_consumer_of_the_native_queue_never_get_the_same_record(
    broker: RunningBroker, group: str, start: Start, topic: str
) -> None:
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue(group, [topic])
        shared = start(**{"max.poll.records": 20})
        publish(broker.kafka, topic, range(400))
        found: Counter[int] = Counter()
        natives = 0
        with client.queue(group) as queue:
            deadline = time.monotonic() + SECONDS
            while sum(found.values()) < 400 and time.monotonic() < deadline:
                found.update(values(shared.poll(0.05)))
                jobs = queue.lease(20, wait_s=0.05)
                natives += len(jobs)
                found.update(int(job.value) for job in jobs)
                jobs.ack()
        shared.commit_sync(SECONDS)
        assert found == Counter(range(400))
        assert 0 < natives < 400


def test_joining_members_appear_in_the_group(
    broker: RunningBroker, raw: RawClient, group: str, start: Start
) -> None:
    consumers = [start(), start()]
    deadline = time.monotonic() + SECONDS
    while members(raw, group) < 2 and time.monotonic() < deadline:
        for each in consumers:
            each.poll(0.05)
    assert members(raw, group) == 2
