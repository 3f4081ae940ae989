"""Requests under way when the broker stops, or before the frontend's libraries are loaded."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request

PUBLISH = "/v1/topics/orders/messages"


async def until_waiting(http: Http) -> None:
    partition = http.broker.parts.topic_registry.get("orders").partitions[0]
    async with asyncio.timeout(10):
        while not partition._waiters:
            await asyncio.sleep(0.005)


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_long_poll_is_answered_and_its_connection_closed(http: Http) -> None:
    await http.broker.topics.create("orders")
    async with Raw(http.port) as raw, Raw(http.port) as idle:
        assert (await idle.ask("GET", "/healthz")).status == 200
        raw.send(request("GET", f"{PUBLISH}?wait_ms=60000"))
        await until_waiting(http)
        begun = time.monotonic()
        await http.frontend.drain(10)
        response = await raw.response()
        assert (response.status, response.json["messages"]) == (200, [])
        assert response.headers["connection"] == "close"
        assert await raw.ended() == b""
        assert await idle.ended() == b""
        assert time.monotonic() - begun < 5


async def test_publishes_under_way_are_answered(http: Http) -> None:
    async with Raw(http.port) as raw:
        assert (await raw.ask("POST", PUBLISH, b"first")).status == 200
        raw.send(request("POST", PUBLISH, b"last"))
        partition = http.broker.parts.topic_registry.get("orders").partitions[0]
        async with asyncio.timeout(10):
            while partition.visible_end < 2:
                await asyncio.sleep(0)
        await http.frontend.drain(10)
        assert (await raw.response()).json["offset"] == 1


async def test_a_request_that_does_not_end_in_time_is_refused_as_draining(make_http: MakeHttp) -> None:
    http = await make_http(failed_login_delay_ms=60_000, tokens={"robot": "t0ken"})
    async with Raw(http.port) as raw:
        raw.send(request("GET", "/docs", headers={"Authorization": "Bearer wrong"}))
        async with asyncio.timeout(10):
            while not http.frontend._tasks:
                await asyncio.sleep(0.005)
        await http.frontend.drain(0.1)
        response = await raw.response()
        assert (response.status, response.code, response.headers["retry-after"]) == (503, "DRAINING", "5")
    assert http.frontend.connections == 0


async def test_nobody_is_accepted_while_stopping(http: Http) -> None:
    assert (await http.get("/healthz")).status == 200
    await http.frontend.drain(1)
    with pytest.raises(OSError):
        await http.get("/healthz")


async def test_a_frontend_may_be_drained_twice_and_unused(http: Http) -> None:
    await http.frontend.drain(1)
    await http.frontend.drain(1)


async def test_readiness_ends_with_the_drain(http: Http) -> None:
    async with Raw(http.port) as raw:
        assert (await raw.ask("GET", "/readyz")).status == 200
        http.frontend.is_stopping = True
        response = await raw.ask("GET", "/readyz")
        assert (response.status, response.json["reasons"]) == (503, ["the broker is shutting down"])


# ── loading ───────────────────────────────────────────────────────────────────────────────────────


async def test_clients_that_connect_at_the_start_together_are_all_served(http: Http) -> None:
    raws = [Raw(http.port) for _ in range(20)]
    await asyncio.gather(*(raw.__aenter__() for raw in raws))
    for raw in raws:
        raw.send(request("POST", PUBLISH, b"early") * 3)
    offsets = [(await raw.response()).json["offset"] for raw in raws for _ in range(3)]
    assert sorted(offsets) == list(range(60))
    for raw in raws:
        await raw.__aexit__()


async def test_a_client_that_leaves_at_once_is_forgotten(http: Http) -> None:
    async with Raw(http.port):
        pass
    async with asyncio.timeout(10):
        while http.frontend.connections:
            await asyncio.sleep(0.005)
    assert (await http.get("/healthz")).status == 200


@pytest.mark.slow
def test_a_broker_that_nobody_asks_by_http_loads_no_large_library() -> None:
    program = """
import asyncio, sys, tempfile
from sparrow.server.config import ServerConfig
from sparrow.server.server import Server
from sparrow.storage.options import StorageOptions

async def main():
    with tempfile.TemporaryDirectory() as path:
        storage = StorageOptions(reserve_bytes=0)
        config = ServerConfig(data_dir=path, native_port=0, kafka_port=0, http_port=0, storage=storage)
        server = Server(config)
        await server.start()
        heavy = {"websockets", "aiohttp", "prometheus_client"}
        print(sorted(heavy & sys.modules.keys()))
        await server.stop(0)

asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"
