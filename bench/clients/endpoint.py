"""A webhook endpoint that only counts: reads requests, answers 204 to each. What is measured is the
broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvloop

from bench.together import Stopwatch

if TYPE_CHECKING:
    from bench.together import Span, Start

_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
_LENGTH = b"content-length: "


class _Endpoint(asyncio.Protocol):
    def __init__(self, counter: _Counter) -> None:
        self._counter = counter
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self._received) < end + 4 + length:
                return
            self._received = self._received[end + 4 + length :]
            self._transport.write(_ANSWER)
            self._counter.add()


class _Counter:
    """Done when this many requests came."""

    def __init__(self, expected: int, done: asyncio.Future[None]) -> None:
        self._left = expected
        self._done = done

    def add(self) -> None:
        self._left -= 1
        if not self._left:
            self._done.set_result(None)


async def _take(port: int, count: int, start: Start) -> Span:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    counter = _Counter(count, done)
    server = await loop.create_server(lambda: _Endpoint(counter), "127.0.0.1", port, backlog=1024)
    watch = Stopwatch(start)
    async with server, asyncio.timeout(200):
        await done
        await asyncio.sleep(0.05)  # the last answer leaves
    return watch.span()


def take(port: int, count: int, start: Start) -> Span:
    """Listen on the port until this many requests came."""
    return uvloop.run(_take(port, count, start))
