"""A client of Syncbrok, written from its wire format alone."""

from __future__ import annotations

import re

from tests.seeds.listeners import Wire

Answer = tuple[int, dict[str, str], bytes]
UUID = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def request(
    path: str, body: bytes = b"", *, method: str = "POST", version: str = "1.1", **headers: str
) -> bytes:
    """Return the bytes of a request; `_` in a header name becomes `-`."""
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost:10000"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "Transfer_Encoding" not in headers and "Content_Length" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class SyncbrokClient:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @classmethod
    async def connect(cls, port: int) -> SyncbrokClient:
        return cls(await Wire.open(port))

    async def queue(self, name: str) -> bytes:
        return await self._accepted(request("/queue", queue=name))

    async def subscribe(self, queue: str, url: str) -> bytes:
        return await self._accepted(request("/subscrib", queue=queue, endpoint=url))

    async def publish(self, queue: str, content: bytes, parent: str = "") -> str:
        headers = {"ParentId": parent} if parent else {}
        response = await self._accepted(request("/msg", content, queue=queue, **headers))
        assert re.fullmatch(UUID, response), response
        return response.decode()

    async def ask(self, data: bytes) -> Answer:
        self.wire.send(data)
        return await self.read()

    async def read(self) -> Answer:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await self.wire.read(1)
        first, *lines = head.decode().rstrip("\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), headers, await self.wire.read(int(headers["Content-Length"]))

    async def _accepted(self, data: bytes) -> bytes:
        status, _, body = await self.ask(data)
        assert status == 200, body
        return body
