"""Accepted holes, between segments and at the end: every reader skips them, and none waits for
records that are gone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from kafka import KafkaConsumer, TopicPartition

import sparrow.sync
import sparrow.testing
from sparrow.cli.doctor import doctor
from sparrow.spark.datasource import SparrowDataSource
from sparrow.storage.names import LOG
from sparrow.testing.running_broker import RunningBroker
from tests.damage.directories import BATCHES, RECORDS, value_of, write

END = BATCHES * RECORDS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Run a broker: `payments` has lost a segment between others and its last batch; `orders` its
    last segment; one more record each follows.
    """
    data = tmp_path_factory.mktemp("gaps") / "data"
    asyncio.run(write(data))
    for topic, numbers in (("payments", (1,)), ("orders", (-1,))):
        found = sorted((data / f"logs/{topic}-0").glob(f"*{LOG}"))
        for number in numbers:
            found[number].unlink()
    last = max((data / "logs/payments-0").glob(f"*{LOG}"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    assert doctor(str(data), accept_loss=True) in {0, 1}
    shutil.copytree(data, data.with_name("copy"))
    with sparrow.testing.broker(data_dir=str(data), http_port=0, kafka_port=0) as running:
        yield running


def lost(topic: str) -> set[int]:
    return {*range(20, 40), *range(END - RECORDS, END)} if topic == "payments" else set(range(40, END))


def expected(topic: str) -> list[tuple[int, bytes]]:
    return [(offset, value_of(topic, offset)) for offset in range(END) if offset not in lost(topic)]


def by_subscription(broker: RunningBroker, topic: str) -> list[tuple[int, bytes]]:
    with sparrow.sync.connect(broker.url) as client:
        found: list[tuple[int, bytes]] = []
        with client.subscribe(topic, start="beginning") as subscription:
            while len(found) < len(expected(topic)):
                found += [(each.offset, each.value or b"") for each in subscription.pull(wait_s=5)]
        return found


def by_kafka_python(broker: RunningBroker, topic: str) -> list[tuple[int, bytes]]:
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.kafka)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[tuple[int, bytes]] = []
        for _ in range(100):
            for record in consumer.poll(timeout_ms=200).get(partition, []):
                found.append((record.offset, record.value))
            if len(found) >= len(expected(topic)):
                break
        return found
    finally:
        consumer.close()


def by_librdkafka(broker: RunningBroker, topic: str) -> list[tuple[int, bytes]]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.kafka, "group.id": "gaps"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[tuple[int, bytes]] = []
        for _ in range(200):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.offset(), message.value()))
            if len(found) >= len(expected(topic)):
                break
        return found
    finally:
        consumer.close()


def by_http(broker: RunningBroker, topic: str) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    at, before = "beginning", ""
    while at != before:
        url = f"{broker.http}/v1/topics/{topic}/messages?partition=0&from={at}&limit=5"
        with urllib.request.urlopen(url, timeout=20) as answer:
            page = json.loads(answer.read())
        found += [(each["offset"], each["value"].encode()) for each in page["messages"]]
        before, at = at, str(page["next"]["0"])
    assert at == str(END)
    return found


def by_spark(broker: RunningBroker, topic: str) -> list[tuple[int, bytes]]:
    """Read by driver and tasks without the JVM between them."""
    source = SparrowDataSource({"url": broker.url, "subscribe": topic})
    reader = source.reader(source.schema())
    found: list[tuple[int, bytes]] = []
    for partition in reader.partitions():
        for table in reader.read(partition):
            columns = table.to_pydict()
            found += zip(columns["offset"], columns["value"], strict=True)
    return sorted(found)


@pytest.mark.parametrize("topic", ["payments", "orders"])
@pytest.mark.parametrize("read", [by_subscription, by_kafka_python, by_librdkafka, by_http, by_spark])
def test_readers_pass_over_gaps(
    broker: RunningBroker, topic: str, read: Callable[[RunningBroker, str], list[tuple[int, bytes]]]
) -> None:
    assert read(broker, topic) == expected(topic)


def test_a_queue_passes_over_gaps(broker: RunningBroker) -> None:
    wanted = [value for _, value in expected("payments")]
    with sparrow.sync.connect(broker.url) as client:
        queue, found = client.queue("work"), list[bytes | None]()
        while len(found) < len(wanted):
            batch = queue.lease(10, wait_s=5)
            found += batch.values
            batch.ack()
        assert found == wanted
        assert queue.statistics().unfinished == 0
