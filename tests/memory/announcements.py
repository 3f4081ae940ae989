"""Clients of each listener that announce a message of the largest size, and send little of it."""

from __future__ import annotations

import socket
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Role
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import encode, request
from tests.security.scram_client import plain

USER, PASSWORD = "honest", "correct horse battery"
LOGIN = {"users": {USER: PASSWORD}}
KAFKA_BYTES, NATIVE_BYTES, BODY_BYTES = 100 << 20, 16 << 20, 16 << 20
BEFORE_LOGIN_BYTES = 16 << 10
SEED_BYTES = 1_000_000
WAIT_S = 60.0

Open = Callable[[RunningBroker, str], socket.socket]


@dataclass(frozen=True)
class Announcer:
    """An announcing client. `open` connects from an address of loopback, logs in where required,
    and announces.
    """

    name: str
    options: dict[str, Any]
    open: Open


def connect(bootstrap: str, source: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    return socket.create_connection((host, int(port)), timeout=WAIT_S, source_address=(source, 0))


def read_exactly(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = client.recv(size - len(found))
        assert piece, "the broker closed the connection"
        found += piece
    return found


# ── Kafka ─────────────────────────────────────────────────────────────────────────────────────────


def ask_kafka(client: socket.socket, frame: bytes) -> bytes:
    client.sendall(frame)
    return read_exactly(client, struct.unpack(">i", read_exactly(client, 4))[0])


def log_in_to_kafka(client: socket.socket, name: str = USER, password: str = PASSWORD) -> int:
    """Log in with PLAIN; return the code of the response, 0 for success."""
    ask_kafka(client, encode(request(17, 1, mechanism="PLAIN")))
    response = ask_kafka(client, encode(request(36, 1, auth_bytes=plain(name, password))))
    return int(struct.unpack_from(">h", response, 4)[0])


def kafka(size: int, *, logs_in: bool = False) -> Open:
    def open_one(broker: RunningBroker, source: str) -> socket.socket:
        client = connect(broker.kafka, source)
        if logs_in:
            assert log_in_to_kafka(client) == 0
        client.sendall(struct.pack(">i", size) + b"\0\0\0\0")
        return client

    return open_one


# ── native ────────────────────────────────────────────────────────────────────────────────────────


def native_hello(client: socket.socket, **credentials: str) -> list[Any]:
    """Send HELLO; return the response."""
    connection = Connection(Role.CLIENT)
    connection.send(m.Hello("sparrow", 1, 1, "tests", "1", credentials=credentials))
    client.sendall(b"".join(connection.data_to_send()))
    events: list[Any] = []
    while not events:
        data = client.recv(65536)
        if not data:
            break
        connection.receive_data(data)
        events = connection.events()
    return events


def native(size: int, *, says_hello: bool, **credentials: str) -> Open:
    def open_one(broker: RunningBroker, source: str) -> socket.socket:
        client = connect(f"{broker.host}:{broker.port}", source)
        if says_hello:
            assert isinstance(native_hello(client, **credentials)[0].head, m.Welcome)
        kind = m.FrameType.PUBLISH if says_hello else m.FrameType.HELLO
        client.sendall(struct.pack(">IBBI", size, kind, 0, 0) + b"\0\0")
        return client

    return open_one


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────


def authorization(user: str = USER, password: str = PASSWORD) -> bytes:
    return b"Authorization: Basic " + b64encode(f"{user}:{password}".encode()) + b"\r\n"


def http(headers: bytes = b"") -> Open:
    head = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%b"
    head += b"Content-Length: %d\r\n\r\n{"

    def open_one(broker: RunningBroker, source: str) -> socket.socket:
        client = connect(broker.http.removeprefix("http://"), source)
        client.sendall(head % (headers, BODY_BYTES))
        return client

    return open_one


def http_head(broker: RunningBroker, source: str) -> socket.socket:
    """Send a request head that does not end: before the login only a head is accepted."""
    client = connect(broker.http.removeprefix("http://"), source)
    client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b")
    return client


def web_socket(broker: RunningBroker, source: str) -> socket.socket:
    client = connect(broker.http.removeprefix("http://"), source)
    client.sendall(
        b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert client.recv(4096).startswith(b"HTTP/1.1 101")
    client.sendall(struct.pack(">BBQ", 0x81, 0xFF, BODY_BYTES) + b"mask" + b"1234")
    return client


# ── the other brokers' clients ────────────────────────────────────────────────────────────────────


def seed(name: str, announcement: bytes) -> Announcer:
    def open_one(broker: RunningBroker, source: str) -> socket.socket:
        host, port = broker.seeds[name]
        client = connect(f"{host}:{port}", source)
        client.sendall(announcement)
        return client

    return Announcer(name, {"seeds_all": True, **_SEED_PORTS}, open_one)


_SEED_PORTS = dict.fromkeys(
    (
        "seeds_diy_port",
        "seeds_messagebroker_port",
        "seeds_mbus_port",
        "seeds_mbus_consumer_port",
        "seeds_msbq_port",
        "seeds_syncbrok_port",
    ),
    0,
)
ANNOUNCERS = [
    Announcer("kafka without logins", {}, kafka(KAFKA_BYTES)),
    Announcer("kafka before the login", LOGIN, kafka(BEFORE_LOGIN_BYTES)),
    Announcer("kafka after the login", LOGIN, kafka(KAFKA_BYTES, logs_in=True)),
    Announcer("native without logins", {}, native(NATIVE_BYTES, says_hello=True)),
    Announcer("native before the login", LOGIN, native(BEFORE_LOGIN_BYTES, says_hello=False)),
    Announcer(
        "native after the login", LOGIN, native(NATIVE_BYTES, says_hello=True, user=USER, password=PASSWORD)
    ),
    Announcer("http without logins", {}, http()),
    Announcer("http before the login", LOGIN, http_head),
    Announcer("http after the login", LOGIN, http(authorization())),
    Announcer("websocket without logins", {}, web_socket),
    Announcer("websocket before the login", LOGIN, web_socket),
    seed("diy_message_broker", struct.pack(">IBq", SEED_BYTES, 2, 0) + b"\x01t"),
    seed("messagebroker", struct.pack(">HH", 3, 7) + b"topic:t" + struct.pack(">I", SEED_BYTES) + b"x"),
    seed("mbus", b"\x82\xa5Topic\xa1t\xa4Data\xc6" + struct.pack(">I", SEED_BYTES) + b"x"),
    seed("mbus_consumer", b"topic"),
    seed("msbq", struct.pack("<I", SEED_BYTES) + b"{"),
    seed(
        "syncbrok", b"POST /msg HTTP/1.1\r\nHost: x\r\nqueue: t\r\nContent-Length: %d\r\n\r\nx" % SEED_BYTES
    ),
]


@contextmanager
def closing(clients: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for client in clients:
            client.close()
