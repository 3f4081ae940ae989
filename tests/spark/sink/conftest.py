"""A broker of this process that the tests of a module share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sparrow.testing
from sparrow.spark.wire import borrowed
from tests.spark.sink.tasks import make_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.testing.running_broker import RunningBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        yield running
    # The sessions that this process kept for its next task.
    borrowed.__self__.close()


@pytest.fixture
def topic(broker: RunningBroker, sparrow_topic: str) -> str:
    return make_topic(broker, sparrow_topic)
