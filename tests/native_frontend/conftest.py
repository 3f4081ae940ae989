"""A broker with a native frontend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.native_frontend.raw import Listener, OpenListener, RawClient

ONE_PARTITION = BrokerConfig(default_partitions=1)


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=ONE_PARTITION) as running:
        yield running


@pytest_asyncio.fixture
async def open_listener() -> AsyncIterator[OpenListener]:
    opener = OpenListener()
    yield opener
    await opener.close()


@pytest_asyncio.fixture
async def listener(broker: Broker, open_listener: OpenListener) -> Listener:
    return await open_listener(broker)


@pytest_asyncio.fixture
async def client(listener: Listener) -> RawClient:
    return await listener.client(client_name="test")


@pytest_asyncio.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def timed_broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    """Yield a broker with a manual clock."""
    async with Broker(tmp_path / "timed", config=ONE_PARTITION, clock=clock) as running:
        yield running
