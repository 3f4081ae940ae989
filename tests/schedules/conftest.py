"""A broker in this process with a manual clock, and a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparrow.base.clock import ManualClock
from sparrow.broker.config import BrokerConfig
from tests.schedules.timed import NOON_MS, Timed


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[Timed]:
    timed = Timed(str(tmp_path / "data"), ManualClock(NOON_MS), BrokerConfig(default_partitions=1))
    await timed.start()
    await timed.broker.queues.create("jobs", policy={"lease": "2h"})
    yield timed
    await timed.stop()
