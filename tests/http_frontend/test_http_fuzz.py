"""Damaged requests: the frontend responds or disconnects, meets no bug and keeps no memory."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from contextlib import suppress

import pytest

from tests.http_frontend.conftest import MakeHttp
from tests.http_frontend.raw import request

PATH = "/v1/topics/a/messages"
MANY = {
    "messages": [{"value": "a", "headers": {"x": "y"}, "priority": 3}, {"value_base64": "AA==", "key": "k"}]
}
LINES = b'{"value":"x"}\n{"key":"k","headers":[["a",{"base64":"AA=="}]]}'
SOUND = (
    request(
        "POST", PATH, b"abc", {"Sparrow-Key": "k", "Sparrow-Delay-Ms": "10", "Content-Type": "text/plain"}
    ),
    request(
        "POST",
        f"{PATH}?acks=leader&partition=0",
        json.dumps(MANY).encode(),
        {"Content-Type": "application/json"},
    ),
    request("POST", PATH, LINES, {"Content-Type": "application/x-ndjson", "Idempotency-Key": "k1"}),
    request("GET", f"{PATH}?from=0:1&limit=3&wait_ms=1&max_bytes=100"),
    request("GET", f"{PATH}/0/0"),
    request("HEAD", PATH),
    request("GET", "/v1/broker"),
    request("PUT", "/v1/queues/q", b'{"topics":["a"]}', {"Content-Type": "application/json"}),
    request("POST", PATH, None, {"Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n0\r\n\r\n",
    request("POST", PATH, b"abc", {"Connection": "Upgrade", "Upgrade": "h2c"}),
)
PIECES = (
    *(
        b"\r\n",
        b": ",
        b"%",
        b"%00",
        b"&",
        b"=",
        b"{",
        b"[",
        b'"',
        b"\\ud800",
        b"99999999999999999999",
        b"-1",
        b"\xff",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\n",
    ),
)


def damaged(chance: random.Random, sound: bytes) -> bytes:
    data = bytearray(sound)
    for _ in range(chance.choice((0, 1, 2, 4, 10))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                data[place:place] = bytes([chance.randrange(256)]) * chance.choice((1, 2, 50, 3000))
            case 2:
                del data[place : place + chance.choice((1, 2, 10))]
            case 3:
                data[place:place] = chance.choice(PIECES)
            case _:
                del data[place:]
    return bytes(data)


async def send(port: int, chance: random.Random) -> bytes:
    """Send damaged requests on one connection, and return the responses."""
    data = b"".join(damaged(chance, chance.choice(SOUND)) for _ in range(chance.choice((1, 1, 2, 5))))
    size = len(data) // chance.choice((1, 2, 7)) + 1
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answered = b""
    with suppress(ConnectionError, TimeoutError):
        for start in range(0, len(data), size):
            if writer.transport.is_closing():
                break
            writer.write(data[start : start + size])
            await asyncio.sleep(0)
        async with asyncio.timeout(chance.choice((0.01, 0.05))):
            answered = await reader.read(1 << 20)
    writer.close()
    return answered


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_damaged_requests_meet_no_bug(
    make_http: MakeHttp, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    http = await make_http(
        max_head_bytes=4096, max_body_bytes=100_000, body_timeout_ms=200, sweep_interval_ms=20
    )
    with caplog.at_level(logging.ERROR):
        for _ in range(12):
            for answered in await asyncio.gather(*(send(http.port, chance) for _ in range(20))):
                assert not re.search(rb"^HTTP/1.1 500", answered, re.MULTILINE)
    async with asyncio.timeout(10):
        while http.frontend.connections:
            await asyncio.sleep(0.01)
    assert not caplog.records
    assert http.frontend.receive_budget.reserved_bytes == http.frontend.receive_budget.waiting == 0
    assert (await http.get("/healthz")).status == 200
