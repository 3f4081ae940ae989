import uuid
from collections.abc import Iterator

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient


@pytest.fixture(scope="package")
def broker() -> Iterator[RunningBroker]:
    """Return a broker with frequent heartbeats, so that groups become stable soon."""
    with sparrow.testing.broker(group_heartbeat_interval_ms=100) as running:
        yield running


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.kafka) as client:
        yield client


@pytest.fixture
def name() -> str:
    """Return a name that no other test has."""
    return f"n{uuid.uuid4().hex[:12]}"
