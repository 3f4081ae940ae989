from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import sparrow.testing
from sparrow.testing.running import RunningBroker
from tests.consumer_groups.clients import Cluster
from tests.kafka_door.raw import RawClient


@pytest.fixture(scope="package")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(broker.kafka) as made:
        yield made


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.kafka) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"n{uuid.uuid4().hex[:12]}"
