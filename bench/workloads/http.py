"""The HTTP frontend: publishing in batches and one by one, streams of Server-Sent Events to many
clients, many idle WebSockets.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import uvloop

import sparrow
from bench.clients import http
from bench.filled import fill_queue
from bench.results import Measurement, Target
from bench.server import Server, server
from bench.together import seconds, together

KEPT = "each answer after its batch's fdatasync (group commit)"
TOPIC = "bench"
PATH = f"/v1/topics/{TOPIC}/messages"
VALUE = "m" * 100
BATCH = 100
MANY = "application/json"
LINES = "application/x-ndjson"
_WRK_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_WRK_P99 = re.compile(r"99%\s+([\d.]+)(us|ms|s)")
_WRK_SCRIPT = """wrk.method = "POST"
wrk.body = string.rep("m", 100)
wrk.headers["Content-Type"] = "application/octet-stream"
done = function(summary, latency, requests)
  if summary.errors.status > 0 then print("Non-2xx") end
end
"""


def _warm(broker: Server) -> None:
    """Let the frontend load its libraries, and make the topic."""
    request = http.post(PATH, b"m", "application/octet-stream")
    together(partial(http.repeat, broker.http_port, request, 1, 1))


def batches(runs: int, scale: float) -> list[Measurement]:
    """Batches of 100 messages of 100 B over four connections."""
    as_json = Measurement("HTTP publish, 100 x 100 B, JSON", "msg/s", Target(60_000), KEPT)
    as_lines = Measurement("HTTP publish, 100 x 100 B, NDJSON", "msg/s", None, KEPT)
    message = {"value": VALUE}
    bodies = {
        MANY: json.dumps({"messages": [message] * BATCH}).encode(),
        LINES: b"\n".join([json.dumps(message).encode()] * BATCH),
    }
    each = round(1_000 * scale)
    for _ in range(runs):
        for row, kind in ((as_json, MANY), (as_lines, LINES)):
            with server() as broker:
                _warm(broker)
                request = http.post(PATH, bodies[kind], kind)
                (span,) = together(partial(http.repeat, broker.http_port, request, 4, each))
                row.runs.append(4 * each * BATCH / seconds([span]))
    return [as_json, as_lines]


def singly(runs: int, scale: float) -> list[Measurement]:
    """One message per request, 32 keep-alive connections; by wrk where that is installed, else by a
    client of our own.
    """
    wrk = shutil.which("wrk")
    rate = Measurement(
        "HTTP publish, one 100 B message per request, 32 connections", "msg/s", Target(4_000), KEPT
    )
    rate.note = "wrk" if wrk else "own client; wrk is not installed (Debian package wrk)"
    slowest = Measurement(f"{rate.name}, p99", "ms", None, KEPT)
    for _ in range(runs):
        with server() as broker:
            _warm(broker)
            if wrk:
                figure, p99_ms = _wrk(wrk, broker.http_port, max(2, round(5 * scale)))
                rate.runs.append(figure)
                slowest.runs.append(p99_ms)
            else:
                each = round(500 * scale)
                request = http.post(PATH, VALUE.encode(), "application/octet-stream")
                (span,) = together(partial(http.repeat, broker.http_port, request, 32, each))
                rate.runs.append(32 * each / seconds([span]))
    return [rate, slowest]


def _wrk(wrk: str, port: int, for_s: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="sparrow-bench-") as directory:
        script = Path(directory) / "publish.lua"
        script.write_text(_WRK_SCRIPT)
        command = [wrk, "-t1", "-c32", f"-d{for_s}s", "--latency", "-s", str(script)]
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{port}{PATH}"], capture_output=True, text=True, check=True
        )
    found, p99 = _WRK_RATE.search(done.stdout), _WRK_P99.search(done.stdout)
    if found is None or p99 is None or "Non-2xx" in done.stdout:
        raise RuntimeError(done.stdout)
    return float(found[1]), float(p99[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]]


# ── queues ────────────────────────────────────────────────────────────────────────────────────────

_LEASED = "publish, lease and ack on stable storage (group commit)"
QUEUE = "bench-jobs"


def leases(runs: int, scale: float) -> list[Measurement]:
    """Messages that wait already, leased and acknowledged: a request for the lease, and one for the
    acknowledgement.
    """
    shapes = (
        ("one message at a time, one connection", 1, 1, 3_000),
        ("one message at a time, 8 connections", 1, 8, 8_000),
        ("100 messages at a time, one connection", 100, 1, 60_000),
    )
    rows = [Measurement(f"HTTP lease and acknowledge, {name}", "msg/s", None, _LEASED) for name, *_ in shapes]
    for _ in range(runs):
        for row, (_, at_once, connections, messages) in zip(rows, shapes, strict=True):
            count = round(messages * scale)
            with server() as broker:
                uvloop.run(fill_queue(broker.url, QUEUE, VALUE.encode(), count + connections * (at_once + 1)))
                worker = partial(http.work, broker.http_port, QUEUE, count, at_once, connections)
                (span,) = together(worker)
                row.runs.append(span.found / seconds([span]))
    return rows


# ── Server-Sent Events ────────────────────────────────────────────────────────────────────────────

CLIENTS = 500


_EVENT = b'data: {"topic"'


class _Listener(asyncio.Protocol):
    """Counts the events that it gets."""

    def __init__(self, expected: int, done: asyncio.Future[None]) -> None:
        self._expected = expected
        self._done = done
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(  # type: ignore[attr-defined]
            f"GET /v1/topics/{TOPIC}/stream?from=end HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        self._expected -= data.count(_EVENT)
        self._tail = data[-len(_EVENT) + 1 :]
        if self._expected <= 0 and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or RuntimeError("the broker closed the stream"))


async def _fan_out(broker: Server, count: int) -> tuple[float, float]:
    """Events per second to all clients together, and the megabytes that they cost the broker."""
    loop = asyncio.get_running_loop()
    async with sparrow.connect(broker.url) as client:
        await client.publish(TOPIC, b"first")
        before = broker.rss_bytes()
        listeners = []
        for _ in range(CLIENTS):
            done: asyncio.Future[None] = loop.create_future()
            transport, _ = await loop.create_connection(
                lambda done=done: _Listener(count, done),
                "127.0.0.1",
                broker.http_port,  # type: ignore[misc]
            )
            listeners.append((transport, done))
        await asyncio.sleep(1)  # all streams have begun
        began = time.monotonic()
        async with client.producer() as producer:
            for _ in range(count):
                await producer.send(TOPIC, VALUE.encode())
        async with asyncio.timeout(120):
            await asyncio.gather(*(done for _, done in listeners))
        spent = time.monotonic() - began
        grown = (broker.rss_bytes() - before) / 1e6
        for transport, _ in listeners:
            transport.close()
    return CLIENTS * count / spent, grown


def events(runs: int, scale: float) -> list[Measurement]:
    """One topic to 500 clients by Server-Sent Events."""
    rate = Measurement("SSE to 500 clients, 100 B", "events/s", None, "published with acks=all")
    memory = Measurement("500 SSE clients: memory more", "MB")
    for _ in range(runs):
        with server() as broker:
            _warm(broker)
            figure, grown = uvloop.run(_fan_out(broker, round(4_000 * scale)))
            rate.runs.append(figure)
            memory.runs.append(grown)
    return [rate, memory]


# ── WebSockets ────────────────────────────────────────────────────────────────────────────────────

SOCKETS = 10_000
_HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class _Idle(asyncio.Protocol):
    """Opens a WebSocket, and says nothing."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(_HANDSHAKE)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self._opened.done():
            if not data.startswith(b"HTTP/1.1 101"):
                self._opened.set_exception(RuntimeError(repr(data)))
            else:
                self._opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(exc or RuntimeError("the broker closed the connection"))


