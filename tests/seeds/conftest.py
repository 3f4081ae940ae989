"""A broker, and the listeners of seed systems that a test opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.seeds.listeners import OpenListeners, Wire


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=3)) as running:
        yield running


@pytest_asyncio.fixture
async def wires() -> AsyncIterator[None]:
    """Close all connections of a test."""
    yield
    while Wire.opened:
        await Wire.opened.pop().close()


@pytest_asyncio.fixture
async def open_listeners(broker: Broker) -> AsyncIterator[OpenListeners]:
    opener = OpenListeners(broker)
    yield opener
    await opener.close_all()
