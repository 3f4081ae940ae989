"""One broker for a module (to start and stop one for each test takes longer than the tests), and topics of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparrow.sync
import sparrow.testing
from sparrow.spark.pipelines.builtin import directory
from sparrow.sync.client import Client
from sparrow.testing.running import RunningBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    # The lines are older than a topic keeps them by default.
    with sparrow.testing.broker(default_partitions=2, topic_defaults={"retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[Client]:
    with sparrow.sync.connect(broker.url) as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """Of a topic or queue that no other test has."""
    return f"logs-{next(_numbers)}"


@pytest.fixture
def where(broker: RunningBroker, spark: SparkSession) -> dict[str, Any]:
    """The broker and the session that all calls take."""
    return {"connection": {"url": broker.url}, "spark": spark}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else lists the directories of these tests while they are exchanged."""
    monkeypatch.setattr(directory, "LISTING_S", 0.0)
