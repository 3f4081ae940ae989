"""Clients that have not logged in can take little from a broker with a Kafka listener, and not for
long.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import Principal
from sparrow.broker.access.login_limits import LimitedScram
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.broker import Broker
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.frontends.kafka.limits import KafkaLimits
from tests.security.scram_client import plain
from tests.security.test_sasl_frontend import API_VERSIONS, AUTHENTICATE, HANDSHAKE, METADATA, ServedFrontend

WAIT_S = 60
PIECE = 400 << 10


class SlowLogins:
    """Password check that ends when a test says so."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    async def check_password(self, name: str, password: str, host: str) -> Principal:
        self.asked += 1
        await self.go.wait()
        if password != "pencil-2B":
            raise NotAuthenticated("no")
        return Principal(name)

    def scram(self, mechanism: Mechanism, host: str) -> LimitedScram:
        raise NotImplementedError


@pytest.fixture
async def logins() -> SlowLogins:
    return SlowLogins()


@pytest.fixture
async def frontend(tmp_path: Path, logins: SlowLogins) -> AsyncIterator[ServedFrontend]:
    limits = KafkaLimits(
        receive_budget_bytes=PIECE,
        login_budget_bytes=PIECE,
        max_unauthenticated_request_bytes=PIECE,
        login_timeout_ms=20_000,
        sweep_interval_ms=20,
    )
    async with Broker(tmp_path / "data") as broker:
        frontend = ServedFrontend(KafkaFrontend(broker, limits=limits, logins=logins))
        yield frontend
        for client in frontend.opened:
            client.writer.close()
        await frontend.frontend.drain(5.0)


async def test_bytes_behind_a_login_are_not_read_before_it(frontend, logins):
    client = await frontend.connect()
    assert (await client.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
    login = asyncio.create_task(client.ask(AUTHENTICATE, 2, auth_bytes=plain("ann", "wrong")))
    while not logins.asked:
        await asyncio.sleep(0.01)

    async def flood() -> None:
        for _ in range(100):
            client.writer.write(struct.pack(">i", PIECE) + bytes(PIECE))
            await client.writer.drain()

    flooding = asyncio.create_task(flood())
    await asyncio.sleep(0.5)
    assert not flooding.done()
    logins.go.set()
    async with asyncio.timeout(WAIT_S):
        assert (await login).error_message == "no"
        assert await client.is_closed()
        with pytest.raises(ConnectionError):
            await flooding


async def test_unfinished_requests_of_strangers_do_not_keep_clients_waiting(frontend, logins):
    logins.go.set()
    client = await frontend.connect()
    assert (await client.login(plain("ann", "pencil-2B"))).error_code == 0
    for _ in range(3):
        stranger = await frontend.connect()
        stranger.writer.write(struct.pack(">i", PIECE) + bytes(100))
        await stranger.writer.drain()
    async with asyncio.timeout(WAIT_S):
        assert await client.frame(metadata_of(1500))


def metadata_of(count: int) -> bytes:
    """Return a Metadata request (version 1) that is larger than one read."""
    names = b"".join(struct.pack(">h", 200) + b"%0200d" % n for n in range(count))
    return struct.pack(">hhih", METADATA, 1, 9, -1) + struct.pack(">i", count) + names


@asynccontextmanager
async def served(path: Path, **limits: int) -> AsyncIterator[ServedFrontend]:
    async with Broker(path / "data") as broker:
        frontend = ServedFrontend(KafkaFrontend(broker, limits=KafkaLimits(sweep_interval_ms=20, **limits)))
        yield frontend
        for client in frontend.opened:
            client.writer.close()
        await frontend.frontend.drain(5.0)


async def test_client_that_does_not_log_in_is_disconnected(tmp_path):
    async with served(tmp_path, login_timeout_ms=100) as frontend, asyncio.timeout(WAIT_S):
        stranger, guest = await frontend.connect(), await frontend.connect(sasl=False)
        assert await stranger.is_closed()
        assert (await guest.ask(API_VERSIONS, 2)).error_code == 0


async def test_a_request_that_comes_byte_by_byte_does_not_keep_its_room(tmp_path):
    async with served(tmp_path, stall_timeout_ms=200) as frontend, asyncio.timeout(WAIT_S):
        client = await frontend.connect(sasl=False)
        client.writer.write(struct.pack(">i", PIECE))
        closing = asyncio.create_task(client.is_closed())
        while not closing.done():
            client.writer.write(b"x")
            await asyncio.sleep(0.02)
        assert frontend.frontend.receive_budget.reserved_bytes == 0


async def test_a_token_that_is_too_long_is_refused_without_looking_it_up(frontend, logins):
    client = await frontend.connect()
    async with asyncio.timeout(WAIT_S):
        response = await client.login(plain("ann", "p" * (17 << 10)))
    assert "invalid credentials" in response.error_message
    assert logins.asked == 0
