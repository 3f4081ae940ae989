"""Calls that many tests of leases need."""

from __future__ import annotations

import asyncio
from typing import Any

from sparrow.broker.broker import Broker
from sparrow.model.queues import QueueStatistics
from tests.http_admin.calls import call, done
from tests.http_frontend.conftest import Http
from tests.http_frontend.raw import Response
from tests.native_frontend.raw import batch_of

QUEUE = "/v1/queues/emails"


async def made(broker: Broker, *values: bytes, **policy: object) -> None:
    """Create the queue `emails` on one partition, with these messages."""
    await broker.queues.create("emails", policy=policy, partitions=1)
    if values:
        await broker.records.publish("emails", 0, batch_of(*values, clock=broker.clock))


async def leased(http: Http, query: str = "max=10") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await done(http, "POST", f"{QUEUE}/lease?{query}"))["messages"]
    return found


async def settle(http: Http, verb: str, *leases: str, **others: Any) -> Response:
    return await call(http, "POST", f"{QUEUE}/{verb}", {"leases": list(leases), **others})


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in messages]


def statistics(http: Http) -> QueueStatistics:
    return http.broker.queues.describe("emails").statistics


async def until_scanned(http: Http) -> None:
    async with asyncio.timeout(10):
        while not http.broker.parts.queue_registry.get("emails").scanner.is_idle:
            await asyncio.sleep(0)


async def until_waiting(http: Http, count: int = 1, queue: str = "emails") -> None:
    """Wait until this many requests wait for messages."""
    waiters = http.broker.parts.queue_registry.get(queue)._waiters[""]
    async with asyncio.timeout(10):
        while len(waiters) < count:
            await asyncio.sleep(0.001)
