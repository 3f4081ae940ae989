"""The HTTP listener of a standby: health, redirects, and peers that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.server import standby
from sparrow.server.standby import StandbyListener

OWNER = "http://owner.lan:9095"


class Site:
    def __init__(self) -> None:
        self.owner = OWNER
        self.listener = StandbyListener(lambda: self.owner)
        self.port = 0

    async def send(self, data: bytes) -> bytes:
        """Send bytes; return what comes until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        async with asyncio.timeout(10):
            found = await reader.read()
        writer.close()
        return found


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.port = await site.listener.open("127.0.0.1", 0, None)
    yield site
    await site.listener.close()
    await site.listener.close()


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (b"GET /healthz HTTP/1.1", b"200 OK", b"alive"),
        (b"GET /readyz HTTP/1.1", b"503 Service Unavailable", b"stands by"),
        (b"GET /metrics HTTP/1.0", b"503 Service Unavailable", b"stands by"),
        (
            b"POST /v1/topics?a=b HTTP/1.1",
            b"307 Temporary Redirect",
            b"Location: http://owner.lan:9095/v1/topics?a=b\r\n",
        ),
        (b"GET /a\rSet-Cookie: x HTTP/1.1", b"400 Bad Request", b"bad request"),
        (b"GET http://elsewhere/ HTTP/1.1", b"400 Bad Request", b"bad request"),
        (
            b"GET //elsewhere/ HTTP/1.1",
            b"307 Temporary Redirect",
            b"Location: http://owner.lan:9095//elsewhere/\r\n",
        ),
        (b"GET / HTTP/2.0", b"400 Bad Request", b"bad request"),
        (b"\x16\x03\x01\x02", b"400 Bad Request", b"bad request"),
    ],
)
async def test_each_request_has_its_response(site: Site, line: bytes, status: bytes, words: bytes) -> None:
    found = await site.send(line + b"\r\nHost: x\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert words in found
    assert b"Connection: close\r\n" in found
    assert b"\nSet-Cookie" not in found


async def test_without_an_owner_clients_are_asked_to_wait(site: Site) -> None:
    site.owner = ""
    found = await site.send(b"GET /v1/topics HTTP/1.1\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in found


async def test_a_client_with_a_body_gets_its_response(site: Site) -> None:
    head = b"POST /v1/topics HTTP/1.1\r\nContent-Length: 500000\r\n\r\n"
    assert (await site.send(head + bytes(500_000))).startswith(b"HTTP/1.1 307 ")


async def test_heads_without_an_end_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "HEAD_TIMEOUT_S", 0.05)
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n", b"G" * 100_000, b""):
        try:
            assert await site.send(data) == b""
        except ConnectionError:
            continue
    many = b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n"
    assert (await site.send(many)).startswith(b"HTTP/1.1 400 ")


async def test_connections_are_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "MAX_CONNECTIONS", 2)
    opened = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(3)]
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert await opened[2][0].read() == b""
    for _, writer in opened:
        writer.close()


async def test_an_address_in_use_is_refused_in_words(site: Site) -> None:
    with pytest.raises(InvalidConfig, match="cannot listen on"):
        await StandbyListener(lambda: "").open("127.0.0.1", site.port, None)
