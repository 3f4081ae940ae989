"""Frontends for streams and sockets, and clients for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

from tests.http_frontend.conftest import Http, http, make_http
from tests.http_frontend.raw import Raw, request

__all__ = ["Events", "Socket", "event_stream", "http", "make_http", "socket_to"]

DEADLINE_S = 10.0


@dataclass(frozen=True)
class Event:
    """An event as clients of Server-Sent Events parse it."""

    kind: str
    data: str
    id: str | None

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Events:
    """The events of one stream, parsed as the specification of HTML says."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._rest = b""
        self.comments = 0
        self.retry_ms = 0
        self.last_id = ""

    async def next(self) -> Event:
        """Return the next event with data. The id of a block without data is kept as the last
        id.
        """
        while True:
            event = await self.next_block()
            if event.data:
                return event

    async def next_block(self) -> Event:
        """Return the next block, with or without data."""
        async with asyncio.timeout(DEADLINE_S):
            while b"\n\n" not in self._rest:
                self._rest += await self._chunk()
        block, _, self._rest = self._rest.partition(b"\n\n")
        kind, data, last_id = "message", [], None
        for line in block.decode().split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not name:
                self.comments += 1
            elif name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                last_id = self.last_id = value
            elif name == "retry":
                self.retry_ms = int(value)
        return Event(kind, "\n".join(data), last_id)

    async def values(self, count: int) -> list[str]:
        """Return the values of the next records."""
        return [(await self.next()).json["value"] for _ in range(count)]

    async def _chunk(self) -> bytes:
        reader = self._raw.reader
        size = int(await reader.readuntil(b"\r\n"), 16)
        chunk = await reader.readexactly(size)
        await reader.readexactly(2)
        if not size:
            raise EOFError("the stream is over")
        return chunk


@contextlib.asynccontextmanager
async def event_stream(port: int, path: str, **headers: str) -> AsyncIterator[Events]:
    """Open a stream."""
    async with Raw(port) as raw:
        raw.send(request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()}))
        async with asyncio.timeout(DEADLINE_S):
            head = await raw.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head + await raw.reader.read(2000)
        assert b"content-type: text/event-stream" in head
        yield Events(raw)


class Socket:
    """A client of the protocol of `docs/http.md`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: str, **members: Any) -> None:
        members = {name.rstrip("_"): value for name, value in members.items()}
        await self.connection.send(json.dumps({"type": kind, **members}))

    async def next(self) -> dict[str, Any]:
        """Return the next frame."""
        async with asyncio.timeout(DEADLINE_S):
            text = await self.connection.recv()
        assert isinstance(text, str)
        found: dict[str, Any] = json.loads(text)
        return found

    async def expect(self, kind: str) -> dict[str, Any]:
        """Return the next frame, which must have this type."""
        frame = await self.next()
        assert frame["type"] == kind, frame
        return frame

    async def ask(self, kind: str, response: str, **members: Any) -> dict[str, Any]:
        """Send a frame and return its reply."""
        await self.send(kind, **members)
        return await self.expect(response)

    async def refused(self, kind: str, **members: Any) -> str:
        """Send a frame that is refused, and return the code of the problem."""
        frame = await self.ask(kind, "error", **members)
        code: str = frame["error"]["code"]
        return code

    async def records(self, count: int) -> list[dict[str, Any]]:
        """Return this many records, from as many frames as it takes."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += (await self.expect("messages"))["messages"]
        assert len(found) == count
        return found

    async def silence(self) -> None:
        """Check that only the reply comes: everything that was due has come before it."""
        for _ in range(3):  # more iterations of the loop than a push needs
            await self.ask("ping", "pong")

    async def closed(self) -> int:
        """Return the code with which the broker closes the connection."""
        async with asyncio.timeout(DEADLINE_S):
            await self.connection.wait_closed()
        code = self.connection.close_code
        assert code is not None
        return code


@contextlib.asynccontextmanager
async def socket_to(port: int, query: str = "", **headers: str) -> AsyncIterator[Socket]:
    """Open a WebSocket."""
    async with websockets.connect(
        f"ws://127.0.0.1:{port}/v1/ws{query}", additional_headers=headers, compression=None
    ) as connection:
        yield Socket(connection)


async def fill(http: Http, topic: str, *values: str, partition: int = 0) -> None:
    """Publish texts, a batch each."""
    from sparrow.records.builder import build_batch

    if http.broker.parts.topic_registry.find(topic) is None:
        await http.broker.topics.create(topic)
    for value in values:
        await http.broker.records.publish(topic, partition, build_batch([value.encode()]))


def small_socket(port: int) -> socket.socket:
    """Connect a socket whose kernel buffers little of what is not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    return client
