"""Publishers of the seed systems, as their documents describe them: plain blocking sockets, a
message at a time. And a server that only reads and drops.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
from typing import TYPE_CHECKING

import msgspec

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
"""What a publisher says before its messages."""


def publish(name: str, port: int, count: int, start: Start) -> Span:
    """So many messages over one connection, each made and sent by itself; until the last is taken
    by the system.
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
    """So many messages, each over a connection of its own, as the producer of mbus does: connect,
    write, close.
    """
    make = MAKERS[name]
    watch = Stopwatch(start)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(make())
            connection.shutdown(socket.SHUT_WR)
    return watch.span()


def drop(listening: socket.socket) -> None:
    """Read everything of everybody and drop it, one connection after the other, for ever."""
    room = bytearray(1 << 18)
    while True:
        connection, _ = listening.accept()
        with connection:
            while connection.recv_into(room):
                pass
