"""Transactions with client libraries: commit, abort, fencing, offsets; and a broker that is killed
during many transactions.
"""

from __future__ import annotations

import threading
import time

import confluent_kafka
import pytest

import sparrow.sync
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_transactions.workers import (
    READERS,
    SECONDS,
    WORKERS,
    Fenced,
    Worker,
    publish_end,
    read_with_confluent,
)


@pytest.mark.parametrize("kind", WORKERS)
def test_readers_of_committed_records_see_committed_transactions(
    broker: RunningBroker, topic: str, kind: type[Worker]
) -> None:
    worker = kind(broker.kafka, f"id-{topic}")
    expected: list[bytes] = []
    everything: list[bytes] = []
    for number in range(6):
        worker.begin()
        values = [b"%d-%d" % (number, each) for each in range(20)]
        for value in values:
            worker.send(topic, value)
        everything += values
        if number % 3 == 1:
            worker.flush()
            worker.abort()
        else:
            worker.commit()
            expected += values
    worker.close()
    publish_end(broker.kafka, topic)
    assert read_with_confluent(broker.kafka, topic, committed=False) == everything
    for read in READERS:
        assert read(broker.kafka, topic) == expected


@pytest.mark.parametrize("kind", WORKERS)
def test_a_producer_whose_id_another_took_commits_nothing(
    broker: RunningBroker, topic: str, kind: type[Worker]
) -> None:
    zombie = kind(broker.kafka, f"id-{topic}")
    zombie.begin()
    zombie.send(topic, b"zombie")
    zombie.flush()
    successor = kind(broker.kafka, f"id-{topic}")
    with pytest.raises(Fenced):
        zombie.commit()
    successor.begin()
    successor.send(topic, b"new")
    successor.commit()
    successor.close()
    zombie.close()
    publish_end(broker.kafka, topic)
    assert read_with_confluent(broker.kafka, topic) == [b"new"]


@pytest.mark.parametrize("kind", WORKERS)
def test_offsets_are_committed_with_the_records_or_not_at_all(
    broker: RunningBroker, topic: str, kind: type[Worker]
) -> None:
    group = f"group-{topic}"
    worker = kind(broker.kafka, f"id-{topic}")
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic(f"{topic}-in", partitions=1)

        def committed() -> list[int]:
            reports = [each for each in client.admin.list_groups() if each.group == group]
            return [each.offset for each in client.admin.describe_group(group).offsets] if reports else []

        worker.begin()
        worker.send(topic, b"1")
        worker.send_offset(f"{topic}-in", 5, group)
        assert committed() == []
        worker.commit()
        assert committed() == [5]
        worker.begin()
        worker.send(topic, b"2")
        worker.send_offset(f"{topic}-in", 9, group)
        worker.flush()
        worker.abort()
        assert committed() == [5]
    worker.close()
    publish_end(broker.kafka, topic)
    assert read_with_confluent(broker.kafka, topic) == [b"1"]


def test_a_member_of_a_group_moves_records_exactly_once(broker: RunningBroker, topic: str) -> None:
    """Consume, transform, produce, with aborted attempts in between (KIP-447)."""
    count = 40
    source, sink = f"{topic}-in", f"{topic}-out"
    loader = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "log_level": 0})
    for number in range(count):
        loader.produce(source, b"%d" % number, partition=0)
    assert loader.flush(SECONDS) == 0
    config = {"bootstrap.servers": broker.kafka, "log_level": 0}
    quick = {"fetch.wait.max.ms": 20, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**config, **quick, "group.id": f"g-{topic}"})
    producer = confluent_kafka.Producer({**config, "transactional.id": f"id-{topic}", "linger.ms": 0})
    producer.init_transactions(SECONDS)
    consumer.subscribe([source])
    done, attempts = 0, 0
    while done < count:
        messages = consumer.consume(10, SECONDS)
        assert messages, "nothing came"
        producer.begin_transaction()
        for each in messages:
            assert not each.error(), each.error()
            producer.produce(sink, each.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
        )
        attempts += 1
        if attempts % 2:
            producer.abort_transaction(SECONDS)
            for place in consumer.committed(consumer.assignment(), SECONDS):
                place.offset = max(place.offset, 0)
                consumer.seek(place)
        else:
            producer.commit_transaction(SECONDS)
            done += len(messages)
    consumer.close()
    publish_end(broker.kafka, sink)
    assert read_with_confluent(broker.kafka, sink) == [b"%d" % number for number in range(count)]


class Load(threading.Thread):
    """Commits transactions one after the other to two topics, and remembers which were
    committed.
    """

    def __init__(self, bootstrap: str, name: str, topics: tuple[str, str]) -> None:
        super().__init__(name=name, daemon=True)
        self.topics = topics
        self.committed: list[bytes] = []
        self.failure: BaseException | None = None
        self.stop = threading.Event()
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "linger.ms": 0,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
            }
        )

    def run(self) -> None:
        try:
            self.producer.init_transactions(SECONDS)
            number = 0
            while not self.stop.is_set():
                self.transaction(b"%s %d" % (self.name.encode(), number), commit=number % 4 != 3)
                number += 1
        except BaseException as error:
            self.failure = error

    def transaction(self, value: bytes, *, commit: bool) -> None:
        self.producer.begin_transaction()
        for topic in self.topics:
            for _ in range(2):
                self.producer.produce(topic, value, partition=0)
        if commit and self.tried(lambda: self.producer.commit_transaction(SECONDS)):
            self.committed.append(value)
        else:
            assert self.tried(lambda: self.producer.abort_transaction(SECONDS))

    def tried(self, step: object) -> bool:
        """Return True if a step succeeded; False if the transaction must be aborted."""
        while True:
            try:
                step()  # type: ignore[operator]
            except confluent_kafka.KafkaException as error:
                reason = error.args[0]
                if reason.retriable():
                    continue
                if reason.txn_requires_abort():
                    return False
                raise
            return True


def test_a_broker_killed_in_the_middle_of_many_transactions_keeps_exactly_the_committed(topic: str) -> None:
    topics = (f"{topic}-1", f"{topic}-2")
    with sparrow.testing.broker(process=True) as broker:
        loads = [Load(broker.kafka, f"load{each}", topics) for each in range(3)]
        for load in loads:
            load.start()
        for _ in range(2):
            before = [len(load.committed) for load in loads]
            deadline = time.monotonic() + SECONDS
            while any(len(load.committed) < seen + 5 for load, seen in zip(loads, before, strict=True)):
                assert time.monotonic() < deadline
                assert [load.failure for load in loads] == [None] * 3
                time.sleep(0.01)
            broker.kill()
            broker.restart()
        for load in loads:
            load.stop.set()
        for load in loads:
            load.join(SECONDS)
            assert load.failure is None
        publish_end(broker.kafka, *topics)
        for each in topics:
            found = read_with_confluent(broker.kafka, each)
            for load in loads:
                mine = [value for value in found if value.startswith(load.name.encode() + b" ")]
                assert mine == [value for value in load.committed for _ in range(2)]