def _allow_files() -> int:
    """Raise the limit of open files; return the number of sockets that may be open at both ends."""
    wanted = SOCKETS + 10_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return SOCKETS
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard // 2


async def _open_many(broker: Server, count: int) -> tuple[float, float]:
    """Seconds until all are open, and the megabytes that they cost the broker."""
    loop = asyncio.get_running_loop()
    before = broker.rss_bytes()
    transports = []
    began = time.monotonic()
    for _ in range(count // 100):
        opening = []
        for _ in range(100):
            opened: asyncio.Future[None] = loop.create_future()
            transport, _ = await loop.create_connection(
                lambda opened=opened: _Idle(opened),  # type: ignore[misc]
                "127.0.0.1",
                broker.http_port,
            )
            transports.append(transport)
            opening.append(opened)
        await asyncio.gather(*opening)
    spent = time.monotonic() - began
    grown = (broker.rss_bytes() - before) / 1e6
    for transport in transports:
        transport.abort()
    return spent, grown


def sockets(runs: int, scale: float) -> list[Measurement]:
    """10,000 WebSockets that are open and idle."""
    count = round(_allow_files() * scale)
    memory = Measurement("idle WebSockets: memory more", "MB", note=f"{count:,}")
    took = Measurement("idle WebSockets: until all are open", "s", note=f"{count:,}")
    for _ in range(runs):
        with server("--max-connections", str(SOCKETS + 100)) as broker:
            _warm(broker)
            spent, grown = uvloop.run(_open_many(broker, count))
            took.runs.append(spent)
            memory.runs.append(grown)
    return [memory, took]
