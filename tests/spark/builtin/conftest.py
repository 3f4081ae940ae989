"""One broker for a module (starting and stopping one for each test takes longer than the tests),
and separate topics for each test.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparrow.sync
import sparrow.testing
from sparrow.pipelines.builtin import directory
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    # The lines are older than a topic's default retention.
    with sparrow.testing.broker(default_partitions=2, topic_defaults={"retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[Client]:
    with sparrow.sync.connect(broker.url) as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """Return the name of a topic or queue that no other test uses."""
    return f"logs-{next(_numbers)}"


@pytest.fixture
def where(broker: RunningBroker, spark: SparkSession) -> dict[str, Any]:
    """Return the arguments for broker and session, which all calls take."""
    return {"connection": {"url": broker.url}, "spark": spark}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for listings: no other process lists the directories while they are exchanged."""
    monkeypatch.setattr(directory, "LISTING_S", 0.0)
