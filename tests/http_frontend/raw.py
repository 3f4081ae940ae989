"""A client that sends exactly the given bytes, and reads responses byte by byte."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

DEADLINE_S = 10.0


@dataclass(frozen=True)
class Response:
    """Status, headers (names in lower case, the last of a name), body; `pairs` has all headers."""

    status: int
    headers: dict[str, str]
    body: bytes
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Return the code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        found: str = self.json["code"]
        return found


class Raw:
    """One connection: `async with Raw(port) as raw`."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        name = None if self._tls is None else "localhost"
        async with asyncio.timeout(DEADLINE_S):
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._tls, server_hostname=name
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        """Send one request on this connection, and return its response."""
        self.send(request(method, path, body, headers))
        return await self.response(has_body=method != "HEAD")

    async def response(self, *, has_body: bool = True) -> Response:
        """Return the next response."""
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status_line, *lines = head[:-4].decode("latin-1").split("\r\n")
            status = int(status_line.split()[1])
            pairs = tuple((name.lower(), value) for name, value in (line.split(": ", 1) for line in lines))
            headers = dict(pairs)
            if status == 100 or status == 204 or not has_body:
                body = b""
            elif headers.get("transfer-encoding") == "chunked":
                body = await self._chunks()
            else:
                body = await self.reader.readexactly(int(headers["content-length"]))
            return Response(status, headers, body, pairs)

    async def _chunks(self) -> bytes:
        whole = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            whole += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return whole

    async def ended(self) -> bytes:
        """Return everything that arrives until the broker closes the connection."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


def request(
    method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> bytes:
    """Return the bytes of a request with `Content-Length`."""
    all_headers = {"Host": "127.0.0.1", **(headers or {})}
    if body is not None:
        all_headers["Content-Length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + (body or b"")


async def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Response:
    """Send one request on a connection of its own."""
    async with Raw(port, tls) as raw:
        return await raw.ask(method, path, body, headers)
