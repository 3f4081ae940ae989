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
async def test_faststream_works_through_the_listener_for_kafka_clients(broker: RunningBroker) -> None:
    async with sparrow.connect(broker.url) as client:
        for topic in ("orders", "invoices"):
            await client.admin.create_topic(topic, partitions=1)
    example = importlib.import_module("faststream_app")
    async with example.broker:
        await example.broker.start()
        await example.broker.publish(21, "orders")
        async with asyncio.timeout(60):
            while example.seen != [42]:
                await asyncio.sleep(0.02)
