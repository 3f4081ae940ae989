"""WebSockets byte by byte: invalid handshakes, frames and messages, and those that are too slow or
too large.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow.frontends.http.limits import HttpLimits
from sparrow.frontends.http.sockets import sockets
from sparrow.frontends.http.sockets.connection import SocketConnection
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw
from tests.http_streams.conftest import DEADLINE_S, fill, small_socket
from tests.repetitions import repetitions

HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = b"\x37\xfa\x21\x3d"
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
PROTOCOL_ERROR, UNSUPPORTED, NOT_TEXT, POLICY, TOO_BIG = 1002, 1003, 1007, 1008, 1009


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, flags: int = 0
) -> bytes:
    """Return a frame as a client sends it (RFC 6455, section 5.2)."""
    first = opcode | (0x80 if fin else 0) | flags
    mask_bit = 0x80 if masked else 0
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, mask_bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, size)
    if not masked:
        return head + payload
    covered = int.from_bytes(payload) ^ int.from_bytes((MASK * (size // 4 + 1))[:size])
    return head + MASK + covered.to_bytes(size)


class RawSocket:
    """An open socket that sends the given bytes."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    def send(self, data: bytes) -> None:
        self.raw.send(data)

    async def next(self) -> tuple[int, bytes]:
        """Return the next frame of the broker: opcode, payload."""
        async with asyncio.timeout(DEADLINE_S):
            reader = self.raw.reader
            first, size = await reader.readexactly(2)
            assert not size & 0x80, "a server does not mask"
            if size == 126:
                [size] = struct.unpack("!H", await reader.readexactly(2))
            elif size == 127:
                [size] = struct.unpack("!Q", await reader.readexactly(8))
            return first & 0x0F, await reader.readexactly(size)

    async def response(self) -> dict[str, object]:
        """Return the next frame, which must be text."""
        opcode, payload = await self.next()
        assert opcode == TEXT, (opcode, payload)
        found: dict[str, object] = json.loads(payload)
        return found

    async def is_alive(self) -> bool:
        self.send(frame(TEXT, b'{"type":"ping","id":"alive"}'))
        return await self.response() == {"type": "pong", "id": "alive"}

    async def closed(self) -> int:
        """Return the code of the closing frame, after any other frames."""
        while True:
            opcode, payload = await self.next()
            if opcode == CLOSE:
                return int.from_bytes(payload[:2])


@contextlib.asynccontextmanager
async def raw_socket(http: Http) -> AsyncIterator[RawSocket]:
    async with Raw(http.port) as raw:
        yield await opened(raw)


@contextlib.asynccontextmanager
async def deaf_socket(http: Http) -> AsyncIterator[tuple[RawSocket, SocketConnection]]:
    """Open a socket that does not read, and of whose replies the kernel buffers little. Yield it
    with the broker's side of it.
    """
    raw = Raw(http.port)
    raw.reader, raw.writer = await asyncio.open_connection(sock=small_socket(http.port), limit=4096)
    socket = await opened(raw)
    raw.writer.transport.pause_reading()
    [served] = http.frontend.open_connections
    assert isinstance(served, SocketConnection)
    yield socket, served
    raw.writer.transport.abort()


async def opened(raw: Raw) -> RawSocket:
    """Return the connection after the handshake."""
    raw.send(HANDSHAKE)
    async with asyncio.timeout(DEADLINE_S):
        head = await raw.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head
    return RawSocket(raw)


async def others_live(http: Http) -> None:
    async with raw_socket(http) as socket:
        assert await socket.is_alive()


# ── handshakes ────────────────────────────────────────────────────────────────────────────────────


