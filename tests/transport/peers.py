"""The protocols, each with what a client of it sends that behaves badly, and its frontend with
short deadlines.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrow.frontends.http.frontend import HttpFrontend
from sparrow.frontends.http.limits import HttpLimits
from sparrow.frontends.kafka.context import Listener
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.frontends.kafka.limits import KafkaLimits
from sparrow.frontends.native.frontend import NativeFrontend
from sparrow.frontends.native.limits import NativeLimits
from sparrow.frontends.seeds.frontend import SeedFrontend
from sparrow.frontends.seeds.settings import SeedSettings
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Role
from sparrow.server.logins import Logins
from sparrow.server.tokens import Tokens
from tests.kafka_frontend.raw import encode, request
from tests.kafka_frontend.requests import fetch
from tests.native_frontend.raw import LetIn
from tests.seeds import diy_client as diy

if TYPE_CHECKING:
    import ssl

    from sparrow.broker.broker import Broker
    from sparrow.frontends.transport.receive_budget import ReceiveBudget
    from sparrow.frontends.transport.send_budget import SendBudget

STALL_MS: Final = 300
IDLE_MS: Final = 600
SWEEP_MS: Final = 50
BIG_BYTES: Final = 900_000
BIG_RECORDS: Final = 24
"""Together more than the sockets of both sides take."""
BIG: Final = "big"
"""The topic with them."""


class Frontend(Protocol):
    async def drain(self, timeout_s: float) -> None: ...


@dataclass(frozen=True)
class Served:
    """A frontend that listens."""

    frontend: Frontend
    port: int
    connections: Callable[[], int]
    receive_budget: ReceiveBudget


Open = Callable[["Broker", "SendBudget", "ssl.SSLContext | None"], Awaitable[Served]]


@dataclass(frozen=True)
class Spoken:
    """A protocol, and what its client sends.

    Args:
        hello: what it sends first; the server replies, unless it is empty.
        request: a request with a small response.
        unfinished: the beginning of a large message; more than 16 KiB are announced.
        greedy: requests whose responses are the records of `BIG`.
        garbage: bytes that are no message of the protocol.
    """

    name: str
    open: Open
    hello: bytes
    request: bytes
    unfinished: bytes
    greedy: bytes
    garbage: bytes
    has_tls: bool = True
    closes_silent: bool = True
    """True if a client that sends nothing is disconnected."""


# ── Kafka ─────────────────────────────────────────────────────────────────────────────────────────


async def open_kafka(broker: Broker, send_budget: SendBudget, tls: ssl.SSLContext | None) -> Served:
    limits = KafkaLimits(idle_timeout_ms=IDLE_MS, stall_timeout_ms=STALL_MS, sweep_interval_ms=SWEEP_MS)
    frontend = KafkaFrontend(broker, limits=limits, send_budget=send_budget)
    port = await frontend.start(Listener("kafka", "127.0.0.1", 0, tls=tls))
    return Served(frontend, port, lambda: frontend.connections, frontend.receive_budget)


KAFKA: Final = Spoken(
    "kafka",
    open_kafka,
    hello=b"",
    request=encode(request(18, 0)),
    unfinished=struct.pack(">ihh", 1 << 20, 0, 9) + bytes(2000),
    greedy=encode(fetch(4, BIG, [{"partition": 0, "fetch_offset": 0}], max_bytes=50 << 20)) * 40,
    garbage=struct.pack(">i", -5) + bytes(100),
)

# ── native ────────────────────────────────────────────────────────────────────────────────────────


async def open_native(broker: Broker, send_budget: SendBudget, tls: ssl.SSLContext | None) -> Served:
    limits = NativeLimits(
        hello_timeout_ms=IDLE_MS,
        idle_timeout_ms=IDLE_MS,
        stall_timeout_ms=STALL_MS,
        closing_timeout_ms=STALL_MS,
        sweep_interval_ms=SWEEP_MS,
    )
    frontend = NativeFrontend(broker, authenticator=LetIn(), limits=limits, send_budget=send_budget)
    port = await frontend.start("127.0.0.1", 0, tls=tls)
    return Served(frontend, port, lambda: frontend.connections, frontend.receive_budget)


def native_frames(*frames: tuple[m.Head, int]) -> bytes:
    """Return frames of a client that is welcome already."""
    client = Connection(Role.CLIENT)
    client.send(m.Hello("sparrow", 1, 1))
    broker = Connection(Role.BROKER)
    broker.receive_data(b"".join(client.data_to_send()))
    assert list(broker.events())
    broker.send(m.Welcome(1, "", "", "", 16 << 20, 100, 0))
    client.receive_data(b"".join(broker.data_to_send()))
    assert list(client.events())
    for head, channel in frames:
        client.send(head, channel)
    return b"".join(client.data_to_send())


def native_hello() -> bytes:
    client = Connection(Role.CLIENT)
    client.send(m.Hello("sparrow", 1, 1))
    return b"".join(client.data_to_send())


_EVERYTHING: Final = m.Subscribe(
    [m.Selector(BIG, False, m.Start("beginning"))], credit_bytes=1 << 30, max_deliver_bytes=1 << 20
)
NATIVE: Final = Spoken(
    "native",
    open_native,
    hello=native_hello(),
    request=native_frames((m.Ping(1), 0)),
    unfinished=b"\0\x10\0\0\x10" + bytes(2000),
    greedy=native_frames((_EVERYTHING, 2)),
    garbage=b"\xff" * 100,
)

# ── HTTP and WebSocket ────────────────────────────────────────────────────────────────────────────


async def open_http(broker: Broker, send_budget: SendBudget, tls: ssl.SSLContext | None) -> Served:
    limits = HttpLimits(
        head_timeout_ms=STALL_MS,
        body_timeout_ms=STALL_MS,
        idle_timeout_ms=IDLE_MS,
        stall_timeout_ms=IDLE_MS,
        sweep_interval_ms=SWEEP_MS,
        small_body_bytes=1000,
    )
    logins = Logins(broker.users, Tokens({}), is_required=False)
    frontend = HttpFrontend(broker, logins=logins, limits=limits, send_budget=send_budget)
    port = await frontend.start("127.0.0.1", 0, tls=tls)
    return Served(frontend, port, lambda: frontend.connections, frontend.receive_budget)


_HOST: Final = b"Host: localhost\r\n"
HTTP: Final = Spoken(
    "http",
    open_http,
    hello=b"",
    request=b"GET /v1/topics HTTP/1.1\r\n" + _HOST + b"\r\n",
    unfinished=b"POST /v1/topics/new/messages HTTP/1.1\r\nContent-Type: application/json\r\n"
    + _HOST
    + b"Content-Length: 1000000\r\n\r\n"
    + bytes(2000),
    greedy=(b"GET /v1/topics/big/messages?from=beginning&limit=1000 HTTP/1.1\r\n" + _HOST + b"\r\n") * 40,
    garbage=b"\0\1\2\3" * 30,
)


def websocket_frame(opcode: int, data: bytes, size_bytes: int | None = None) -> bytes:
    """Return a masked frame that announces `size_bytes`; default: those that it has."""
    size_bytes = len(data) if size_bytes is None else size_bytes
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
    return struct.pack(">BBQ", 0x80 | opcode, 0xFF, size_bytes) + mask + masked


def websocket_text(**frame: Any) -> bytes:
    return websocket_frame(1, json.dumps(frame).encode())


WEBSOCKET: Final = Spoken(
    "websocket",
    open_http,
    hello=b"GET /v1/ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    + _HOST
    + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    request=websocket_text(type="ping"),
    unfinished=websocket_frame(1, b"x" * 2000, 100_000),
    greedy=websocket_text(
        type="subscribe", subscription="s", topic=BIG, credit=1_000_000, **{"from": "beginning"}
    ),
    garbage=b"\xff" * 100,
    closes_silent=False,  # it is pinged, and may be silent for minutes
)

# ── a seed ────────────────────────────────────────────────────────────────────────────────────────


async def open_seed(broker: Broker, send_budget: SendBudget, tls: ssl.SSLContext | None) -> Served:
    assert tls is None
    name = "diy_message_broker"
    settings = SeedSettings(ports={name: 0}, idle_timeout_ms=STALL_MS)
    frontend = SeedFrontend(broker, settings, send_budget=send_budget)
    port = (await frontend.start())[name]
    (listener,) = frontend._ports
    return Served(frontend, port, lambda: listener.connections, listener.receive_budget)


SEED: Final = Spoken(
    "seeds",
    open_seed,
    hello=b"",
    request=diy.frame(diy.CONSUME, diy.fields(b"nothing"), 2),
    unfinished=struct.pack(">IBq", 1_000_000, diy.PUBLISH, 0) + bytes(2000),
    greedy=diy.frame(diy.CONSUME, diy.fields(BIG.encode()), 2) * BIG_RECORDS,
    garbage=b"\xff" * 100,
    has_tls=False,
    closes_silent=False,  # such clients never send anything to stay connected
)

PROTOCOLS: Final[Sequence[Spoken]] = (KAFKA, NATIVE, HTTP, WEBSOCKET, SEED)
