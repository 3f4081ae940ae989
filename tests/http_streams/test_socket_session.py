"""The session of a socket: its principal, how long it may be silent, and how it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import websockets
from websockets.exceptions import InvalidStatus

from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http.sockets import connection, sockets
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_streams.conftest import DEADLINE_S, socket_to

TOKENS = {"alice": "secret"}


async def refused(port: int, query: str = "", path: str = "/v1/ws", **headers: str) -> int:
    """Return the status with which a handshake is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        async with websockets.connect(f"ws://127.0.0.1:{port}{path}{query}", additional_headers=headers):
            pass
    return refusal.value.response.status_code


# ── who it is ─────────────────────────────────────────────────────────────────────────────────────


async def test_where_nobody_logs_in_a_socket_needs_no_hello(http: Http) -> None:
    async with socket_to(http.port) as socket:
        assert (await socket.ask("ping", "pong", id="x"))["id"] == "x"


async def test_credentials_in_the_handshake(make_http: MakeHttp) -> None:
    http = await make_http(tokens=TOKENS)
    for given in ({"query": "?access_token=secret"}, {"authorization": "Bearer secret"}):
        async with socket_to(http.port, **given) as socket:
            await socket.ask("ping", "pong")
            assert await socket.refused("hello", token="secret") == "INVALID_ARGUMENT"


async def test_wrong_credentials_in_the_handshake_are_refused_before_it_opens(make_http: MakeHttp) -> None:
    http = await make_http(tokens=TOKENS)
    assert await refused(http.port, "?access_token=wrong") == 401
    assert await refused(http.port, authorization="Bearer wrong") == 401


async def test_hello_logs_in_and_later_messages_wait(make_http: MakeHttp) -> None:
    config = BrokerConfig(allow_unnamed_resources=True)
    http = await make_http(users={"bob": "pass word"}, config=config)
    async with socket_to(http.port) as socket:
        await socket.send("hello", id="h", user="bob", password="pass word")
        await socket.send("publish", topic="t", message={"value": "x"})
        await socket.send("ping")
        welcome = await socket.expect("welcome")
        assert (welcome["id"], welcome["principal"]) == ("h", "User:bob")
        assert {(await socket.next())["type"] for _ in range(2)} == {"published", "pong"}


STRANGERS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "hello", "token": "wrong"}, "NOT_AUTHENTICATED"),
    ({"kind": "hello", "user": "bob", "password": "wrong"}, "NOT_AUTHENTICATED"),
    ({"kind": "hello"}, "INVALID_ARGUMENT"),
    ({"kind": "hello", "token": "a", "user": "b"}, "INVALID_ARGUMENT"),
    ({"kind": "ping"}, "NOT_AUTHENTICATED"),
    ({"kind": "publish", "topic": "t", "message": {"value": "x"}}, "NOT_AUTHENTICATED"),
    ({"kind": "nonsense"}, "INVALID_ARGUMENT"),
]


async def test_a_client_that_does_not_log_in_is_refused_and_disconnected(make_http: MakeHttp) -> None:
    http = await make_http(tokens=TOKENS)
    for frame, code in STRANGERS:
        async with socket_to(http.port) as socket:
            await socket.send(**frame)
            await socket.send("publish", topic="t", message={"value": "after it"})
            assert (await socket.expect("error"))["error"]["code"] == code, frame
            assert await socket.closed() == 1008
    assert http.broker.parts.topic_registry.find("t") is None


async def test_silent_client_is_disconnected_after_a_timeout(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "HELLO_S", 0.0)
    http = await make_http(tokens=TOKENS, sweep_interval_ms=10)
    async with socket_to(http.port) as socket:
        assert await socket.closed() == 1008


async def test_a_page_of_another_origin_is_refused(make_http: MakeHttp) -> None:
    http = await make_http(cors_origins=("https://good.example",))
    assert await refused(http.port, origin="https://evil.example") == 403
    async with socket_to(http.port, origin="https://good.example") as socket:
        await socket.ask("ping", "pong")


async def test_a_socket_elsewhere_is_not_found(http: Http) -> None:
    assert await refused(http.port, path="/v1/other") == 404


async def test_no_compression_is_agreed_on_as_it_would_cost_memory_for_each_socket(http: Http) -> None:
    async with websockets.connect(f"ws://127.0.0.1:{http.port}/v1/ws") as connection:
        assert connection.response is not None
        assert "sec-websocket-extensions" not in connection.response.headers


# ── silence ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_silent_client_is_pinged_and_stays_when_it_answers(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_AFTER_S", 0.0)
    http = await make_http(sweep_interval_ms=5)
    async with socket_to(http.port) as socket:
        await asyncio.sleep(0.1)
        await socket.ask("ping", "pong")


async def test_a_client_that_answers_no_ping_is_given_up(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_AFTER_S", 0.0)
    monkeypatch.setattr(sockets, "SILENT_S", 0.02)
    http = await make_http(sweep_interval_ms=5)
    async with socket_to(http.port) as socket:
        socket.connection.transport.pause_reading()
        await gone(http)
        socket.connection.transport.abort()


async def gone(http: Http) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while http.frontend.connections:
            await asyncio.sleep(0.002)


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────


async def test_drain_sends_due_responses_and_a_goodbye(http: Http) -> None:
    async with socket_to(http.port) as socket:
        await socket.ask("publish", "published", topic="t", message={"value": "x"})
        for number in range(20):
            await socket.send("publish", id=number, topic="t", message={"value": "x"})
        first = await socket.expect("published")
        draining = asyncio.create_task(http.frontend.drain(DEADLINE_S))
        rest = [json.loads(text)["id"] async for text in socket.connection]
        assert await socket.closed() == 1001
        answered = [first["id"], *rest]
        assert answered == list(range(len(answered)))
        await draining
    assert http.broker.parts.topic_registry.get("t").partition(0).visible_end >= 1 + len(answered)


async def test_while_it_drains_the_frontend_opens_no_sockets(http: Http) -> None:
    async with socket_to(http.port):
        draining = asyncio.create_task(http.frontend.drain(0.2))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", http.port)
    await draining
