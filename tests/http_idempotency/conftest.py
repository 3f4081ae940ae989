"""A broker in this process whose clock the test controls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.broker.config import BrokerConfig
from tests.http_idempotency.keyed import Keyed


@pytest_asyncio.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[Keyed]:
    running = Keyed(str(tmp_path / "data"), ManualClock(), BrokerConfig())
    await running.start()
    yield running
    await running.stop()
