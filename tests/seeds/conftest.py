"""A broker with the doors of seed systems that a test opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.seeds.doors import OpenDoors


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=3)) as running:
        yield running


@pytest_asyncio.fixture
async def open_doors(broker: Broker) -> AsyncIterator[OpenDoors]:
    opener = OpenDoors(broker)
    yield opener
    await opener.close_all()
