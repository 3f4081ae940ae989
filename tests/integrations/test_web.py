"""FastAPI and FastStream with a real broker."""

from __future__ import annotations

import asyncio
import importlib

import httpx
import pytest
from fastapi import FastAPI

import sparrow
from sparrow.integrations.fastapi import SparrowClient
from sparrow.testing.running_broker import RunningBroker


def asking(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://example")


async def test_a_request_becomes_a_job(broker: RunningBroker) -> None:
    app = importlib.import_module("fastapi_app").app
    for lifetime in range(2):
        async with app.router.lifespan_context(app), asking(app) as http:
            published = await http.post("/emails/alice")
            assert published.json() == {"partition": 0, "offset": 2 * lifetime}
            assert (await http.post("/emails/bob")).status_code == 202
            assert (await http.get("/emails")).json() == {"unfinished": 2 * lifetime + 2}
    async with sparrow.connect(broker.url) as client:
        taken = await client.queue("emails").lease(4)
        assert taken.values == [b"to: alice", b"to: bob"] * 2


async def test_an_application_without_the_lifespan_says_what_to_do() -> None:
    app = FastAPI()

    @app.get("/")
    async def page(client: SparrowClient) -> None: ...

    async with asking(app) as http:
        with pytest.raises(RuntimeError, match=r"FastAPI\(lifespan=SparrowLifespan"):
            await http.get("/")


@pytest.mark.slow
async def test_faststream_takes_retries_publishes_and_rejects(broker: RunningBroker) -> None:
    example = importlib.import_module("faststream_app")
    async with sparrow.connect(broker.url) as client, example.broker:
        await example.broker.start()
        assert await example.broker.ping()
        await example.broker.publish(21, "orders")
        await example.broker.publish(-1, "orders", headers={"a": "b"}, priority=9)
        async with asyncio.timeout(60):
            while example.archived != [42]:
                await asyncio.sleep(0.02)
            while (await client.admin.describe_queue("orders")).statistics.dead != 1:
                await asyncio.sleep(0.02)
        assert example.tried.count(21) == 2
        (letter,) = await client.admin.dead_letters("orders")
        assert letter.reason
        assert dict(letter.record.headers if hasattr(letter, "record") else letter.headers)["a"] == b"b"
    with pytest.raises(Exception, match="not started"):
        await example.broker.publish(1, "orders")
