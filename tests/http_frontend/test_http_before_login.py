"""Memory that the HTTP listener uses for clients that have not logged in."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import Any

import pytest

from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http import before_login
from sparrow.frontends.http.connection import HttpConnection
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request

USERS = {"ann": "correct horse"}
OPEN = BrokerConfig(allow_unnamed_resources=True)
RIGHT = {"Authorization": "Basic " + base64.b64encode(b"ann:correct horse").decode()}
WRONG = {"Authorization": "Basic " + base64.b64encode(b"ann:wrong").decode()}
SECONDS = 20


def large(size_bytes: int) -> dict[str, str]:
    return {"X-Padding": "a" * size_bytes}


def only_connection(http: Http) -> HttpConnection:
    (connection,) = http.frontend.open_connections
    assert isinstance(connection, HttpConnection)
    return connection


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("where", ["value", "name", "path", "count"])
@pytest.mark.parametrize("credentials", [{}, RIGHT], ids=["without credentials", "with credentials"])
async def test_a_head_has_16_KiB_before_the_login(
    make_http: MakeHttp, where: str, credentials: dict[str, str]
) -> None:
    http = await make_http(users=USERS, config=OPEN)
    headers = {
        "value": large(17_000),
        "name": {"X-" + "a" * 17_000: "b"},
        "path": {},
        "count": {f"X-{n}": "b" * 90 for n in range(180)},
    }[where]
    path = "/v1/topics" + ("?" + "a" * 17_000 if where == "path" else "")
    async with Raw(http.port) as raw:
        response = await raw.ask("GET", path, headers={**headers, **credentials})
        assert (response.status, response.code) == (431, "HEAD_TOO_LARGE")
        assert "16384 bytes, which is the limit before the login" in response.json["detail"]
        assert await raw.ended() == b""


async def test_a_head_that_does_not_end_is_refused_at_16_KiB(make_http: MakeHttp) -> None:
    http = await make_http(users=USERS)
    async with Raw(http.port) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: ")
        for _ in range(17):
            raw.send(b"a" * 1024)
            await asyncio.sleep(0.005)
        assert (await raw.response()).status == 431


async def test_a_larger_head_is_taken_after_the_login_and_where_nobody_logs_in(make_http: MakeHttp) -> None:
    http = await make_http(users=USERS, config=OPEN)
    async with Raw(http.port) as raw:
        assert (await raw.ask("GET", "/healthz")).status == 200  # has no credentials
        assert (await raw.ask("GET", "/v1/topics", headers=RIGHT)).status == 200
        assert (await raw.ask("GET", "/v1/topics", headers={**RIGHT, **large(60_000)})).status == 200
        assert (await raw.ask("GET", "/v1/topics", headers={**RIGHT, **large(66_000)})).status == 431
    open_http = await make_http()
    async with Raw(open_http.port) as raw:
        assert (await raw.ask("GET", "/v1/topics", headers=large(60_000))).status == 200


async def test_requests_that_wait_for_the_first_login_share_the_16_KiB(make_http: MakeHttp) -> None:
    http = await make_http(users=USERS, failed_login_delay_ms=300)
    async with Raw(http.port) as raw:
        raw.send(request("GET", "/v1/topics", headers={**WRONG, **large(9_000)}) * 2)
        assert (await raw.response()).status == 401  # the connection ends with it
        assert await raw.ended() == b""
    async with Raw(http.port) as raw:
        raw.send(request("GET", "/v1/topics", headers=RIGHT) * (16 + 1))
        responses = [await raw.response() for _ in range(16 + 1)]
        assert {each.status for each in responses} == {200}


async def test_the_limit_of_a_head_does_not_count_the_body_behind_it(make_http: MakeHttp) -> None:
    http = await make_http(users=USERS, config=OPEN)
    whole = request("POST", "/v1/topics/t/messages", b'{"value":"%b"}' % (b"a" * 100_000), RIGHT)
    async with Raw(http.port) as raw:
        for start, end in ((0, 40), (40, len(whole))):
            raw.send(whole[start:end])
            await asyncio.sleep(0.05)
        assert (await raw.response()).status == 200


async def test_the_body_of_a_request_is_not_read_before_its_login(make_http: MakeHttp) -> None:
    http = await make_http(users=USERS, failed_login_delay_ms=2_000)
    head = request("POST", "/v1/topics/t/messages", None, {**WRONG, "Content-Length": str(16 << 20)})
    async with Raw(http.port) as raw:
        raw.send(head)
        await until(lambda: http.frontend.connections and only_connection(http).has_work)
        connection = only_connection(http)
        (exchange,) = connection._requests
        raw.send(bytes(16 << 20))
        await until(lambda: connection.is_paused_by_us)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert connection.is_paused_by_us
        assert exchange.body_bytes <= 256 << 10  # one read of the loop
        with suppress(ConnectionError):
            assert (await raw.response()).status == 401
    await until(lambda: not http.frontend.connections)
    assert http.frontend.login_budget.reserved_bytes == http.frontend.receive_budget.reserved_bytes == 0


async def test_bodies_before_their_logins_share_a_budget(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_login, "BUDGET_BYTES", 50_000)
    http = await make_http(users=USERS, config=OPEN)
    body = b'{"value":"%b"}' % (b"a" * 60_000)
    assert http.frontend.login_budget.reserve(40_000, lambda: None)  # memory of other connections
    async with Raw(http.port) as raw:
        response = await raw.ask("POST", "/v1/topics/t/messages", body, RIGHT)
        assert (response.status, response.code) == (503, "OVERLOADED")
    async with Raw(http.port) as raw:
        assert (await raw.ask("GET", "/v1/topics", headers=RIGHT)).status == 200
        assert (await raw.ask("POST", "/v1/topics/t/messages", body, RIGHT)).status == 200
    http.frontend.login_budget.release(40_000)
    async with Raw(http.port) as raw:
        assert (await raw.ask("POST", "/v1/topics/t/messages", body, RIGHT)).status == 200
    assert http.frontend.login_budget.reserved_bytes == 0
