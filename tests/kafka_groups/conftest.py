from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.consumer_groups.clients import Cluster
from tests.kafka_frontend.raw import RawClient


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
    """Return a name that no other test uses."""
    return f"n{uuid.uuid4().hex[:12]}"
