"""SASL at the Kafka frontend, by raw requests: which message is legal when, what fails how."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.kafka.context import Listener
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.frontends.kafka.limits import KafkaLimits
from tests.security.scram_client import ScramClient, plain

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE, DESCRIBE_USERS = 3, 17, 18, 36, 50
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class RawKafka:
    """One connection; requests by key, version and fields."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._ids = iter(range(1, 10_000))

    async def frame(self, data: bytes) -> bytes:
        self.writer.write(struct.pack(">i", len(data)) + data)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        kind = load_request_schema(key, version)
        is_flexible = kind.__flexible__
        header = struct.pack(">hhih4s", key, version, next(self._ids), 4, b"test") + (
            b"\0" if is_flexible else b""
        )
        body = bytearray()

        class Sink:
            def write(self, data: Any) -> None:
                body.extend(data)

        entity_writer(kind)(Sink(), kind(**fields))
        response = await self.frame(header + bytes(body))
        has_tags = is_flexible and key != API_VERSIONS
        return entity_reader(load_response_schema(key, version))(response, 5 if has_tags else 4)[0]

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def login(self, token: bytes, mechanism: str = "PLAIN", version: int = 2) -> Any:
        assert (await self.ask(HANDSHAKE, 1, mechanism=mechanism)).error_code == 0
        return await self.ask(AUTHENTICATE, version, auth_bytes=token)


class ServedFrontend:
    def __init__(self, frontend: KafkaFrontend) -> None:
        self.frontend = frontend
        self.opened: list[RawKafka] = []
        self.ports: dict[bool, int] = {}

    async def connect(self, *, sasl: bool = True) -> RawKafka:
        if sasl not in self.ports:
            self.ports[sasl] = await self.frontend.start(Listener(f"sasl {sasl}", "127.0.0.1", 0, sasl=sasl))
        client = RawKafka(*await asyncio.open_connection("127.0.0.1", self.ports[sasl]))
        self.opened.append(client)
        return client


@pytest.fixture
async def broker(tmp_path: Any) -> AsyncIterator[Broker]:
    config = BrokerConfig(super_users=frozenset({"User:ann", "User:bob", "User:ANONYMOUS"}))
    async with Broker(tmp_path / "data", config=config) as broker:
        await broker.users.alter([*upsertions_of("ann", "pencil-2B"), *upsertions_of("bob", "b-pencil-2B")])
        yield broker


async def serve(broker: Broker, **limits: Any) -> AsyncIterator[ServedFrontend]:
    frontend = KafkaFrontend(broker, limits=KafkaLimits(failed_authentication_delay_ms=1, **limits))
    served = ServedFrontend(frontend)
    yield served
    for client in served.opened:
        client.writer.close()
    await frontend.drain(1)


@pytest.fixture
async def frontend(broker: Broker) -> AsyncIterator[ServedFrontend]:
    async for frontend in serve(broker):
        yield frontend


@pytest.fixture
async def renewing_frontend(broker: Broker) -> AsyncIterator[ServedFrontend]:
    async for frontend in serve(broker, max_session_ms=600_000):
        yield frontend


async def users(client: RawKafka) -> Any:
    return await client.ask(DESCRIBE_USERS, 0, users=())


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_plain_accepts_the_right_password(frontend, version):
    client = await frontend.connect()
    versions = await client.ask(API_VERSIONS, 2)
    assert {AUTHENTICATE, HANDSHAKE} <= {each.api_key for each in versions.api_keys}
    handshake = await client.ask(HANDSHAKE, 1, mechanism="PLAIN")
    assert (handshake.error_code, handshake.mechanisms) == (0, MECHANISMS)
    response = await client.ask(AUTHENTICATE, version, auth_bytes=plain("ann", "pencil-2B"))
    assert (response.error_code, response.auth_bytes, response.error_message) == (0, b"", None)
    assert [each.user for each in (await users(client)).results] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("mechanism", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
async def test_scram_proves_both_sides(frontend, mechanism, hash_name):
    client, scram = await frontend.connect(), ScramClient(hash_name, "ann", "pencil-2B")
    first = await client.login(scram.first(), mechanism)
    final = await client.ask(AUTHENTICATE, 2, auth_bytes=scram.final(first.auth_bytes))
    assert scram.verify(final.auth_bytes)
    assert (await users(client)).error_code == 0


async def test_after_handshake_version_0_tokens_come_bare(frontend):
    client = await frontend.connect()
    assert (await client.ask(HANDSHAKE, 0, mechanism="PLAIN")).error_code == 0
    assert await client.frame(plain("ann", "pencil-2B")) == b""
    assert (await users(client)).error_code == 0
    client, scram = await frontend.connect(), ScramClient("sha256", "ann", "pencil-2B")
    await client.ask(HANDSHAKE, 0, mechanism="SCRAM-SHA-256")
    final = scram.final(await client.frame(scram.first()))
    assert scram.verify(await client.frame(final))
    assert (await users(client)).error_code == 0


async def test_a_failed_bare_login_is_a_closed_connection(frontend):
    client = await frontend.connect()
    await client.ask(HANDSHAKE, 0, mechanism="PLAIN")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.frame(plain("ann", "wrong"))


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (plain("ann", "wrong"), "Authentication failed: Invalid username or password"),
        (plain("eve", "pencil-2B"), "Authentication failed: Invalid username or password"),
        (plain("ann", "pencil-2B", "bob"), "Authentication failed: Client requested an authorization id"),
        (plain("ann", ""), "Authentication failed during authentication due to invalid credentials"),
        (b"ann\0pencil-2B", "Authentication failed during authentication due to invalid credentials"),
        (b"\xff\0\xff\0\xff", "Authentication failed during authentication due to invalid credentials"),
        (b"", "Authentication failed during authentication due to invalid credentials"),
    ],
)
async def test_a_failed_login_says_so_and_ends_the_connection(frontend, token, text):
    client = await frontend.connect()
    response = await client.login(token)
    assert response.error_code == 58
    assert response.error_message.startswith(text)
    assert "pencil-2B" not in response.error_message
    assert await client.is_closed()


