"""A task's writer and a driver's calls, over sockets; and their records as Kafka's clients read
them.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import confluent_kafka
import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import (
    InvalidArgument,
    SinkFenced,
    SparrowError,
    StageExpired,
    UnknownPartition,
    from_code,
)
from sparrow.broker.sinks.stage_table import ABANDONED_MS
from sparrow.protocol.native.messages import Confirm, OpenProducer, Publish
from sparrow.records.builder import build_batch
from sparrow.spark.wire import Session, Target, connect
from sparrow.spark.wire.staged import SinkStage, StagedWriter, abort, commit, renew, stage
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_transactions.workers import READERS, publish_end, read_with_confluent


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture
def session(broker: RunningBroker) -> Iterator[Session]:
    with connect(Target(broker.url)) as made:
        yield made


@pytest.fixture
def topic(sparrow_topic: str) -> str:
    return sparrow_topic


def opened(session: Session, sink: str, batch: int, *, run: str = "r", task: int = 0) -> SinkStage:
    made = stage(session, sink=sink, query="q", run=run, batch=batch, task=task)
    assert made is not None
    return made


@dataclass
class Task:
    """Writes values, each batch with the sequence that it must have."""

    session: Session
    stage: SinkStage
    topic: str
    sequence: int = 0
    writer: StagedWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = StagedWriter(self.session, self.stage, self.topic)

    def put(self, *values: bytes, compression: int = 0, partition: int = 0) -> None:
        data = build_batch(
            values,
            timestamps=1_700_000_000_000,
            compression=compression,
            producer_id=self.stage.producer_id,
            producer_epoch=self.stage.producer_epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.writer.publish(partition, data)
        self.sequence += len(values)

    def done(self) -> str:
        self.writer.finish()
        self.writer.close()
        return self.stage.id


def commit_of(session: Session, sink: str, batch: int, *stages: str, run: str = "r") -> bool:
    return commit(session, sink=sink, query="q", run=run, batch=batch, stages=stages)


def cut(session: Session) -> None:
    """Cut the connections: the network fails."""
    session.connection()._socket.shutdown(socket.SHUT_RDWR)


def test_kafkas_clients_read_exactly_the_committed_batches(
    broker: RunningBroker, session: Session, topic: str
) -> None:
    expected: list[bytes] = []
    everything: list[bytes] = []
    for batch in range(5):
        winner, loser = (Task(session, opened(session, topic, batch, task=task), topic) for task in range(2))
        for number in range(3):
            values = [b"%d-%d-%d" % (batch, number, each) for each in range(20)]
            winner.put(*values, compression=batch)
            loser.put(*values)
            everything += values + values
            expected += values
        ids = [each.done() for each in (winner, loser)]
        commit_of(session, topic, batch, ids[0])
    publish_end(broker.kafka, topic)
    assert sorted(read_with_confluent(broker.kafka, topic, committed=False)) == sorted(everything)
    for read in READERS:
        assert read(broker.kafka, topic) == expected
    with sparrow.sync.connect(broker.url) as client:
        subscription = client.subscribe(topic, start="beginning", isolation="read_committed")
        found = [each.value for each, _ in zip(subscription, expected, strict=False)]
    assert found == expected
    assert list(islice(read_by_http(broker, topic), len(expected))) == expected


def read_by_http(broker: RunningBroker, topic: str) -> Iterator[bytes]:
    place = "beginning"
    while True:
        pages = f"{broker.http}/v1/topics/{topic}/messages"
        with urllib.request.urlopen(f"{pages}?isolation=committed&from={place}") as answer:
            place = answer.headers["Sparrow-Next"]
            messages = json.load(answer)["messages"]
        if not messages:
            return
        yield from (each["value"].encode() for each in messages)


def test_a_writer_of_several_topics_shares_the_stage(
    broker: RunningBroker, session: Session, topic: str
) -> None:
    made = opened(session, topic, 0)
    tasks = [Task(session, made, f"{topic}-{number}") for number in range(3)]
    for number, task in enumerate(tasks):
        task.put(b"%d" % number)
    assert not session.is_clean
    assert {each.done() for each in tasks} == {made.id}
    assert session.is_clean
    (info,) = [each for each in session.call("sink.list")["sinks"] if each["sink"] == topic]
    assert info["open_stages"] == 1
    (told,) = session.call("sink.describe", {"sink": topic})["stages"]
    assert told["partitions"] == [[f"{topic}-{number}", 0] for number in range(3)]
    commit_of(session, topic, 0, made.id)
    for number in range(3):
        publish_end(broker.kafka, f"{topic}-{number}")
        assert read_with_confluent(broker.kafka, f"{topic}-{number}") == [b"%d" % number]


def test_more_than_the_window_is_written_while_little_is_kept(
    broker: RunningBroker, session: Session, topic: str
) -> None:
    task = Task(session, opened(session, topic, 0), topic)
    value = bytes(500_000)
    most = 0
    for _ in range(40):
        task.put(value)
        most = max(most, task.writer._publishing._unconfirmed_bytes)
    stages = [task.done()]
    assert most <= 8 << 20
    commit_of(session, topic, 0, *stages)
    publish_end(broker.kafka, topic)
    assert read_with_confluent(broker.kafka, topic) == [value] * 40


def test_a_lost_connection_costs_nothing_and_repeats_nothing(
    broker: RunningBroker, session: Session, topic: str
) -> None:
    task = Task(session, opened(session, topic, 0), topic)
    for number in range(120):  # more than the broker remembers results of
        task.put(b"%d" % number)
        if number in (50, 119):
            cut(session)
    stages = [task.done()]
    assert not commit_of(session, topic, 0, *stages)
    cut(session)
    assert commit_of(session, topic, 0, *stages)
    publish_end(broker.kafka, topic)
    assert read_with_confluent(broker.kafka, topic) == [b"%d" % number for number in range(120)]


def test_a_stage_whose_task_vanished_is_dropped_soon_and_one_that_is_complete_is_kept(
    broker: RunningBroker, session: Session, topic: str
) -> None:
    def left_ms() -> int:
        (info,) = session.call("sink.describe", {"sink": topic})["stages"]
        return int(info["left_ms"])

    with connect(Target(broker.url)) as own:
        task = Task(own, opened(own, topic, 0), topic)
        task.put(b"1")
        task.writer.finish()
        assert left_ms() > ABANDONED_MS
        cut(own)
        wait_until(lambda: left_ms() <= ABANDONED_MS)
        task.put(b"2")
        task.writer.finish()
        assert left_ms() > ABANDONED_MS
        cut(own)
        wait_until(lambda: left_ms() <= ABANDONED_MS)
        task.done()  # closing messages of the stage are repeated
        assert left_ms() > ABANDONED_MS
    assert left_ms() > ABANDONED_MS
    commit_of(session, topic, 0, task.stage.id)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_task_that_is_patient_outlives_an_outage() -> None:
    options = {"default_partitions": 1, "drain_timeout_ms": "100ms"}
    with sparrow.testing.broker(**options) as broker, connect(Target(broker.url, retries=1)) as session:
        session.patience_s = 60.0
        task = Task(session, opened(session, "s", 0), "t")
        task.put(b"1")
        broker.stop()
        back = threading.Timer(1.0, broker.restart)
        back.start()
        try:
            task.put(b"2")
            made = task.done()
        finally:
            back.join()
        assert not commit_of(session, "s", 0, made)
        publish_end(broker.kafka, "t")
        assert read_with_confluent(broker.kafka, "t") == [b"1", b"2"]


def test_a_broker_that_is_stopped_and_started_again_is_written_to_all_along() -> None:
    options = {"default_partitions": 1, "drain_timeout_ms": "100ms"}
    with sparrow.testing.broker(**options) as broker, connect(Target(broker.url)) as session:
        task = Task(session, opened(session, "s", 0), "t")
        task.put(b"1")
        broker.restart()
        task.put(b"2")
        renew(session, sink="s", run="r", batch=0)
        made = task.done()
        broker.restart()
        assert not commit_of(session, "s", 0, made)
        publish_end(broker.kafka, "t")
        assert read_with_confluent(broker.kafka, "t") == [b"1", b"2"]


@pytest.mark.slow
def test_a_task_that_is_silent_for_longer_than_connections_may_be_goes_on() -> None:
    options = {"default_partitions": 1, "idle_timeout_ms": "1s"}
    with sparrow.testing.broker(**options) as broker, connect(Target(broker.url)) as session:
        task = Task(session, opened(session, "s", 0), "t")
        task.put(b"1")
        task.writer.finish()
        line = session.connection()
        while line.is_usable:  # until the broker says goodbye
            line.receive(time.monotonic() + 30)
        task.put(b"2")
        commit_of(session, "s", 0, task.done())
        publish_end(broker.kafka, "t")
        assert read_with_confluent(broker.kafka, "t") == [b"1", b"2"]


def test_zombie_writer_fails(session: Session, topic: str) -> None:
    zombie = Task(session, opened(session, topic, 0, run="old"), topic)
    zombie.put(b"1")
    assert opened(session, topic, 0, run="new")
    with pytest.raises(StageExpired):  # noqa: PT012 - where it fails depends on when the answer comes
        zombie.put(b"2")
        zombie.writer.finish()
    zombie.writer.close()
    with pytest.raises(StageExpired):
        StagedWriter(session, zombie.stage, topic)
    for doing in (commit_of, lambda *given, run: abort(session, sink=topic, query="q", run=run, batch=0)):
        if doing is commit_of:
            with pytest.raises(SinkFenced):
                doing(session, topic, 0, zombie.stage.id, run="old")
        else:
            assert doing(run="old") is False
    with pytest.raises(SinkFenced):
        renew(session, sink=topic, run="old", batch=0)


def test_a_batch_that_was_committed_needs_no_stage_and_is_not_aborted(session: Session, topic: str) -> None:
    commit_of(session, topic, 0, Task(session, opened(session, topic, 0), topic).done())
    assert stage(session, sink=topic, query="q", run="r", batch=0) is None
    assert abort(session, sink=topic, query="q", run="r", batch=0)


def test_a_batch_that_the_broker_refuses_fails_the_task(session: Session, topic: str) -> None:
    task = Task(session, opened(session, topic, 0), topic)
    with pytest.raises(UnknownPartition):  # noqa: PT012
        task.put(b"1", partition=7)
        task.writer.finish()
    task.writer.close()
    task.writer.close()
    assert session.is_clean


def test_staging_without_a_durable_confirmation_is_refused(session: Session, topic: str) -> None:
    task = Task(session, opened(session, topic, 0), topic)
    channel = session.open_channel(OpenProducer(stage=task.stage.id))
    for ref in range(2):
        channel.send(Publish(ref, topic, 0, acks=1), b"whatever")
        head = channel.receive().head
        assert isinstance(head, Confirm)
        failure = head.confirmations[0].failure
        assert failure is not None
        assert isinstance(from_code(failure.code, failure.text), InvalidArgument)
        task.put(b"the partition joins")
        task.writer.finish()
    channel.close()
    task.writer.close()


def test_kafkas_clients_cannot_have_a_transactional_id_of_a_stage(broker: RunningBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.kafka, "transactional.id": "sparrow-stage-0", "log_level": 0}
    )
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(10)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Query(threading.Thread):
    """A query that writes batch after batch with two tasks; after a failure it starts again as
    Spark would: a new run, the same batch.
    """

    def __init__(self, url: str, until: threading.Event) -> None:
        super().__init__()
        self.url = url
        self.until = until
        self.batch = 0
        self.runs = 0
        self.deadline = time.monotonic() + 120

    def run(self) -> None:
        while not self.until.is_set():
            self.runs += 1
            try:
                with connect(Target(self.url)) as session:
                    while not self.until.is_set():
                        self._write(session, f"run-{self.runs}")
                        self.batch += 1
            except SparrowError:
                if time.monotonic() > self.deadline:
                    raise

    def wait_for(self, batches: int) -> None:
        """Wait until so many more batches are written."""
        before, deadline = self.batch, time.monotonic() + 60
        while self.batch < before + batches and time.monotonic() < deadline:
            time.sleep(0.002)

    def _write(self, session: Session, run: str) -> None:
        ids = []
        for number in range(2):
            made = stage(session, sink="s", query="q", run=run, batch=self.batch, task=number)
            if made is None:
                return
            task = Task(session, made, "t")
            for each in range(3):
                task.put(b"%d-%d-%d" % (self.batch, number, each))
            ids.append(task.done())
        commit_of(session, "s", self.batch, *ids, run=run)


@pytest.mark.slow
def test_every_batch_is_there_once_and_whole_however_often_the_broker_is_killed() -> None:
    dice, until = random.Random(4), threading.Event()
    with sparrow.testing.broker(process=True, default_partitions=1) as broker:
        query = Query(broker.url, until)
        query.start()
        try:
            for _ in range(4):
                query.wait_for(3)
                time.sleep(dice.uniform(0, 0.05))
                broker.kill()
                broker.restart()
            query.wait_for(1)  # else a stage of the last run stays open, and hides what is behind it
        finally:
            until.set()
            query.join(60)
        publish_end(broker.kafka, "t")
        found = read_with_confluent(broker.kafka, "t")
    batches = range(query.batch)
    assert query.batch > 10
    seen = sorted(each for each in found if int(each.split(b"-")[0]) in batches)
    assert seen == sorted(b"%d-%d-%d" % (b, t, n) for b in batches for t in range(2) for n in range(3))
    assert len(found) - len(seen) in (0, 6), "the last batch may be committed without an answer"
