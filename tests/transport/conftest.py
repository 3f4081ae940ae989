"""A broker without frontends, on each kind of event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio
import uvloop

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.http_frontend.conftest import make_http

__all__ = ["broker", "make_http"]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops that brokers run on: their transports differ in details."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as running:
        yield running
