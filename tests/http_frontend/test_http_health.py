"""Health checks of supervisors and load balancers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from sparrow.broker.broker import Broker
from sparrow.meta.memory import MemoryMetaStore
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.http_frontend.conftest import Http, MakeHttp

PUBLISH = "/v1/topics/orders/messages"
CAPACITY_BYTES = 100 << 20


@pytest_asyncio.fixture
async def device() -> FaultyFileSystem:
    return FaultyFileSystem(0, capacity_bytes=CAPACITY_BYTES)


@pytest_asyncio.fixture
async def fragile(device: FaultyFileSystem) -> AsyncIterator[Broker]:
    """A broker whose disk the test breaks."""
    logs = LocalLogStore("/data", device, options=StorageOptions(reserve_bytes=2 << 20))
    broker = Broker(log_store=logs, meta_store=MemoryMetaStore())
    await broker.start()
    yield broker
    device.capacity_bytes = CAPACITY_BYTES
    await broker.close()


async def test_a_broker_is_alive_and_ready(http: Http) -> None:
    alive = await http.get("/healthz")
    assert (alive.status, alive.json) == (200, {"status": "alive"})
    ready = await http.get("/readyz")
    assert (ready.status, ready.json) == (200, {"status": "ready", "reasons": []})


async def test_a_full_disk_is_not_ready_until_there_is_room(
    make_http: MakeHttp, fragile: Broker, device: FaultyFileSystem
) -> None:
    http = await make_http(broker=fragile)
    assert (await http.post(PUBLISH, bytes(900_000))).status == 200
    device.capacity_bytes -= device.space("/data").free_bytes - 100
    response = await http.get("/readyz")
    assert (response.status, response.json["status"]) == (503, "not ready")
    assert "reserve" in response.json["reasons"][0]
    assert (await http.get("/healthz")).status == 200
    assert (await http.post(PUBLISH, bytes(10_000))).code == "DISK_FULL"
    device.capacity_bytes = CAPACITY_BYTES
    assert (await http.get("/readyz")).status == 200
