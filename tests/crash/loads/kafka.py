"""Kafka clients (librdkafka): an idempotent producer, and one with transactions."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka

from sparrow.client import connect
from sparrow.testing.running import RunningBroker
from tests.crash.histories import kept
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
    """librdkafka blocks, so it works in a thread."""

    is_given_up = False
    """The run is over, and nothing has to come to its end."""

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


class KafkaProducer(Threaded):
    """As the native producer's promise, through Kafka's door."""

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
    """Of what was committed a reader of committed records sees all, once; of what was aborted nothing; of what was left open all or nothing."""

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
        self._again(lambda: producer.init_transactions(30))
        return producer

    def _one(self, producer: confluent_kafka.Producer, number: int) -> bool:
        """One transaction; False: the producer is of no use any more, and what became of the transaction is not known."""
        commits = self._dice.random() < 0.6
        try:
            producer.begin_transaction()
            for part in range(self._SIZE):
                value = b"%d %d" % (number, part)
                producer.produce(self.name, value, partition=part % PARTITIONS)
            if commits:
                self._again(lambda: producer.commit_transaction(30))
                self._committed.add(number)
            else:
                producer.flush(30)
                self._again(lambda: producer.abort_transaction(30))
                self._aborted.add(number)
        except confluent_kafka.KafkaException:
            return False
        time.sleep(PAUSE_S)
        return True

    def _again(self, work: Callable[[], object]) -> None:
        while True:
            try:
                work()
            except confluent_kafka.KafkaException as error:
                if self.is_given_up or not error.args[0].retriable():
                    raise
            else:
                return

    async def check(self, broker: RunningBroker) -> None:
        # A producer that takes the id aborts what the last one left open.
        await asyncio.to_thread(self._producer, broker.kafka)
        visible = map(number_of, await read_all(broker.url, self.name, isolation="read_committed"))
        kept(broken(visible, committed=self._committed, aborted=self._aborted, size=self._SIZE))

    @property
    def progress(self) -> int:
        return len(self._committed) + len(self._aborted)
