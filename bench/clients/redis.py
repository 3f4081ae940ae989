"""Redis Streams with a consumer group: redis-py, and the same commands as bytes that were made
beforehand (hiredis reads the answers).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import hiredis
import redis
import redis.asyncio
import uvloop

from bench.pace import due_times, late_s, stamped
from bench.together import Span, Start, Stopwatch

GROUP = "g"
_RECEIVE_BYTES = 1 << 20
_BLOCK_MS = 30_000


def make(port: int, stream: str) -> None:
    """A stream with a consumer group."""
    with redis.Redis(port=port) as client:
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)


def sync(port: int, when: str) -> None:
    """When the server syncs its file from now on: "always" (before it answers) or "everysec"."""
    with redis.Redis(port=port) as client:
        client.config_set("appendfsync", when)


def synced(port: int) -> str:
    """When the server syncs its file."""
    with redis.Redis(port=port, decode_responses=True) as client:
        return str(client.config_get("appendfsync")["appendfsync"])


def end(port: int, stream: str) -> int:
    """Return the number of messages of the stream; raise redis.RedisError while the server reads
    its file."""
    with redis.Redis(port=port) as client:
        return int(client.xlen(stream))


# ── redis-py ──────────────────────────────────────────────────────────────────────────────────────


def publish(port: int, stream: str, value: bytes, count: int, window: int, start: Start) -> Span:
    """Pipelines of `window` messages, one after the other."""
    client = redis.Redis(port=port)
    fields: dict[Any, Any] = {"v": value}
    client.xadd(stream, fields)
    watch = Stopwatch(start)
    for first in range(0, count, window):
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(window, count - first)):
            pipeline.xadd(stream, fields)
        pipeline.execute()
    span = watch.span()
    client.close()
    return span


def consume(port: int, stream: str, count: int, size: int, start: Start) -> Span:
    """Reads of at most `size`; the acknowledgement of one goes out with the next read."""
    client = redis.Redis(port=port)
    watch, seen = None, 0
    ids: list[bytes] = []
    while seen < count + 1:
        pipeline = client.pipeline(transaction=False)
        if ids:
            pipeline.xack(stream, GROUP, *ids)
        wanted = size if seen else 1
        pipeline.xreadgroup(GROUP, "c", {stream: ">"}, count=wanted, block=_BLOCK_MS)
        entries = _entries(pipeline.execute()[-1])
        ids = [each for each, _ in entries]
        seen += len(ids)
        if watch is None:
            watch = Stopwatch(start)
    client.xack(stream, GROUP, *ids)
    assert watch is not None
    span = watch.span()
    client.close()
    return span


def _entries(answer: Any) -> list[Any]:
    """[(id, fields), …] of an answer to XREADGROUP, whichever protocol version redis-py speaks."""
    if isinstance(answer, dict):
        (batches,) = answer.values()
        return [entry for batch in batches for entry in batch]
    ((_, entries),) = answer
    return list(entries)


def read(port: int, stream: str, count: int, size: int, start: Start) -> Span:
    """Reads of at most `size` from the beginning, without a group; found: how many were counted."""
    client = redis.Redis(port=port)
    last, seen = b"0", 0
    watch: Stopwatch | None = None
    while seen < count:
        wanted = size if seen else 1
        entries = _entries(client.xread({stream: last}, count=wanted, block=_BLOCK_MS))
        last = entries[-1][0]
        seen += len(entries)
        if watch is None:
            watch = Stopwatch(start)
    assert watch is not None
    span = watch.span(seen - 1)
    client.close()
    return span


def consume_singly(port: int, stream: str, count: int, workers: int, prefetch: int, start: Start) -> Span:
    """Consume in `workers` tasks with a connection each, which read their share of `prefetch` and
    wait for the XACK of each message before the next.
    """
    return uvloop.run(_consume_singly(port, stream, count, workers, prefetch, start))


async def _consume_singly(
    port: int, stream: str, count: int, workers: int, prefetch: int, start: Start
) -> Span:
    clients = [redis.asyncio.Redis(port=port, single_connection_client=True) for _ in range(workers)]
    for client in clients:
        await client.initialize()
    (first,) = _entries(await clients[0].xreadgroup(GROUP, "c0", {stream: ">"}, count=1, block=_BLOCK_MS))
    await clients[0].xack(stream, GROUP, first[0])
    watch, span = Stopwatch(start), None
    left = count

    async def work(number: int) -> None:
        nonlocal left, span
        client = clients[number]
        while left > 0:
            answer = await client.xreadgroup(
                GROUP, f"c{number}", {stream: ">"}, count=prefetch // workers, block=100
            )
            for each, _ in _entries(answer) if answer else ():
                await client.xack(stream, GROUP, each)
                left -= 1
                if left == 0:  # the others wait for more in vain for a while
                    span = watch.span()

    await asyncio.gather(*(work(number) for number in range(workers)))
    assert span is not None
    for client in clients:
        await client.aclose()
    return span


# ── bytes only ────────────────────────────────────────────────────────────────────────────────────


class Link:
    """A connection whose commands are bytes; blocking."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def answer(self) -> Any:
        """The next one; waits for it."""
        while (answer := self._reader.gets()) is False:
            data = self.socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionError("Redis closed the connection")
            self._reader.feed(data)
        if isinstance(answer, hiredis.ReplyError):
            raise answer
        return answer

    def answers(self, count: int) -> None:
        """Wait for this many."""
        for _ in range(count):
            self.answer()

    def close(self) -> None:
        self.socket.close()