async def test_scram_fails_alike_for_wrong_password_and_unknown_user(frontend):
    texts = set()
    for user in ("ann", "eve"):
        client, scram = await frontend.connect(), ScramClient("sha256", user, "wrong")
        first = await client.login(scram.first(), "SCRAM-SHA-256")
        response = await client.ask(AUTHENTICATE, 2, auth_bytes=scram.final(first.auth_bytes))
        texts.add((response.error_code, response.error_message, response.auth_bytes))
        assert await client.is_closed()
    assert len(texts) == 1


async def test_an_unknown_mechanism_gets_those_that_are_known(frontend):
    client = await frontend.connect()
    response = await client.ask(HANDSHAKE, 1, mechanism="GSSAPI")
    assert (response.error_code, response.mechanisms) == (33, MECHANISMS)
    assert await client.is_closed()


async def test_nothing_but_a_login_is_served_before_it(frontend):
    client = await frontend.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await users(client)
    client = await frontend.connect()
    await client.ask(HANDSHAKE, 1, mechanism="PLAIN")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.ask(METADATA, 1, topics=None)


async def test_a_large_request_is_refused_before_the_login(frontend):
    client = await frontend.connect()
    client.writer.write(struct.pack(">i", 600 << 10))
    assert await client.is_closed()


async def test_authenticate_without_handshake_and_handshake_twice_are_illegal(frontend):
    client = await frontend.connect()
    assert (await client.ask(AUTHENTICATE, 2, auth_bytes=plain("ann", "pencil-2B"))).error_code == 34
    assert await client.is_closed()
    client = await frontend.connect()
    await client.ask(HANDSHAKE, 1, mechanism="PLAIN")
    assert (await client.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 34
    assert await client.is_closed()


async def test_a_listener_without_sasl_says_that_the_state_is_wrong_and_stays_open(frontend):
    client = await frontend.connect(sasl=False)
    assert (await client.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 34
    assert (await client.ask(AUTHENTICATE, 2, auth_bytes=plain("ann", "pencil-2B"))).error_code == 34
    assert (await users(client)).error_code == 0


async def test_a_session_without_end_is_not_renewed(frontend):
    client = await frontend.connect()
    assert (await client.login(plain("ann", "pencil-2B"))).session_lifetime.total_seconds() == 0
    assert (await client.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 34
    assert (await users(client)).error_code == 0


async def test_a_session_is_renewed_by_the_same_user_and_mechanism_alone(renewing_frontend):
    client = await renewing_frontend.connect()
    assert (await client.login(plain("ann", "pencil-2B"))).session_lifetime.total_seconds() == pytest.approx(
        600, abs=5
    )
    assert (await client.login(plain("ann", "pencil-2B"))).error_code == 0
    assert (await users(client)).error_code == 0
    # too soon after the last
    assert (await client.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 34
    assert (await users(client)).error_code == 0


async def test_a_renewal_as_another_user_or_by_another_mechanism_fails(renewing_frontend):
    client = await renewing_frontend.connect()
    await client.login(plain("ann", "pencil-2B"))
    response = await client.login(plain("bob", "b-pencil-2B"))
    assert (response.error_code, "Cannot change principals" in response.error_message) == (58, True)
    assert await client.is_closed()
    client = await renewing_frontend.connect()
    await client.login(plain("ann", "pencil-2B"))
    response = await client.login(ScramClient("sha256", "ann", "pencil-2B").first(), "SCRAM-SHA-256")
    assert (response.error_code, "re-authentication" in response.error_message) == (58, True)


async def test_a_session_that_has_ended_serves_nothing_but_a_login(renewing_frontend):
    client = await renewing_frontend.connect()
    await client.login(plain("ann", "pencil-2B"))
    (connection,) = renewing_frontend.frontend.open_connections
    connection.session_ends_at = asyncio.get_running_loop().time()
    assert (await client.login(plain("ann", "pencil-2B"))).error_code == 0
    assert (await users(client)).error_code == 0
    connection.session_ends_at = asyncio.get_running_loop().time()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await users(client)


async def test_the_principal_has_the_address_of_the_client(frontend):
    client = await frontend.connect()
    await client.login(plain("ann", "pencil-2B"))
    (connection,) = frontend.frontend.open_connections
    assert (str(connection.principal), connection.principal.host) == ("User:ann", "127.0.0.1")


async def test_requests_sent_together_are_served_in_order(frontend):
    """A client that does not wait for answers."""
    client = await frontend.connect()
    handshake = struct.pack(">hhih4sh5s", HANDSHAKE, 1, 1, 4, b"test", 5, b"PLAIN")
    token = plain("ann", "pencil-2B")
    login = struct.pack(">hhih4si", AUTHENTICATE, 0, 2, 4, b"test", len(token)) + token
    describe = struct.pack(">hhih4s", DESCRIBE_USERS, 0, 3, 4, b"test") + b"\0\1\0"
    client.writer.write(
        b"".join(struct.pack(">i", len(each)) + each for each in (handshake, login, describe))
    )
    for correlation_id in (1, 2, 3):
        (size,) = struct.unpack(">i", await client.reader.readexactly(4))
        assert struct.unpack(">i", (await client.reader.readexactly(size))[:4]) == (correlation_id,)
