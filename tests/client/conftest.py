"""A broker with a native frontend for each test, and proxies in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest_asyncio

from sparrow.broker.config import BrokerConfig
from sparrow.client.client import Client
from sparrow.frontends.native.limits import NativeLimits
from tests.client.frontends import Frontend, Proxy, client_of

OpenProxy = Callable[..., Awaitable[Proxy]]


@pytest_asyncio.fixture
async def frontend(tmp_path: Path) -> AsyncIterator[Frontend]:
    opened = Frontend(tmp_path / "data", BrokerConfig(default_partitions=4), NativeLimits())
    await opened.start()
    yield opened
    await opened.stop()


@pytest_asyncio.fixture
async def client(frontend: Frontend) -> AsyncIterator[Client]:
    async with client_of(frontend.url) as connected:
        yield connected


@pytest_asyncio.fixture
async def open_proxy(frontend: Frontend) -> AsyncIterator[OpenProxy]:
    proxies: list[Proxy] = []

    async def opener(**options: int) -> Proxy:
        proxy = Proxy(frontend.port, **options)
        await proxy.start()
        proxies.append(proxy)
        return proxy

    yield opener
    for proxy in proxies:
        await proxy.stop()