_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


def _read(stream: str, size: int) -> bytes:
    return _pack(
        ("XREADGROUP", "GROUP", GROUP, "c", "COUNT", size, "BLOCK", _BLOCK_MS, "STREAMS", stream, ">")
    )


def publish_bytes(port: int, stream: str, value: bytes, count: int, window: int, start: Start) -> Span:
    """Two pieces of `window` messages under way."""
    link = Link(port)
    command = _pack(("XADD", stream, "*", "v", value))
    link.socket.sendall(command)
    link.answer()
    watch = Stopwatch(start)
    sent = answered = 0
    while answered < count:
        number = min(window, count - sent)
        if number:
            link.socket.sendall(command * number)
            sent += number
        if sent - answered >= 2 * window or sent == count:
            number = min(window, count - answered)
            link.answers(number)
            answered += number
    span = watch.span()
    link.close()
    return span


def consume_bytes(port: int, stream: str, count: int, size: int, start: Start) -> Span:
    """As `consume`."""
    link = Link(port)
    link.socket.sendall(_read(stream, 1))
    read = _read(stream, size)
    ids = [each[0] for each in link.answer()[0][1]]
    watch = Stopwatch(start)
    seen = len(ids)
    while seen < count + 1:
        link.socket.sendall(_pack(("XACK", stream, GROUP, *ids)) + read)
        link.answer()
        ids = [each[0] for each in link.answer()[0][1]]
        seen += len(ids)
    link.socket.sendall(_pack(("XACK", stream, GROUP, *ids)))
    link.answer()
    span = watch.span()
    link.close()
    return span


def read_bytes(port: int, stream: str, count: int, size: int, start: Start) -> Span:
    """As `read`."""
    link = Link(port)
    last, seen = b"0", 0
    watch: Stopwatch | None = None
    while seen < count:
        wanted = size if seen else 1
        link.socket.sendall(_pack(("XREAD", "COUNT", wanted, "BLOCK", _BLOCK_MS, "STREAMS", stream, last)))
        entries = link.answer()[0][1]
        last = entries[-1][0]
        seen += len(entries)
        if watch is None:
            watch = Stopwatch(start)
    assert watch is not None
    span = watch.span(seen - 1)
    link.close()
    return span


def publish_at_rate(port: int, stream: str, rate: int, count: int, start: Start) -> Span:
    """One message of 100 B after the other, each when it is due."""
    link = Link(port)
    link.socket.sendall(_pack(("XADD", stream, "*", "v", stamped(0, 100))))
    link.answer()
    watch = Stopwatch(start)
    for due in due_times(watch.began, rate, count):
        link.socket.sendall(_pack(("XADD", stream, "*", "v", stamped(due, 100))))
    link.answers(count)
    span = watch.span()
    link.close()
    return span


def work_late(port: int, stream: str, count: int, start: Start) -> Span:
    """Looks how late each message is; its XACK goes out with the next read; found: the latencies in
    seconds.
    """
    client = redis.Redis(port=port)
    times: list[float] = []
    watch: Stopwatch | None = None
    ids: list[bytes] = []
    while len(times) < count + 1:
        pipeline = client.pipeline(transaction=False)
        if ids:
            pipeline.xack(stream, GROUP, *ids)
        pipeline.xreadgroup(GROUP, "c", {stream: ">"}, count=100, block=_BLOCK_MS)
        entries = _entries(pipeline.execute()[-1])
        times += [late_s(fields[b"v"]) for _, fields in entries]
        ids = [each for each, _ in entries]
        if watch is None:
            watch = Stopwatch(start)
    client.xack(stream, GROUP, *ids)
    assert watch is not None
    span = watch.span(times[1:])
    client.close()
    return span


def read_late(port: int, stream: str, count: int, start: Start) -> Span:
    """Looks how late each message is, without a group; found: the latencies in seconds."""
    client = redis.Redis(port=port)
    times: list[float] = []
    watch: Stopwatch | None = None
    last = b"0"
    while len(times) < count + 1:
        entries = _entries(client.xread({stream: last}, count=100, block=_BLOCK_MS))
        times += [late_s(fields[b"v"]) for _, fields in entries]
        last = entries[-1][0]
        if watch is None:
            watch = Stopwatch(start)
    assert watch is not None
    span = watch.span(times[1:])
    client.close()
    return span
