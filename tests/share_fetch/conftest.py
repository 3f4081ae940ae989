from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient
from tests.share_fetch.calls import Member, configure


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


@pytest.fixture
def group(raw: RawClient) -> str:
    """Return a share group that reads from the beginning."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    configure(raw, name, {"share.auto.offset.reset": "earliest"})
    return name


@pytest.fixture
def member(broker: RunningBroker, group: str) -> Iterator[Callable[[], Member]]:
    """Return a function that creates members of the group."""
    made: list[Member] = []

    def make() -> Member:
        made.append(Member(broker.kafka, group))
        return made[-1]

    yield make
    for each in made:
        each.close()
