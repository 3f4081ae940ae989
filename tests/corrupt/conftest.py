from __future__ import annotations

from collections.abc import Iterator

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker


@pytest.fixture(scope="package")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        yield running
