"""Kafka clients (librdkafka): an idempotent producer, one with transactions, and one that copies
from topic to topic exactly once.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import confluent_kafka

from sparrow.client import connect
from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, kept
from tests.crash.histories.copies import miscopied
from tests.crash.histories.transactions import broken
from tests.crash.loads.topic import BURST, PAUSE_S
from tests.crash.publisher import PARTITIONS, Ledger, check, number_of, read_all

EAGER: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.connection.setup.timeout.ms": 2000,
    "log_level": 0,
}


class Threaded:
    """A load in a thread, because librdkafka blocks."""

    is_given_up = False
    """Set when the run is over and unfinished work may be dropped."""

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        over = threading.Event()
        working = asyncio.create_task(asyncio.to_thread(self.work, broker.kafka, over.is_set))
        waiting = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            over.set()
            await asyncio.shield(working)
        finally:
            self.is_given_up = True
            over.set()
            waiting.cancel()

    def work(self, servers: str, is_over: Callable[[], bool]) -> None:
        raise NotImplementedError

    def again(self, work: Callable[[], object]) -> None:
        """Repeat a step until it succeeds or fails for good."""
        while True:
            try:
                work()
            except confluent_kafka.KafkaException as error:
                if self.is_given_up or not error.args[0].retriable():
                    raise
            else:
                return


class KafkaProducer(Threaded):
    """The promise of the native producer, through Kafka's listener."""

    name = "kafka"

    def __init__(self) -> None:
        self._ledger = Ledger()

    async def prepare(self, broker: RunningBroker) -> None:
        async with connect(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    def work(self, servers: str, is_over: Callable[[], bool]) -> None:
        producer = confluent_kafka.Producer(
            {**EAGER, "bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2}
        )
        ledger = self._ledger

        def settled(number: int, error: object, message: Any) -> None:
            assert error is None, error
            ledger.acknowledged[number] = (message.partition(), message.offset())

        while not is_over():
            number, ledger.sent = ledger.sent, ledger.sent + 1
            producer.produce(
                self.name,
                b"%d %s" % (number, b"." * (number * 31 % 300)),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: settled(number, error, message),
            )
            producer.poll(PAUSE_S if number % BURST == 0 else 0)
        assert producer.flush(60) == 0

    async def check(self, broker: RunningBroker) -> None:
        assert len(self._ledger.acknowledged) == self._ledger.sent
        check(self._ledger, await read_all(broker.url, self.name))

    @property
    def progress(self) -> int:
        return len(self._ledger.acknowledged)


class KafkaTransactions(Threaded):
    """Transactions of Kafka producers: a reader of committed records sees all of a committed one,
    once, nothing of an aborted one, and all or nothing of one that was left open.
    """

    name = "transactions"
    _SIZE = 6

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._committed: set[int] = set()
        self._aborted: set[int] = set()
        self._begun = 0

    async def prepare(self, broker: RunningBroker) -> None:
        async with connect(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    def work(self, servers: str, is_over: Callable[[], bool]) -> None:
        producer = self._producer(servers)
        while not is_over():
            number, self._begun = self._begun, self._begun + 1
            if not self._one(producer, number):
                producer = self._producer(servers)

    def _producer(self, servers: str) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                **EAGER,
                "bootstrap.servers": servers,
                "transactional.id": "crash",
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
            }
        )
        self.again(lambda: producer.init_transactions(30))
        return producer

    def _one(self, producer: confluent_kafka.Producer, number: int) -> bool:
        """Run one transaction. Return False if the producer is of no more use, and the
        transaction's outcome is unknown.
        """
        commits = self._dice.random() < 0.6
        try:
            producer.begin_transaction()
            for part in range(self._SIZE):
                value = b"%d %d" % (number, part)
                producer.produce(self.name, value, partition=part % PARTITIONS)
            if commits:
                self.again(lambda: producer.commit_transaction(30))
                self._committed.add(number)
            else:
                producer.flush(30)
                self.again(lambda: producer.abort_transaction(30))
                self._aborted.add(number)
        except confluent_kafka.KafkaException:
            return False
        time.sleep(PAUSE_S)
        return True

    async def check(self, broker: RunningBroker) -> None:
        # A producer that takes the id aborts what the last one left open.
        await asyncio.to_thread(self._producer, broker.kafka)
        visible = map(number_of, await read_all(broker.url, self.name, isolation="read_committed"))
        kept(broken(visible, committed=self._committed, aborted=self._aborted, size=self._SIZE))

    @property
    def progress(self) -> int:
        return len(self._committed) + len(self._aborted)


class KafkaCopies(Threaded):
    """Consume, produce, and commit the consumed offsets in the same transaction: every input before
    the group's offsets is in the output once, and no other.
    """

    name = "copies"
    _SOURCE = "copied"
    _ABORTS = 0.05

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._sent = 0
        self._copied = 0
        self._confirmed: dict[int, int] = {}

    async def prepare(self, broker: RunningBroker) -> None:
        async with connect(broker.url) as client:
            await client.admin.create_topic(self._SOURCE, partitions=PARTITIONS)
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    def work(self, servers: str, is_over: Callable[[], bool]) -> None:
        source = confluent_kafka.Producer({**EAGER, "bootstrap.servers": servers, "enable.idempotence": True})
        producer, consumer = self._producer(servers), self._consumer(servers)
        while not is_over():
            for _ in range(PARTITIONS):
                source.produce(self._SOURCE, b"%d" % self._sent, partition=self._sent % PARTITIONS)
                self._sent += 1
            source.poll(0)
            messages = [each for each in consumer.consume(20, 0.1) if each.error() is None]
            if messages and not self._copy(producer, consumer, messages):
                # its position is behind its reads; the next one begins at the committed offset
                consumer.close()
                producer, consumer = self._producer(servers), self._consumer(servers)
        consumer.close()
        assert source.flush(60) == 0

    def _producer(self, servers: str) -> confluent_kafka.Producer:
        """Return a new producer that takes over the id, and aborts the open transaction of the last
        one.
        """
        producer = confluent_kafka.Producer(
            {
                **EAGER,
                "bootstrap.servers": servers,
                "transactional.id": self.name,
                "linger.ms": 0,
                # Otherwise librdkafka begins again at its first addresses when every broker is
                # away, but keeps the handle that it dropped as the group's coordinator:
                # send_offsets_to_transaction sends nothing more and never returns (2.16, librdkafka
                # #5511).
                "metadata.recovery.strategy": "none",
            }
        )
        self.again(lambda: producer.init_transactions(30))
        return producer

    def _consumer(self, servers: str) -> confluent_kafka.Consumer:
        consumer = self._reader(servers)
        consumer.subscribe([self._SOURCE])
        return consumer

    def _reader(self, servers: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **EAGER,
                "bootstrap.servers": servers,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 300,
            }
        )

    def _copy(
        self,
        producer: confluent_kafka.Producer,
        consumer: confluent_kafka.Consumer,
        messages: list[confluent_kafka.Message],
    ) -> bool:
        """Run one transaction. Return False if both clients must be created again, and the
        transaction was aborted or its outcome is unknown.
        """
        ends = {each.partition() or 0: (each.offset() or 0) + 1 for each in messages}
        offsets = [confluent_kafka.TopicPartition(self._SOURCE, *each) for each in ends.items()]
        try:
            producer.begin_transaction()
            for each in messages:
                producer.produce(self.name, each.value(), partition=each.partition() or 0)
            group = consumer.consumer_group_metadata()
            self.again(lambda: producer.send_offsets_to_transaction(offsets, group, 30))
            if self._dice.random() < self._ABORTS:
                producer.flush(30)
                self.again(lambda: producer.abort_transaction(30))
                return False
            self.again(lambda: producer.commit_transaction(30))
        except confluent_kafka.KafkaException as error:
            self._abort(producer, error)
            return False
        self._confirmed |= ends
        self._copied += len(messages)
        time.sleep(PAUSE_S)
        return True

    def _abort(self, producer: confluent_kafka.Producer, error: confluent_kafka.KafkaException) -> None:
        if error.args[0].txn_requires_abort():
            with suppress(confluent_kafka.KafkaException):  # left to the next producer
                self.again(lambda: producer.abort_transaction(30))

    async def check(self, broker: RunningBroker) -> None:
        await asyncio.to_thread(self._producer, broker.kafka)
        committed = await asyncio.to_thread(self._committed, broker.kafka)
        inputs = [
            Found(number_of(each), each.partition, each.offset)
            for each in await read_all(broker.url, self._SOURCE)
        ]
        copies = map(number_of, await read_all(broker.url, self.name, isolation="read_committed"))
        kept(miscopied(inputs, copies, committed=committed, confirmed=self._confirmed))

    def _committed(self, servers: str) -> dict[int, int]:
        consumer = self._reader(servers)
        try:
            wanted = [confluent_kafka.TopicPartition(self._SOURCE, each) for each in range(PARTITIONS)]
            return {each.partition: max(0, each.offset) for each in consumer.committed(wanted, 30)}
        finally:
            consumer.close()

    @property
    def progress(self) -> int:
        return self._copied
