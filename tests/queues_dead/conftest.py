"""A broker in this process, with a manual clock."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from sparrow.base.clock import ManualClock
from sparrow.broker.config import BrokerConfig
from tests.queues.work import Work


@pytest.fixture
async def work(tmp_path) -> AsyncIterator[Work]:
    work = Work(str(tmp_path / "data"), ManualClock(), BrokerConfig(default_partitions=1))
    await work.start()
    yield work
    await work.stop()


@pytest.fixture
def random_bytes() -> bytes:
    """Return bytes that do not compress."""
    return random.Random(1).randbytes(2000)
