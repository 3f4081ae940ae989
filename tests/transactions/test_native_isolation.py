"""Subscriptions of the native protocol: the records that each isolation level delivers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

import sparrow.sync
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker

SECONDS = 60


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as broker:
        yield broker


def test_a_subscription_of_committed_records_gets_those_alone(running: RunningBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.kafka, "transactional.id": "t", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(SECONDS)
    expected, everything = [], []
    for number in range(6):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(50)]
        for value in values:
            producer.produce("orders", value, partition=0)
        everything += values
        if number % 2:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
            expected += values
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(SECONDS)
    with sparrow.sync.connect(running.url) as client:
        for mode in ("push", "pull"):
            with (
                client.subscribe(
                    "orders", start="beginning", isolation="read_committed", mode=mode
                ) as committed,
                client.subscribe("orders", start="beginning", mode=mode) as uncommitted,
            ):
                assert take(committed, len(expected)) == expected
                assert take(uncommitted, len(everything) + 1) == [*everything, b"open"]
        with client.subscribe("orders", start="beginning", isolation="read_committed") as committed:
            take(committed, len(expected))
            producer.commit_transaction(SECONDS)
            assert take(committed, 1) == [b"open"]


def take(subscription: object, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS
    for message in subscription:  # type: ignore[attr-defined]
        found.append(message.value)
        assert time.monotonic() < deadline
        if len(found) == count:
            break
    return found
