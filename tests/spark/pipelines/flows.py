"""Pipelines for tests: publish messages, run a pipeline to its end, and read the resulting
topics.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sparrow.sync
from sparrow.pipelines import Pipeline
from sparrow.pipelines.engine import Outcome, run
from sparrow.pipelines.model import Broker, Flow, JsonDecoder, Source
from tests.spark.kafka import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sparrow.testing.running_broker import RunningBroker

ORDERS = JsonDecoder(schema="id bigint, amount double, at timestamp")


@dataclass(frozen=True)
class Environment:
    """Environment of a test's pipeline."""

    spark: SparkSession
    broker: RunningBroker
    directory: Path

    def publish(self, topic: str, values: Iterable[Any], **fields: Any) -> None:
        """Publish values (bytes as they are, others as JSON), in their order, to one partition."""
        with sparrow.sync.connect(self.broker.url) as client:
            for value in values:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                client.publish(topic, data, partition=0, **fields)

    def pipeline(self, *flows: Flow, **fields: Any) -> Pipeline:
        """Return a pipeline of this broker."""
        checkpoints = str(self.directory / "checkpoints")
        return Pipeline(
            name="p", broker=Broker(url=self.broker.url), checkpoints=checkpoints, flows=flows, **fields
        )

    def run(self, *flows: Flow, tables: Any = (), **options: Any) -> list[Outcome]:
        """Run flows until they end."""
        return run(self.pipeline(*flows, tables=tables), spark=self.spark, **options)

    def done(self, *flows: Flow, **options: Any) -> list[Outcome]:
        """Run flows that must not fail."""
        outcomes = self.run(*flows, **options)
        assert [each.failure.detail or each.failure.text for each in outcomes if each.failure] == []
        return outcomes

    def failed(self, *flows: Flow, **options: Any) -> str:
        """Run flows of which one must fail. Return its failure."""
        (text,) = [each.failure.text for each in self.run(*flows, **options) if each.failure]
        return text

    def values(self, topic: str) -> list[Any]:
        """Return the messages of a topic, as a Kafka client reads them, decoded from JSON."""
        return [json.loads(message.value()) for message in self.messages(topic)]

    def messages(self, topic: str) -> list[Any]:
        """Return the messages by partition and offset."""
        return [each for messages in read_messages(self.broker, topic).values() for each in messages]


def orders(name: str = "clean", *, batch: int | None = None, **fields: Any) -> Flow:
    """Return a flow that reads orders as JSON."""
    source = Source(topics=["orders"], max_rows_per_trigger=batch)
    return Flow(**{"name": name, "source": source, "decode": ORDERS, **fields})
