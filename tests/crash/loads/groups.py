"""Members of Kafka's consumer groups (librdkafka): classic ones, and those of KIP-848."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import confluent_kafka

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Kind
from tests.crash.loads.kafka import EAGER
from tests.crash.loads.native import NativeGroup
from tests.kafka_frontend.raw import RawClient
from tests.share_fetch.calls import configure

_TIMEOUTS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}
_MEMBERS = 2


class KafkaGroup(NativeGroup):
    """The promises of `NativeGroup`, by Kafka's protocols. A member is a thread."""

    readers: ClassVar[int] = 0

    def __init__(self, protocol: str) -> None:
        super().__init__()
        self.name = f"{protocol}-group"
        self._config = {
            **EAGER,
            **_TIMEOUTS[protocol],
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }

    async def prepare(self, broker: RunningBroker) -> None:
        await super().prepare(broker)
        await asyncio.to_thread(self._configure, broker.kafka)

    def _configure(self, servers: str) -> None:
        """Configure sessions of KIP-848 at the broker; classic members bring their own."""
        with RawClient(servers) as raw:
            configure(
                raw,
                self.name,
                {"consumer.session.timeout.ms": "3000", "consumer.heartbeat.interval.ms": "300"},
            )

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        over = threading.Event()
        members = [
            asyncio.create_task(asyncio.to_thread(self._member, broker.kafka, f"r{number}", over.is_set))
            for number in range(_MEMBERS)
        ]
        try:
            await super().run(broker, stop)
        finally:
            over.set()
            await asyncio.gather(*members)

    def _member(self, servers: str, by: str, is_over: Callable[[], bool]) -> None:
        consumer = confluent_kafka.Consumer({**self._config, "bootstrap.servers": servers})
        fresh: set[int] = set()
        consumer.subscribe(
            [self.name], on_assign=lambda _, given: fresh.update(each.partition for each in given)
        )
        try:
            while not is_over():
                messages = [each for each in consumer.consume(20, 0.1) if each.error() is None]
                if messages:
                    self._take(consumer, messages, fresh, by)
        finally:
            consumer.close()

    def _take(
        self,
        consumer: confluent_kafka.Consumer,
        messages: list[confluent_kafka.Message],
        fresh: set[int],
        by: str,
    ) -> None:
        last: dict[int, int] = {}
        for message in messages:
            place = (message.partition() or 0, message.offset() or 0)
            self.read_by(by, int((message.value() or b"").split()[0]), place, fresh)
            last[place[0]] = place[1] + 1
        offsets = [confluent_kafka.TopicPartition(self.name, *place) for place in last.items()]
        for place in last.items():
            self.history.note(Kind.COMMITTING, -1, place, by=by)
        with suppress(confluent_kafka.KafkaException):  # the commit may hold or not
            for each in consumer.commit(offsets=offsets, asynchronous=False):
                if each.error is None:
                    self.history.note(Kind.COMMITTED, -1, (each.partition, each.offset), by=by)
