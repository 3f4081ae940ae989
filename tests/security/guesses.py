"""One wrong login at a running broker, by each way that there is, over a connection of its own."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

import sparrow.testing
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import RawClient
from tests.security.scram_client import ScramClient, plain
from tests.security.test_sasl_frontend import AUTHENTICATE, HANDSHAKE, RawKafka

OWN_USER, OWN_PASSWORD = "mallory", "own-pencil"
CLOSE_S = 8.0
"""Time in seconds within which the broker must close; longer than any delay of a response."""


class Outcome(NamedTuple):
    """The answer to a guess, and whether the broker closed the connection by itself."""

    said: str
    is_closed: bool


class Guess(NamedTuple):
    """The target of a guess. `address` is the loopback address that the connection comes from."""

    broker: sparrow.testing.Broker
    user: str
    secret: str
    address: str = "127.0.0.1"

    async def open(self, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = where.removeprefix("http://").replace("localhost", "127.0.0.1").rsplit(":", 1)
        return await asyncio.open_connection(host, int(port), local_addr=(self.address, 0))

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()


Way = Callable[[Guess], Awaitable[Outcome]]


async def _kafka(guess: Guess, talk: Callable[[RawKafka], Awaitable[str]]) -> Outcome:
    reader, writer = await guess.open(guess.broker.kafka)
    try:
        client = RawKafka(reader, writer)
        said = await talk(client)
        async with asyncio.timeout(CLOSE_S):
            return Outcome(said, await client.is_closed())
    finally:
        writer.close()


async def kafka_plain(guess: Guess) -> Outcome:
    async def talk(client: RawKafka) -> str:
        return str((await client.login(plain(guess.user, guess.secret))).error_message)

    return await _kafka(guess, talk)


def kafka_scram(hash_name: str, mechanism: str) -> Way:
    async def way(guess: Guess) -> Outcome:
        async def talk(client: RawKafka) -> str:
            scram = ScramClient(hash_name, guess.user, guess.secret)
            first = await client.login(scram.first(), mechanism)
            final = scram.final(first.auth_bytes)
            return str((await client.ask(AUTHENTICATE, 2, auth_bytes=final)).error_message)

        return await _kafka(guess, talk)

    return way


async def kafka_bare_plain(guess: Guess) -> Outcome:
    """Version 0 of SaslHandshake has no field for an error: the end of the connection is the
    response.
    """

    async def talk(client: RawKafka) -> str:
        await client.ask(HANDSHAKE, 0, mechanism="PLAIN")
        return await _end_of(client.frame(plain(guess.user, guess.secret)))

    return await _kafka(guess, talk)


async def kafka_bare_scram(guess: Guess) -> Outcome:
    async def talk(client: RawKafka) -> str:
        scram = ScramClient("sha256", guess.user, guess.secret)
        await client.ask(HANDSHAKE, 0, mechanism="SCRAM-SHA-256")
        return await _end_of(client.frame(scram.final(await client.frame(scram.first()))))

    return await _kafka(guess, talk)


async def _end_of(answer: Awaitable[bytes]) -> str:
    try:
        return f"was let in: {await answer!r}"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "username or password"


async def kafka_again(guess: Guess) -> Outcome:
    """Log in again on the connection of a user who is logged in (KIP-368); needs
    `kafka.max_session`.
    """

    async def talk(client: RawKafka) -> str:
        own = await client.login(plain(OWN_USER, OWN_PASSWORD))
        if own.error_code:  # too many logins from his address wait
            return str(own.error_message)
        return str((await client.login(plain(guess.user, guess.secret))).error_message)

    return await _kafka(guess, talk)


def native(credentials: Callable[[Guess], dict[str, str]]) -> Way:
    async def way(guess: Guess) -> Outcome:
        client = RawClient(*await guess.open(f"127.0.0.1:{guess.broker.port}"))
        try:
            client.send(m.Hello("sparrow", 1, 1, credentials=credentials(guess)))
            said = (await client.expect(m.Error)).text
            async with asyncio.timeout(CLOSE_S):
                return Outcome(said, await client.at_eof())
        finally:
            client.close()

    return way


def http(path: str, authorization: Callable[[Guess], str]) -> Way:
    async def way(guess: Guess) -> Outcome:
        reader, writer = await guess.open(guess.broker.http)
        try:
            lines = [f"GET {path.format(secret=guess.secret.replace(' ', '-'))} HTTP/1.1", "Host: localhost"]
            lines += [f"Authorization: {authorization(guess)}"] * bool(authorization(guess))
            writer.write("\r\n".join([*lines, "", ""]).encode())
            answer = await reader.read()  # it ends because the broker closes
            status = answer.partition(b"\r\n")[0]
            assert b" 401 " in status or b" 503 " in status, answer
            return Outcome(answer.decode(), b"connection: close" in answer.lower())
        finally:
            writer.close()

    return way


def websocket(
    query: str = "",
    authorization: Callable[[Guess], str] | None = None,
    hello: Callable[[Guess], dict[str, str]] | None = None,
) -> Way:
    async def way(guess: Guess) -> Outcome:
        host = guess.broker.http.removeprefix("http://").replace("localhost", "127.0.0.1")
        headers = {} if authorization is None else {"Authorization": authorization(guess)}
        try:
            async with websockets.connect(
                f"ws://{host}/v1/ws{query.format(secret=guess.secret.replace(' ', '-'))}",
                additional_headers=headers,
                local_addr=(guess.address, 0),
                compression=None,
                proxy=None,
            ) as socket:
                assert hello is not None, "the handshake was not refused"
                await socket.send(json.dumps({"type": "hello", **hello(guess)}))
                said = str(await socket.recv())
                async with asyncio.timeout(CLOSE_S):
                    await socket.wait_closed()
                return Outcome(said, socket.close_code == 1008)
        except InvalidStatus as refused:
            response = refused.response
            return Outcome(
                bytes(response.body or b"").decode(), response.headers.get_all("connection") == ["close"]
            )
        except ConnectionClosed as closed:
            raise ConnectionResetError from closed

    return way


def _password(guess: Guess) -> dict[str, str]:
    return {"user": guess.user, "password": guess.secret}


def _token(guess: Guess) -> dict[str, str]:
    return {"token": guess.secret}


def _basic(guess: Guess) -> str:
    return guess.basic


def _bearer(guess: Guess) -> str:
    return f"Bearer {guess.secret}"


WAYS: dict[str, Way] = {
    "Kafka, PLAIN": kafka_plain,
    "Kafka, SCRAM-SHA-256": kafka_scram("sha256", "SCRAM-SHA-256"),
    "Kafka, SCRAM-SHA-512": kafka_scram("sha512", "SCRAM-SHA-512"),
    "Kafka, bare PLAIN": kafka_bare_plain,
    "Kafka, bare SCRAM": kafka_bare_scram,
    "Kafka, again": kafka_again,
    "native, password": native(_password),
    "HTTP, Basic": http("/docs", _basic),
    "WebSocket, Basic": websocket(authorization=_basic),
    "WebSocket, hello with a password": websocket(hello=_password),
}
"""Ways to guess at a user."""
TOKEN_WAYS: dict[str, Way] = {
    "native, token": native(_token),
    "HTTP, Bearer": http("/docs", _bearer),
    "HTTP, token of a stream": http("/v1/topics/t/stream?access_token={secret}", lambda _: ""),
    "WebSocket, Bearer": websocket(authorization=_bearer),
    "WebSocket, token in the query": websocket(query="?access_token={secret}"),
    "WebSocket, hello with a token": websocket(hello=_token),
}
"""Ways to guess at tokens, which name no user. The seed systems' listeners are missing here: their
clients cannot log in.
"""
ALL_WAYS = WAYS | TOKEN_WAYS


async def failed_logins(broker: Any, user: str, password: str) -> dict[str, int]:
    """Return `sparrow_failed_logins_total` by reason, from /metrics."""
    reader, writer = await Guess(broker, user, password).open(broker.http)
    writer.write(
        f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: {Guess(broker, user, password).basic}\r\n\r\n".encode()
    )
    text = (await reader.read()).decode()
    writer.close()
    assert " 200 " in text.partition("\r\n")[0], text
    found = {
        line.partition('reason="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        if line.startswith("sparrow_failed_logins_total{")
    }
    return {"credentials": 0, "waiting": 0, **found}
