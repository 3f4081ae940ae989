"""Peers that behave badly, in every protocol, with and without TLS: their connections end when they
should, and all memory is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import pytest
import pytest_asyncio

from sparrow.broker.broker import Broker
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.records.builder import build_batch
from tests.security.certificates import Certificates, make_certificates
from tests.transport.peers import (
    BIG,
    BIG_BYTES,
    BIG_RECORDS,
    IDLE_MS,
    PROTOCOLS,
    STALL_MS,
    Served,
    Spoken,
)

SECONDS: Final = 10.0
"""Limit of every wait, for machines that are busy."""
READ_BYTES: Final = 1 << 16
VARIANTS: Final = [(each, tls) for each in PROTOCOLS for tls in (False, True) if each.has_tls or not tls]
NAMES: Final = [f"{each.name}{'-tls' if tls else ''}" for each, tls in VARIANTS]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Peer:
    """A client that says what the test says."""

    def __init__(self, spoken: Spoken, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.spoken = spoken
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def hello(self) -> None:
        """Become a client that the frontend knows."""
        if self.spoken.hello:
            self.send(self.spoken.hello)
            assert await self.read()

    async def read(self) -> bytes:
        """Return what comes next; b"" at the end, also of a connection that is reset."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            async with asyncio.timeout(SECONDS):
                return await self.reader.read(READ_BYTES)
        return b""

    async def read_to_end(self) -> bytes:
        whole = b""
        while data := await self.read():
            whole += data
        return whole

    def read_nothing(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Scene:
    """One frontend, and the peers that connect to it."""

    def __init__(
        self, spoken: Spoken, served: Served, send_budget: SendBudget, client_tls: ssl.SSLContext | None
    ) -> None:
        self.spoken = spoken
        self.served = served
        self.send_budget = send_budget
        self._client_tls = client_tls
        self._peers: list[Peer] = []

    async def connect(self) -> Peer:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.served.port))
        tls = {"ssl": self._client_tls, "server_hostname": "localhost"} if self._client_tls else {}
        streams = await asyncio.open_connection(sock=sock, limit=READ_BYTES, **tls)  # type: ignore[arg-type]
        peer = Peer(self.spoken, *streams)
        self._peers.append(peer)
        return peer

    async def all_is_given_back(self) -> None:
        """Wait until no connection is left; nothing is reserved then."""
        await until(lambda: not self.served.connections())
        budget = self.served.receive_budget
        await until(lambda: (budget.reserved_bytes, budget.waiting) == (0, 0))
        await until(lambda: not self.send_budget.used_bytes())
        assert not self.send_budget.waiting

    async def close(self) -> None:
        for peer in self._peers:
            peer.writer.transport.abort()
        await self.served.frontend.drain(1.0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


@pytest_asyncio.fixture(params=VARIANTS, ids=NAMES)
async def scene(
    request: pytest.FixtureRequest, broker: Broker, certificates: Certificates
) -> AsyncIterator[Scene]:
    spoken, has_tls = request.param
    server_tls = client_tls = None
    if has_tls:
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_tls.load_cert_chain(certificates.server.certificate, certificates.server.key)
        client_tls = ssl.create_default_context(cafile=certificates.ca)
    send_budget = SendBudget(64 << 20)
    made = Scene(spoken, await spoken.open(broker, send_budget, server_tls), send_budget, client_tls)
    yield made
    await made.close()
    assert not made.served.connections()


@contextlib.contextmanager
def at_least(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun >= seconds


async def test_a_peer_that_stops_within_a_message_is_disconnected(scene: Scene) -> None:
    peer = await scene.connect()
    await peer.hello()
    peer.send(scene.spoken.unfinished)
    await until(lambda: scene.served.receive_budget.reserved_bytes > 0)
    with at_least(STALL_MS / 2000):
        await peer.read_to_end()
    peer.writer.close()
    await scene.all_is_given_back()


async def test_a_peer_that_dribbles_keeps_no_memory(scene: Scene) -> None:
    peer = await scene.connect()
    await peer.hello()
    peer.send(scene.spoken.unfinished)
    await until(lambda: scene.served.receive_budget.reserved_bytes > 0)
    async with asyncio.timeout(SECONDS):
        while scene.served.receive_budget.reserved_bytes:
            peer.send(b"x")
            await asyncio.sleep(STALL_MS / 10_000)
    peer.writer.close()
    await scene.all_is_given_back()


async def test_a_peer_that_closes_its_side_gets_the_response_first(scene: Scene) -> None:
    peer = await scene.connect()
    await peer.hello()
    peer.send(scene.spoken.request)
    if peer.writer.can_write_eof():  # not within TLS, which ends in both directions at once
        peer.writer.write_eof()
        assert await peer.read_to_end()
    else:
        assert await peer.read()
        peer.writer.close()
    await scene.all_is_given_back()


async def test_a_peer_that_resets_leaves_nothing(scene: Scene) -> None:
    peers = [await scene.connect() for _ in range(3)]
    for peer in peers:
        await peer.hello()
    peers[0].send(scene.spoken.unfinished)
    peers[1].send(scene.spoken.request)
    await until(lambda: scene.served.receive_budget.reserved_bytes > 0)
    for peer in peers:
        peer.reset()
    await scene.all_is_given_back()


async def test_a_peer_that_floods_gets_every_response(scene: Scene) -> None:
    peer = await scene.connect()
    await peer.hello()
    peer.send(scene.spoken.request)
    one = await peer.read()
    peer.send(scene.spoken.request * 50)
    received = 0
    while received < 50 * len(one):
        data = await peer.read()
        assert data, "it is disconnected"
        received += len(data)
    peer.writer.close()
    await scene.all_is_given_back()


async def test_a_peer_that_sends_garbage_is_disconnected(scene: Scene) -> None:
    peer = await scene.connect()
    await peer.hello()
    peer.send(scene.spoken.garbage)
    await peer.read_to_end()
    peer.writer.close()
    await scene.all_is_given_back()


@pytest.mark.slow
async def test_a_peer_that_never_reads_is_disconnected(scene: Scene, broker: Broker) -> None:
    await fill(broker)
    peer = await scene.connect()
    await peer.hello()
    peer.read_nothing()
    peer.send(scene.spoken.greedy)
    await until(lambda: scene.send_budget.used_bytes() > BIG_BYTES)
    if scene.spoken.name != "websocket":  # its deadline is a minute; `close` proves that it ends
        await scene.all_is_given_back()


@pytest.mark.slow
async def test_a_peer_that_says_nothing_is_disconnected(scene: Scene) -> None:
    peer = await scene.connect()
    if not scene.spoken.closes_silent:
        await peer.hello()
        await asyncio.sleep(1.2 * max(STALL_MS, IDLE_MS) / 1000)
        peer.send(scene.spoken.request)
        assert await peer.read()
        return
    with at_least(STALL_MS / 2000):
        await peer.read_to_end()
    peer.writer.close()
    await scene.all_is_given_back()


@pytest.mark.slow
async def test_drain_ends_although_no_peer_cooperates(scene: Scene, broker: Broker) -> None:
    await fill(broker)
    stopped, deaf, silent = [await scene.connect() for _ in range(3)]
    for peer in (stopped, deaf):
        await peer.hello()
    stopped.send(scene.spoken.unfinished)
    deaf.read_nothing()
    silent.read_nothing()
    deaf.send(scene.spoken.greedy)
    await until(lambda: scene.send_budget.used_bytes() > BIG_BYTES)
    begun = time.monotonic()
    await scene.served.frontend.drain(0.3)
    assert time.monotonic() - begun < SECONDS / 2
    await scene.all_is_given_back()


async def fill(broker: Broker) -> None:
    await broker.topics.create(BIG, 1)
    for _ in range(BIG_RECORDS):
        await broker.records.publish(BIG, 0, build_batch([b"x" * BIG_BYTES]))