NO_HANDSHAKES = [
    (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"", b"400"),
    (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", b"400"),
    (b"Version: 13", b"Version: 8", b"4"),
    (b"Sec-WebSocket-Version: 13\r\n", b"", b"4"),
    (b"GET", b"POST", b"4"),
]


async def test_a_handshake_that_is_none_is_refused(http: Http) -> None:
    for old, new, status in NO_HANDSHAKES:
        async with Raw(http.port) as raw:
            raw.send(HANDSHAKE.replace(old, new))
            async with asyncio.timeout(DEADLINE_S):
                assert (await raw.reader.readline()).split(b" ")[1].startswith(status), new
        await others_live(http)


async def test_a_handshake_may_say_that_it_has_no_body(http: Http) -> None:
    """Java's WebSocket does."""
    async with Raw(http.port) as raw:
        raw.send(HANDSHAKE.replace(b"Upgrade: websocket", b"Content-Length: 0\r\nUpgrade: websocket"))
        async with asyncio.timeout(DEADLINE_S):
            assert b" 101 " in await raw.reader.readline()


async def test_a_client_that_goes_during_the_handshake_leaves_nothing(http: Http) -> None:
    for _ in range(20):
        async with Raw(http.port) as raw:
            raw.send(HANDSHAKE)
            raw.writer.transport.abort()
    async with asyncio.timeout(DEADLINE_S):
        while http.frontend.connections:
            await asyncio.sleep(0)


# ── frames ────────────────────────────────────────────────────────────────────────────────────────


NO_FRAMES: list[tuple[bytes, int | None]] = [
    (frame(TEXT, b"{}", masked=False), PROTOCOL_ERROR),
    (frame(TEXT, b"{}", flags=0x40), PROTOCOL_ERROR),
    (frame(3, b"{}"), PROTOCOL_ERROR),
    (frame(0x0B, b""), PROTOCOL_ERROR),
    (frame(CONTINUED, b"{}"), PROTOCOL_ERROR),
    (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), PROTOCOL_ERROR),
    (frame(PING, b"x", fin=False), PROTOCOL_ERROR),
    (frame(PING, b"x" * 126), PROTOCOL_ERROR),
    (frame(CLOSE, b"x"), PROTOCOL_ERROR),
    (frame(CLOSE, struct.pack("!H", 999)), PROTOCOL_ERROR),
    (frame(CLOSE, struct.pack("!H", 1000) + b"\xff"), NOT_TEXT),
    (frame(BINARY, b"{}"), UNSUPPORTED),
    (frame(BINARY, b"{", fin=False), UNSUPPORTED),
    (frame(TEXT, b'{"type":"ping","id":"\xff"}'), NOT_TEXT),
    (frame(TEXT, b"\xed\xa0\x80"), NOT_TEXT),
    (b"\x81\xff" + struct.pack("!Q", 1 << 40), TOO_BIG),
    (b"\x81\xff" + b"\xff" * 8, TOO_BIG),
    (b"\x81\xfe\x00\x05mask.....", None),
]


async def test_broken_frame_ends_the_connection_with_a_reason(http: Http) -> None:
    for data, code in NO_FRAMES:
        async with raw_socket(http) as socket:
            socket.send(frame(TEXT, b'{"type":"ping"}') + data)
            if code is not None:
                assert await socket.closed() == code, data
        await others_live(http)


async def test_a_message_that_means_nothing_is_answered_and_the_connection_lives(http: Http) -> None:
    async with raw_socket(http) as socket:
        for text in (
            b"",
            b"{",
            b"[]",
            b'{"type":"x"}',
            b'{"type":"ping","id":[]}',
            b"\x00",
            b"\xef\xbb\xbf{}",
        ):
            socket.send(frame(TEXT, text))
            assert (await socket.response())["type"] == "error", text
            assert await socket.is_alive()


async def test_a_message_may_come_in_many_fragments_with_control_frames_between_them(http: Http) -> None:
    text = b'{"type":"ping","id":"in pieces"}'
    async with raw_socket(http) as socket:
        socket.send(frame(TEXT, text[:1], fin=False))
        for index in range(1, len(text)):
            socket.send(frame(PING, b"p") + frame(PONG, b"unasked"))
            socket.send(frame(CONTINUED, text[index : index + 1], fin=index == len(text) - 1))
        pongs = [await socket.next() for _ in range(len(text) - 1)]
        assert pongs == [(PONG, b"p")] * (len(text) - 1)
        assert (await socket.response())["id"] == "in pieces"


async def test_a_message_over_the_limit_is_refused_whole_and_in_fragments(make_http: MakeHttp) -> None:
    http = await make_http(max_body_bytes=10_000)
    async with raw_socket(http) as socket:
        socket.send(frame(TEXT, b"x" * 10_001))
        assert await socket.closed() == TOO_BIG
    async with raw_socket(http) as socket:
        socket.send(frame(TEXT, b"x" * 5000, fin=False) + frame(CONTINUED, b"x" * 5000, fin=False))
        socket.send(frame(CONTINUED, b"x"))
        assert await socket.closed() == TOO_BIG


