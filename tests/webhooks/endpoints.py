"""An HTTP endpoint on a real socket: it stores requests, and responds as the test says."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Got:
    """A request. Names of headers are in lower case; repeated headers have all their values, in
    order.
    """

    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name: str) -> str:
        return next(value for each, value in self.headers if each == name)

    def get(self, name: str) -> str | None:
        return next((value for each, value in self.headers if each == name), None)

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


EndpointResponse = bytes | Callable[[Got], "bytes | Awaitable[bytes | None] | None"]
"""The bytes of a response, or a function from a request to them; None: close the connection."""


def http_response(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class EndpointServer:
    """The endpoint as an async context manager."""

    def __init__(
        self,
        responses: EndpointResponse | Iterable[EndpointResponse] = b"",
        *,
        hangs_up: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create the server. `hangs_up`: close the connection after each response."""
        self._hangs_up = hangs_up
        self.got: list[Got] = []
        self.responses = (
            [responses] if isinstance(responses, bytes) or callable(responses) else list(responses)
        )
        """One response for each request; the last one for all that follow."""
        self.connections = 0
        self.at_a_time = 0
        self.most_at_a_time = 0
        self._tls = tls
        self._came = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.got]

    async def until(self, count: int, timeout_s: float = 10) -> list[Got]:
        """Wait until `count` requests were received."""
        async with asyncio.timeout(timeout_s):
            while len(self.got) < count:
                self._came.clear()
                await self._came.wait()
        return self.got

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while (got := await _read(reader)) is not None:
                self.at_a_time += 1
                self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
                self.got.append(got)
                self._came.set()
                said = self.responses[0] if len(self.responses) == 1 else self.responses.pop(0)
                made = said(got) if callable(said) else said or http_response()
                if isinstance(made, Awaitable):
                    made = await made
                self.at_a_time -= 1
                if made is None:
                    break
                writer.write(made)
                await writer.drain()
                if self._hangs_up:
                    writer.close()
                    await writer.wait_closed()
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Got | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode().rstrip("\r\n").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = int(next((value for name, value in headers if name == "content-length"), "0"))
    return Got(first.split(" ")[1], headers, await reader.readexactly(length))
