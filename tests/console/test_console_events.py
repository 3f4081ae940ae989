"""Events of the broker: what comes, for whom, and that nothing is done while nobody listens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.config import BrokerConfig
from tests.http_frontend.conftest import Http, MakeHttp, make_http

__all__ = ["make_http"]
TOKENS = {"root": "r-token", "nobody": "n-token"}


class Listener:
    """One stream of events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, http: Http, token: str = "") -> Listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        login = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{login}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"text/event-stream" in head
        return cls(reader, writer)

    async def next(self, name: str) -> Any:
        """Return the data of the next event of this name."""
        async with asyncio.timeout(10):
            while True:
                block = await self._reader.readuntil(b"\n\n")
                fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if ": " in line)
                if fields.get("event") == name:
                    return json.loads(fields["data"])

    def close(self) -> None:
        self._writer.close()


async def test_statistics_come_each_second_and_alerts_when_they_differ(make_http: MakeHttp) -> None:
    http = await make_http()
    first, second = await Listener.open(http), await Listener.open(http)
    one, other = await first.next("statistics"), await second.next("statistics")
    assert one == other  # computed once for both
    assert one["status"] == "ready"
    assert await first.next("alert") == []
    assert (await first.next("statistics"))["time_ms"] > one["time_ms"]
    first.close()
    second.close()


async def test_changes_are_told_by_kind_without_names(make_http: MakeHttp) -> None:
    http = await make_http()
    listener = await Listener.open(http)
    await listener.next("statistics")
    await http.broker.topics.create("secret", principal=SYSTEM)
    await http.broker.queues.create("hidden", ["secret"], principal=SYSTEM)
    assert await listener.next("changed") == {"kinds": ["queue", "topic"]}
    listener.close()


async def test_a_principal_without_describe_on_the_cluster_hears_of_changes_alone(
    make_http: MakeHttp,
) -> None:
    config = BrokerConfig(super_users=frozenset({"User:root"}), default_partitions=1)
    http = await make_http(tokens=TOKENS, config=config)
    poor, rich = await Listener.open(http, "n-token"), await Listener.open(http, "r-token")
    await rich.next("statistics")
    await http.broker.topics.create("t", principal=SYSTEM)
    async with asyncio.timeout(10):
        block = b""
        while b"event" not in block:
            block = await poor._reader.readuntil(b"\n\n")
    assert b"event: changed" in block
    poor.close()
    rich.close()


async def test_nothing_runs_while_nobody_listens(make_http: MakeHttp) -> None:
    http = await make_http()
    channels = len(http.broker.audit.channels)
    before = len(asyncio.all_tasks())
    listener = await Listener.open(http)
    await listener.next("statistics")
    assert len(http.broker.audit.channels) == channels + 1
    listener.close()
    async with asyncio.timeout(10):
        while len(http.broker.audit.channels) > channels or len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)


async def test_a_drain_ends_the_streams(make_http: MakeHttp) -> None:
    http = await make_http()
    listener = await Listener.open(http)
    await listener.next("statistics")
    async with asyncio.timeout(10):
        await http.frontend.drain(5)
        await listener._reader.read()
    listener.close()
