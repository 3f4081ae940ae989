"""Memory that a WebSocket uses for clients that have not logged in."""

from __future__ import annotations

import json

import pytest

from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http import before_login
from tests.http_frontend.conftest import MakeHttp
from tests.http_streams.conftest import socket_to

OPEN = BrokerConfig(allow_unnamed_resources=True)
TOKENS = {"alice": "secret"}
LARGE = "a" * 20_000


async def test_a_message_has_16_KiB_before_the_login(make_http: MakeHttp) -> None:
    http = await make_http(tokens=TOKENS, config=OPEN)
    async with socket_to(http.port) as socket:
        await socket.send("hello", token="secret", id=LARGE)
        assert await socket.closed() == 1009
    assert http.frontend.receive_budget.reserved_bytes == http.frontend.login_budget.reserved_bytes == 0


@pytest.mark.parametrize("by", ["hello", "header", "nothing"])
async def test_large_messages_are_taken_after_the_login_and_where_nobody_logs_in(
    make_http: MakeHttp, by: str
) -> None:
    http = await make_http(tokens={} if by == "nothing" else TOKENS, config=OPEN)
    headers = {"authorization": "Bearer secret"} if by == "header" else {}
    async with socket_to(http.port, **headers) as socket:
        if by == "hello":
            await socket.ask("hello", "welcome", token="secret")
        await socket.ask("publish", "published", topic="t", messages=[{"value": LARGE * 50}], id=1)


@pytest.mark.parametrize("others_bytes", [0, 100_000])
async def test_frames_that_follow_a_hello_at_once_share_a_budget(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch, others_bytes: int
) -> None:
    monkeypatch.setattr(before_login, "BUDGET_BYTES", 100_000)
    http = await make_http(tokens=TOKENS, config=OPEN)
    if others_bytes:
        assert http.frontend.login_budget.reserve(others_bytes, lambda: None)
    async with socket_to(http.port) as socket:
        protocol = socket.connection.protocol
        protocol.send_text(json.dumps({"type": "hello", "token": "secret"}).encode())
        for number in range(5):
            frame = {"type": "publish", "topic": "t", "messages": [{"value": LARGE[:10_000]}], "id": number}
            protocol.send_text(json.dumps(frame).encode())
        socket.connection.transport.write(b"".join(protocol.data_to_send()))
        if others_bytes:
            assert await socket.closed() == 1013
        else:
            await socket.expect("welcome")
            assert {(await socket.expect("published"))["id"] for _ in range(5)} == {0, 1, 2, 3, 4}
    assert http.frontend.login_budget.reserved_bytes == others_bytes