async def test_a_goodbye_in_the_middle_of_a_huge_message_can_still_be_read(make_http: MakeHttp) -> None:
    http = await make_http(max_body_bytes=10_000)
    async with raw_socket(http) as socket:
        socket.send(frame(TEXT, b"x" * 3_000_000))
        assert await socket.closed() == TOO_BIG


async def test_a_message_that_does_not_come_whole_in_time_ends_the_connection(make_http: MakeHttp) -> None:
    http = await make_http(body_timeout_ms=50, sweep_interval_ms=10)
    whole = frame(TEXT, b'{"type":"ping"}')
    for data in (whole[:-1], frame(TEXT, b"{", fin=False)):
        async with raw_socket(http) as socket:
            socket.send(data)
            assert await socket.closed() == POLICY


async def test_large_messages_take_turns_for_the_memory_that_all_share(make_http: MakeHttp) -> None:
    http = await make_http(receive_budget_bytes=1_000_000, max_body_bytes=900_000, small_body_bytes=1000)
    text = json.dumps({"type": "ping", "id": "x", "pad": "x" * 800_000}).encode()
    whole = frame(TEXT, text)
    async with raw_socket(http) as first, raw_socket(http) as second:
        first.send(whole[:400_000])
        await _until(lambda: http.frontend.receive_budget.reserved_bytes == 900_000)
        second.send(whole[:400_000])
        await _until(lambda: http.frontend.receive_budget.waiting == 1)
        first.send(whole[400_000:])
        assert (await first.response())["type"] == "error"  # there is no member "pad"
        second.send(whole[400_000:])
        assert (await second.response())["type"] == "error"
        await _until(lambda: http.frontend.receive_budget.reserved_bytes == 0)


async def test_disconnect_in_a_large_message_frees_its_memory(make_http: MakeHttp) -> None:
    http = await make_http(receive_budget_bytes=1_000_000, max_body_bytes=900_000, small_body_bytes=1000)
    whole = frame(TEXT, b"x" * 800_000)
    async with raw_socket(http) as first, raw_socket(http) as second:
        first.send(whole[:400_000])
        await _until(lambda: http.frontend.receive_budget.reserved_bytes == 900_000)
        second.send(whole[:400_000])
        await _until(lambda: http.frontend.receive_budget.waiting == 1)
        second.raw.writer.transport.abort()
        first.raw.writer.transport.abort()
        await _until(
            lambda: not (http.frontend.receive_budget.reserved_bytes or http.frontend.receive_budget.waiting)
        )


async def _until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [frame(PING, b"p" * 125), frame(TEXT, b'{"type":"ping","id":"%b"}' % (b"x" * 200))],
    ids=["ping", "text"],
)
async def test_a_client_that_reads_no_response_is_not_read_from(http: Http, question: bytes) -> None:
    flood = question * 1000
    async with deaf_socket(http) as (socket, served):
        async with asyncio.timeout(DEADLINE_S):
            while served.can_write:
                socket.send(flood)
                await asyncio.sleep(0)
        received = served.received_bytes
        for _ in range(20):
            socket.send(flood)
            await asyncio.sleep(0.001)
        assert served.received_bytes == received
        assert HttpLimits().write_high_water_bytes < served.unsent_bytes < 1 << 20


@pytest.mark.slow
async def test_a_client_that_takes_nothing_is_given_up(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "SILENT_S", 0.1)
    http = await make_http(sweep_interval_ms=10)
    await fill(http, "t", *["x" * 100_000] * 80)
    async with deaf_socket(http) as (socket, _):
        subscribe = {
            "type": "subscribe",
            "subscription": "s",
            "topic": "t",
            "from": "beginning",
            "credit": 99,
        }
        socket.send(frame(TEXT, json.dumps(subscribe).encode()))
        await _until(lambda: not http.frontend.connections)


@settings(
    max_examples=repetitions(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(min_size=1, max_size=60), is_framed=st.booleans())
async def test_any_bytes_end_or_are_answered_and_the_frontend_lives(
    http: Http, data: bytes, is_framed: bool
) -> None:
    async with raw_socket(http) as socket:
        socket.send(frame(TEXT, data) if is_framed else data)
        socket.raw.writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            await socket.raw.reader.read()
    await others_live(http)
