"""Clients of the seed systems, as their documents describe them: plain blocking sockets, a message
at a time. And a server that only reads and drops.
"""

from __future__ import annotations

import asyncio
import base64
import json
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING

import msgspec
import uvloop

from bench.together import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.together import Span, Start

TOPIC = "bench"
VALUE = b"m" * 100


def diy_message_broker() -> bytes:
    """One message as its client writes it."""
    topic = TOPIC.encode()
    head = struct.pack(">IBq", 9 + len(topic) + len(VALUE), 0x02, time.time_ns())
    return head + bytes([len(topic)]) + topic + b"\x00" + VALUE


def messagebroker() -> bytes:
    topic = f"topic:{TOPIC}".encode()
    return struct.pack(">H", len(topic)) + topic + struct.pack(">I", len(VALUE)) + VALUE


def mbus() -> bytes:
    return msgspec.msgpack.encode({"Topic": TOPIC, "Data": VALUE})


def msbq() -> bytes:
    message = {
        "MessageType": "EPMessage",
        "Route": TOPIC,
        "Type": "text/plain",
        "Body": base64.b64encode(VALUE).decode(),
        "StreamID": "0a4f4e6e-0000-4000-8000-000000000001",
    }
    body = json.dumps(message).encode()
    return struct.pack("<I", len(body)) + body


MAKERS: dict[str, Callable[[], bytes]] = {
    "diy_message_broker": diy_message_broker,
    "messagebroker": messagebroker,
    "mbus": mbus,
    "msbq": msbq,
}
FIRST = {"messagebroker": struct.pack(">H", 3)}
"""The first bytes of a publisher, before its messages."""


def publish(name: str, port: int, count: int, start: Start) -> Span:
    """Publish messages over one connection, each made and sent by itself, until the system has
    taken the last.
    """
    make = MAKERS[name]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go's connections are
        connection.sendall(FIRST.get(name, b""))
        watch = Stopwatch(start)
        for _ in range(count):
            connection.sendall(make())
        connection.shutdown(socket.SHUT_WR)
        return watch.span()


def publish_by_connections(name: str, port: int, count: int, start: Start) -> Span:
    """Publish messages over a connection each, as the producer of mbus does: connect, write,
    close.
    """
    make = MAKERS[name]
    watch = Stopwatch(start)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(make())
            connection.shutdown(socket.SHUT_WR)
    return watch.span()


def publish_waiting(port: int, count: int, producers: int, start: Start) -> Span:
    """Publish messages of mbus, each over a connection of its own. A producer connects again when
    the end of its last connection confirms that the message is on stable storage.

    Raises:
        ConnectionResetError: a message was not stored.
    """
    message, sent, ended = mbus(), 0, 0
    with selectors.DefaultSelector() as selector:

        def produce() -> None:
            nonlocal sent
            sent += 1
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            selector.register(connection, selectors.EVENT_READ)

        watch = Stopwatch(start)
        for _ in range(min(producers, count)):
            produce()
        while ended < count:
            for key, _ in selector.select():
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                with key.fileobj as connection:
                    assert not connection.recv(1)
                ended += 1
                if sent < count:
                    produce()
        return watch.span()


# ── consuming from diy_message_broker ─────────────────────────────────────────────────────────────

_HEAD = struct.Struct(">IBq")
_CONSUME, _CONSUME_EMPTY = 3, 4
_NOT_COUNTED = 2
"""Bytes of a message that its length leaves out."""
_ASK = _HEAD.pack(9 + len(TOPIC), _CONSUME, 0) + bytes([len(TOPIC)]) + TOPIC.encode() + b"\x00"


class _DiyConsumer(asyncio.Protocol):
    """Asks for the next message when it has the last one, until there is none."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.seen = 0
        self._done = done
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def ask(self) -> None:
        self._transport.write(_ASK)

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        if len(received) < _HEAD.size:
            self._received = received
            return
        length, kind, _ = _HEAD.unpack_from(received)
        if kind == _CONSUME_EMPTY:
            self._done.set_result(None)
        elif len(received) < 4 + length + _NOT_COUNTED:
            self._received = received
        else:
            self._received = b""
            self.seen += 1
            self._transport.write(_ASK)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or RuntimeError("the broker closed the connection"))


def consume(port: int, count: int, consumers: int, start: Start) -> Span:
    """Consume with a connection for each consumer; each asks for one message after the other,
    until the topic is empty.

    Raises:
        RuntimeError: together they did not get `count` messages.
    """
    return uvloop.run(_consume(port, count, consumers, start))


async def _consume(port: int, count: int, consumers: int, start: Start) -> Span:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(consumers):
        done: asyncio.Future[None] = loop.create_future()
        _, client = await loop.create_connection(
            lambda done=done: _DiyConsumer(done),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        clients.append((client, done))
    watch = Stopwatch(start)
    for client, _ in clients:
        client.ask()
    await asyncio.gather(*(done for _, done in clients))
    span = watch.span()
    seen = sum(client.seen for client, _ in clients)
    if seen != count:
        raise RuntimeError(f"{count} messages were published, {seen} were consumed")
    return span


def drop(listening: socket.socket) -> None:
    """Read everything of everybody and drop it, one connection after the other, for ever."""
    room = bytearray(1 << 18)
    while True:
        connection, _ = listening.accept()
        with connection:
            while connection.recv_into(room):
                pass
