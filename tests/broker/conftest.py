"""A broker in process over a temporary directory, and batches to publish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as running:
        yield running
