from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sparrow.broker.broker import Broker
from tests.transactions.machine import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest_asyncio.fixture
async def broker(machine: Machine) -> AsyncIterator[Broker]:
    running = await machine.start()
    for topic in ("a", "b"):
        await running.topics.create(topic, 1)
    yield running
    await machine.discard(running)
