"""A fake broker for behaviour that a real one does not show on demand, and a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sparrow.broker.config import BrokerConfig
from sparrow.client.client import Client
from sparrow.frontends.native.limits import NativeLimits
from tests.client.frontends import Frontend, client_of
from tests.queues_client.fake_broker import FakeBroker


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    broker = FakeBroker()
    await broker.start()
    yield broker
    await broker.stop()


@pytest_asyncio.fixture
async def fake_client(fake: FakeBroker) -> AsyncIterator[Client]:
    async with client_of(fake.url) as connected:
        yield connected


@pytest_asyncio.fixture
async def frontend(tmp_path: Path) -> AsyncIterator[Frontend]:
    opened = Frontend(tmp_path / "data", BrokerConfig(default_partitions=2), NativeLimits())
    await opened.start()
    yield opened
    await opened.stop()


@pytest_asyncio.fixture
async def client(frontend: Frontend) -> AsyncIterator[Client]:
    async with client_of(frontend.url) as connected:
        yield connected
