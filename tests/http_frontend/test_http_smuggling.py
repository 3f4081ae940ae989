"""Requests that two readers might parse differently: a proxy before the broker must not see another
request than the broker does.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.http_codec.corpus import AMBIGUOUS
from tests.http_frontend.conftest import Http
from tests.http_frontend.raw import Raw, request

PUBLISH = "/v1/topics/orders/messages"
POST = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n" % PUBLISH.encode()


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_ambiguous_requests_are_refused_and_end_the_connection(http: Http, name: str) -> None:
    async with Raw(http.port) as raw:
        raw.send(AMBIGUOUS[name] + request("GET", "/healthz"))
        response = await raw.response()
        assert (response.status, response.code) == (400, "MALFORMED_REQUEST")
        assert response.headers["connection"] == "close"
        assert await raw.ended() == b""
    assert http.broker.parts.topic_registry.find("orders") is None


async def test_ambiguous_requests_in_small_packets_are_refused(http: Http) -> None:
    """The codec's own tests have all divisions; this one has packets."""
    for sent in AMBIGUOUS.values():
        async with Raw(http.port) as raw:
            for at in range(0, len(sent), 40):
                raw.send(sent[at : at + 40])
                await asyncio.sleep(0)
            assert (await raw.response()).code == "MALFORMED_REQUEST"
            assert await raw.ended() == b""


async def test_a_body_in_a_coding_that_nobody_undoes_is_refused(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
        assert (await raw.response()).code == "UNSUPPORTED_MEDIA_TYPE"


async def test_trailers_are_no_headers(http: Http) -> None:
    trailers = b"Sparrow-Key: k\r\nIdempotency-Key: a\r\nHost: evil.example\r\nAuthorization: Bearer x\r\n"
    async with Raw(http.port) as raw:
        raw.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + trailers + b"\r\n")
        assert (await raw.response()).status == 200
        page = await raw.ask("GET", PUBLISH)
    assert [(each["key"], each["headers"]) for each in page.json["messages"]] == [(None, [])]


async def test_a_client_of_http_1_0_gets_a_stream_without_chunks(http: Http) -> None:
    await http.post(PUBLISH, b"a")
    async with Raw(http.port) as raw:
        raw.send(b"GET /v1/topics/orders/stream?from=beginning HTTP/1.0\r\n\r\n")
        head = await raw.reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert (await raw.reader.readuntil(b"\n\n")).startswith(b"retry: ")
        assert (await raw.reader.readuntil(b"\n\n")).startswith(b"data: ")
        await http.frontend.drain(1)
        assert b"event: error" in await raw.ended()


async def test_a_request_without_upgrade_is_refused_with_a_hint(http: Http) -> None:
    response = await http.get("/v1/ws")
    assert (response.status, response.code, response.headers["upgrade"]) == (
        426,
        "UPGRADE_REQUIRED",
        "websocket",
    )
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    response = await http.ask("GET", "/v1/ws", b"abc", handshake)
    assert (response.status, response.code) == (400, "MALFORMED_REQUEST"), "a handshake has no body"
