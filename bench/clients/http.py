"""An HTTP client that does as little as one can: whole requests made beforehand, answers counted by
their head. What is measured is the broker.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import uvloop

from bench.together import Stopwatch

if TYPE_CHECKING:
    from bench.together import Span, Start


def post(path: str, body: bytes, content_type: str, *more: str) -> bytes:
    """A request as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _length(head: bytes) -> int:
    """The Content-Length of an answer, in bytes."""
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


class _Connection(asyncio.Protocol):
    """Sends its request again whenever the answer is there, so often."""

    def __init__(self, request: bytes, count: int, done: asyncio.Future[None]) -> None:
        self._request = request
        self._left = count
        self._done = done
        self._received = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def begin(self) -> None:
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        if not head.startswith(b"HTTP/1.1 2"):
            self._done.set_exception(RuntimeError(repr(self._received)))
            return
        if len(body) < _length(head):
            return
        self._received = b""
        self._left -= 1
        if self._left:
            self.begin()
        else:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or RuntimeError("the broker closed the connection"))


async def _repeat(port: int, request: bytes, connections: int, each: int, start: Start) -> Span:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        _, client = await loop.create_connection(
            lambda done=done: _Connection(request, each, done),
            "127.0.0.1",
            port,  # type: ignore[misc]
        )
        clients.append((client, done))
    watch = Stopwatch(start)
    for client, _ in clients:
        client.begin()
    await asyncio.gather(*(done for _, done in clients))
    span = watch.span()
    for client, _ in clients:
        client.transport.close()
    return span


def repeat(port: int, request: bytes, connections: int, each: int, start: Start) -> Span:
    """Send a request this many times over each of this many keep-alive connections, one after the
    other.

    Raises:
        RuntimeError: an answer that is not 2xx.
    """
    return uvloop.run(_repeat(port, request, connections, each, start))


class _Worker:
    """A connection that leases messages of a queue and acknowledges them, one request after the
    other.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, queue: str) -> None:
        self._reader = reader
        self._writer = writer
        self._queue = f"/v1/queues/{queue}"

    async def lease(self, at_once: int) -> list[str]:
        """The tokens of up to this many messages."""
        answer = await self._ask(f"{self._queue}/lease?max={at_once}&wait_ms=1000", b"")
        return [message["lease"] for message in answer["messages"]]

    async def acknowledge(self, leases: list[str]) -> None:
        """Acknowledge messages."""
        await self._ask(f"{self._queue}/ack", json.dumps({"leases": leases}).encode())

    async def _ask(self, path: str, body: bytes) -> Any:
        self._writer.write(post(path, body, "application/json"))
        head = await self._reader.readuntil(b"\r\n\r\n")
        answer = await self._reader.readexactly(_length(head))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(repr(head + answer))
        return json.loads(answer)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def _work(port: int, queue: str, count: int, at_once: int, connections: int, start: Start) -> Span:
    links = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 24) for _ in range(connections)]
    workers = [_Worker(reader, writer, queue) for reader, writer in links]
    done = 0
    for worker in workers:
        await worker.acknowledge(await worker.lease(1))
    watch = Stopwatch(start)

    async def work(worker: _Worker) -> None:
        nonlocal done
        while done < count:
            leases = await worker.lease(at_once)
            await worker.acknowledge(leases)
            done += len(leases)

    await asyncio.gather(*map(work, workers))
    span = watch.span(done)
    for worker in workers:
        worker.close()
    return span


def work(port: int, queue: str, count: int, at_once: int, connections: int, start: Start) -> Span:
    """Lease and acknowledge at least `count` messages, `at_once` with each request; found: how many
    they were.

    Raises:
        RuntimeError: an answer that is not 200.
    """
    return uvloop.run(_work(port, queue, count, at_once, connections, start))
