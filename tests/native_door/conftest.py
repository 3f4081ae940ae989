"""A broker with a native door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.native_door.raw import Door, OpenDoor, RawClient

ONE_PARTITION = BrokerConfig(default_partitions=1)


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=ONE_PARTITION) as running:
        yield running


@pytest_asyncio.fixture
async def open_door() -> AsyncIterator[OpenDoor]:
    opener = OpenDoor()
    yield opener
    await opener.close()


@pytest_asyncio.fixture
async def door(broker: Broker, open_door: OpenDoor) -> Door:
    return await open_door(broker)


@pytest_asyncio.fixture
async def client(door: Door) -> RawClient:
    return await door.client(client_name="test")


@pytest_asyncio.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def timed_broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    """A broker whose clock the test turns."""
    async with Broker(tmp_path / "timed", config=ONE_PARTITION, clock=clock) as running:
        yield running
