"""Headers that every response has, and that no GET changes anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http_admin.test_http_rights import CALLS, OPEN, path_of
from tests.http_frontend.conftest import Http, MakeHttp

EXPECTED = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "frame-ancestors 'none'",
    "cache-control": "no-store",
}
CROSS = {"Sec-Fetch-Site": "cross-site"}


def assert_guarded(headers: Any, what: object) -> None:
    found = {name.lower(): value for name, value in headers.items()}
    for name, value in EXPECTED.items():
        assert value in found.get(name, ""), (what, name, found)


async def raw_head(port: int, request: bytes) -> dict[str, str]:
    """Return the headers of the response to these bytes; fail on a header that comes twice."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    writer.close()
    lines = [line.partition(": ") for line in head.split("\r\n")[1:] if line]
    names = [name.lower() for name, _, _ in lines]
    assert all(names.count(name) == 1 for name in EXPECTED), head
    return {name.lower(): value for name, _, value in lines}


async def test_every_route_answers_with_them(http: Http) -> None:
    for method, template in sorted(CALLS.keys() | OPEN):
        if template.endswith("/stream"):
            continue
        response = await http.ask(method, path_of(template), b"" if method != "GET" else None)
        assert_guarded(response.headers, (method, template, response.status))


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/docs/swagger-ui.css", "/no/such/page"])
async def test_pages_and_missing_pages_have_them(http: Http, path: str) -> None:
    assert_guarded((await http.get(path)).headers, path)


@pytest.mark.parametrize(
    "request_head",
    [
        b"this is no request\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n%b\r\n"
        % b"Origin: https://a.example\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        b"AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        (
            b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nOrigin: "
            b"https://a.example\r\nContent-Length: 0\r\n\r\n"
        ),
        b"DELETE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"OPTIONS /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_refusals_have_them_too(http: Http, request_head: bytes) -> None:
    assert_guarded(await raw_head(http.port, request_head), request_head[:40])


async def test_streams_and_refused_logins_have_them(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"robot": "t0ken"})
    await http.broker.topics.create("t")
    assert_guarded((await http.get("/v1/topics")).headers, "401")
    stream = b"GET /v1/topics/t/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t0ken\r\n\r\n"
    assert_guarded(await raw_head(http.port, stream), "stream")


async def test_no_get_makes_anything(http: Http) -> None:
    for method, template in CALLS:
        if method != "GET":
            continue
        for asked in ("GET", "HEAD"):
            response = await http.ask(asked, path_of(template), headers=CROSS)
            assert response.status < 500, (template, response)
    assert len(http.broker.parts.topic_registry) == 0
    assert http.broker.groups.listing() == []
    assert http.broker.queues.listing() == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_site_that_says_no_origin_may_not_write(http: Http, site: str) -> None:
    response = await http.ask("POST", "/v1/topics/orders/messages", b"a", headers={"Sec-Fetch-Site": site})
    assert (response.status, response.code) == (403, "ORIGIN_REFUSED")
    assert http.broker.parts.topic_registry.find("orders") is None


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_a_page_of_the_broker_itself_and_a_person_may(http: Http, site: str) -> None:
    response = await http.ask("POST", "/v1/topics/orders/messages", b"a", headers={"Sec-Fetch-Site": site})
    assert response.status == 200
