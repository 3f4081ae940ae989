"""Quotas apply to streams and sockets: a client over its quota waits."""

from __future__ import annotations

import asyncio

import pytest

from sparrow.broker.access.authz import Principal
from sparrow.broker.quotas.rules import QuotaChange, QuotaKind
from tests.http_frontend.conftest import Http
from tests.http_streams.conftest import DEADLINE_S, event_stream, fill, socket_to

MANY = ["x" * 300_000] * 10


async def limit(http: Http, name: str) -> None:
    """Set a quota of a byte per second."""
    change = QuotaChange((("user", None),), ((name, 1.0),))
    assert await http.broker.quotas.alter([change]) == [None]


async def until_throttled(http: Http, socket_count: int = 1) -> None:
    """Wait until the broker does not read from the only socket."""
    connections = http.frontend.open_connections
    async with asyncio.timeout(DEADLINE_S):
        while len(connections) < socket_count or not all(each.is_paused_by_us for each in connections):
            await asyncio.sleep(0.001)


async def test_publishing_over_a_socket_is_throttled(http: Http) -> None:
    await fill(http, "t", "a")
    await limit(http, "producer_byte_rate")
    async with socket_to(http.port) as socket:
        await socket.ask("publish", "published", topic="t", message={"value": "x" * 10_000})
        await until_throttled(http)
        socket.connection.transport.abort()


async def test_a_stream_is_throttled(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(http, "t", *MANY)
    counted: list[int] = []
    allowed = asyncio.Event()

    async def throttle(kind: QuotaKind, _: Principal, size_bytes: int) -> None:
        assert kind is QuotaKind.FETCH
        counted.append(size_bytes)
        await allowed.wait()

    monkeypatch.setattr(http.frontend, "throttle", throttle)
    async with event_stream(http.port, "/v1/topics/t/stream?from=beginning") as events:
        waiting = asyncio.create_task(events.values(len(MANY)))
        async with asyncio.timeout(DEADLINE_S):
            while not counted:
                await asyncio.sleep(0.001)
        await http.get("/healthz")
        assert (len(counted), waiting.done()) == (1, False)
        allowed.set()
        assert await waiting == MANY
        assert sum(counted) > 3_000_000


async def test_records_over_a_socket_are_throttled_and_other_frames_are_not(http: Http) -> None:
    await fill(http, "t", *MANY)
    await limit(http, "consumer_byte_rate")
    async with socket_to(http.port) as socket:
        await socket.ask("subscribe", "subscribed", subscription="s", topic="t", from_="beginning", credit=99)
        await socket.expect("assigned")
        first = await socket.expect("messages")
        assert len(first["messages"]) < len(MANY)
        await socket.silence()
