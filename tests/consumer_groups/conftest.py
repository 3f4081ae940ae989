import uuid
from collections.abc import Iterator

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.consumer_groups.clients import Cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """Return a broker with frequent heartbeats, so that groups become stable soon."""
    with sparrow.testing.broker(group_heartbeat_interval_ms=100) as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(broker.kafka) as made:
        yield made


@pytest.fixture
def name() -> str:
    """Return a name that no other test has."""
    return f"n{uuid.uuid4().hex[:12]}"
