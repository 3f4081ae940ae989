from __future__ import annotations

from collections.abc import Iterator

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient


@pytest.fixture(scope="package")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        yield running


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.kafka) as client:
        yield client


@pytest.fixture
def topic(sparrow_topic: str) -> str:
    return sparrow_topic
