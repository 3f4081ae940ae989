"""Refused logins of every listener, refused client certificates, and sessions that the broker
ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_websocket

from sparrow.base.errors import Overloaded
from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.audit.event import AuditEvent
from sparrow.protocol.native import messages as m
from tests.audit.recorder import Recorder
from tests.native_frontend.raw import RawClient
from tests.security.test_sasl_frontend import RawKafka
from tests.sessions.served import Authority, Served, authorization

USERS = {"alice": "right password"}
TOKENS = {"robot": "right-token"}
WRONG = {"user": "alice", "password": "wrong password"}
WAIT_S = 20.0


async def refused(recorder: Recorder) -> AuditEvent:
    """Return the only event."""
    async with asyncio.timeout(WAIT_S):
        while not (found := recorder.take()):
            await asyncio.sleep(0.01)
    (event,) = found
    return event


async def native(served: Served, login: dict[str, str]) -> None:
    assert served.server.ready is not None
    connection = await served._dial(f":{served.server.ready.port}", None)
    client = RawClient(connection.reader, connection.writer)
    client.send(m.Hello("sparrow", 1, 1, credentials=login))
    await client.at_eof()
    await connection.close()


async def http(served: Served, login: dict[str, str]) -> None:
    assert served.server.ready is not None
    connection = await served._dial(served.server.ready.http, None)
    lines = ["GET /v1/topics HTTP/1.1", "Host: localhost", *authorization(login), "", ""]
    connection.writer.write("\r\n".join(lines).encode())
    head = await connection.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401"), head
    await connection.close()


async def websocket(served: Served, login: dict[str, str]) -> None:
    """Open a WebSocket; its first frame is a hello, or another one."""
    assert served.server.ready is not None
    port = served.server.ready.http.rpartition(":")[2]
    async with connect_websocket(f"ws://localhost:{port}/v1/ws", proxy=None) as socket:
        frame: dict[str, Any] = {"type": "hello", **login} if login else {"type": "ping"}
        await socket.send(json.dumps(frame))
        assert "NOT_AUTHENTICATED" in str(await socket.recv())


async def kafka(served: Served) -> tuple[Any, RawKafka]:
    assert served.server.ready is not None
    connection = await served._dial(served.server.ready.kafka, None)
    return connection, RawKafka(connection.reader, connection.writer)


async def plain(served: Served, login: dict[str, str]) -> None:
    connection, client = await kafka(served)
    name = login.get("user", "robot")
    secret = login.get("password") or login["token"]
    assert (await client.login(f"\0{name}\0{secret}".encode())).error_code == 58
    await connection.close()


async def scram(served: Served, login: dict[str, str]) -> None:
    connection, client = await kafka(served)
    first = await client.login(f"n,,n={login['user']},r=nonce".encode(), "SCRAM-SHA-256")
    nonce = first.auth_bytes.decode().split(",")[0]
    proof = base64.b64encode(bytes(32)).decode()
    response = await client.ask(36, 2, auth_bytes=f"c=biws,{nonce},p={proof}".encode())
    assert response.error_code == 58
    await connection.close()


Attempt = Callable[[Served, dict[str, str]], Awaitable[None]]
TRIES: list[tuple[Attempt, dict[str, str], str, str, str]] = [
    (native, WRONG, "native", "alice", "password"),
    (native, {"token": "wrong-token"}, "native", "", "token"),
    (native, {}, "native", "", "none"),
    (http, WRONG, "http", "alice", "password"),
    (http, {"token": "wrong-token"}, "http", "", "token"),
    (http, {}, "http", "", "none"),
    (websocket, WRONG, "http", "alice", "password"),
    (websocket, {"token": "wrong-token"}, "http", "", "token"),
    (websocket, {}, "http", "", "none"),
    (plain, WRONG, "kafka", "alice", "PLAIN"),
    (plain, {"token": "wrong-token"}, "kafka", "robot", "PLAIN"),
    (scram, WRONG, "kafka", "alice", "SCRAM-SHA-256"),
    (scram, {"user": "nobody"}, "kafka", "nobody", "SCRAM-SHA-256"),
]


@pytest.mark.parametrize(
    ("attempt", "login", "listener", "claims", "mechanism"),
    TRIES,
    ids=[f"{each[0].__name__}-{each[4]}-{each[3]}" for each in TRIES],  # type: ignore[attr-defined]
)
async def test_a_refused_login_is_one_event(
    start: Any, attempt: Attempt, login: dict[str, str], listener: str, claims: str, mechanism: str
) -> None:
    served = await start(users=USERS, tokens=TOKENS)
    recorder = Recorder(served.broker.audit)

    await attempt(served, login)

    event = await refused(recorder)
    assert (event.action, event.outcome.value, event.principal) == ("login", "refused", "")
    assert (event.address, event.listener, event.error) == ("127.0.0.1", listener, "NOT_AUTHENTICATED")
    assert (event.details["claims"], event.details["mechanism"]) == (claims, mechanism)


@pytest.mark.parametrize(("attempt", "listener"), [(native, "native"), (plain, "kafka")])
async def test_a_login_that_there_is_no_room_for_is_one_event(
    start: Any, attempt: Attempt, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start(users=USERS)
    recorder = Recorder(served.broker.audit)

    async def no_room(*_: object) -> None:
        raise Overloaded("too many logins wait")

    monkeypatch.setattr(served.broker.login_limits, "begin", no_room)
    await attempt(served, WRONG)

    event = await refused(recorder)
    assert (event.action, event.listener, event.error) == ("login", listener, "OVERLOADED")


async def test_a_mechanism_that_a_listener_does_not_have_is_one_event(start: Any) -> None:
    served = await start(users=USERS, kafka_sasl_mechanisms=("SCRAM-SHA-256",))
    recorder = Recorder(served.broker.audit)
    connection, client = await kafka(served)

    assert (await client.ask(17, 1, mechanism="PLAIN")).error_code == 33

    event = await refused(recorder)
    assert (event.action, event.listener, event.address) == ("login", "kafka", "127.0.0.1")
    await connection.close()


async def test_a_request_before_the_login_is_one_event(start: Any) -> None:
    served = await start(users=USERS)
    recorder = Recorder(served.broker.audit)
    connection, client = await kafka(served)

    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.ask(3, 1, topics=None)

    event = await refused(recorder)
    assert (event.action, event.listener, event.error) == ("login", "kafka", "NOT_AUTHENTICATED")
    await connection.close()


async def test_logins_that_succeed_are_no_events(start: Any) -> None:
    served = await start(users=USERS, tokens=TOKENS)
    recorder = Recorder(served.broker.audit)
    for kind in ("native", "kafka", "stream", "websocket"):
        for login in ({"user": "alice", "password": "right password"}, {"token": "right-token"}):
            await served.open(kind, login)
    assert recorder.take() == []


async def test_a_page_of_another_site_is_one_event(start: Any) -> None:
    served = await start(users=USERS)
    recorder = Recorder(served.broker.audit)
    connection = await served._dial(served.server.ready.http, None)
    lines = [
        "POST /v1/topics HTTP/1.1",
        "Host: localhost",
        "Origin: https://evil.example",
        "Content-Length: 0",
    ]
    connection.writer.write("\r\n".join([*lines, "", ""]).encode())
    assert (await connection.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 403")

    event = await refused(recorder)

    assert (event.action, event.listener, event.address) == ("request", "http", "127.0.0.1")
    assert event.details["origin"] == "https://evil.example"
    await connection.close()


@pytest.mark.parametrize("kind", ["native", "kafka", "stream"])
@pytest.mark.parametrize("shown", ["none", "stranger", "revoked"])
async def test_a_refused_certificate_is_one_event(start: Any, kind: str, shown: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    authority.issue("server")
    other.issue("stranger")
    (tmp_path / "revoked.crl").write_bytes(authority.revoke(authority.issue("revoked")))
    served = await start(
        tls_certificate=str(tmp_path / "server.pem"),
        tls_key=str(tmp_path / "server.key"),
        tls_client_ca=authority.file,
        tls_client_crl=str(tmp_path / "revoked.crl"),
    )
    recorder = Recorder(served.broker.audit)
    tls = ssl.create_default_context(cafile=authority.file)
    if shown != "none":
        tls.load_cert_chain(tmp_path / f"{shown}.pem", tmp_path / f"{shown}.key")

    with pytest.raises((OSError, asyncio.IncompleteReadError, AssertionError, EOFError)):
        await served.open(kind, None, tls)

    event = await refused(recorder)
    listener = "http" if kind == "stream" else kind
    assert (event.action, event.outcome.value, event.listener) == ("tls.handshake", "refused", listener)
    assert event.error == "CERTIFICATE_REFUSED"
    expected = {"none": "no certificate", "stranger": "unable to get", "revoked": "revoked"}
    assert expected[shown] in str(event.details["reason"])


@pytest.mark.parametrize("kind", ["native", "kafka", "stream", "websocket"])
async def test_a_session_that_ends_with_its_user_is_one_event(start: Any, kind: str) -> None:
    served = await start(users=USERS)
    recorder = Recorder(served.broker.audit)
    session = await served.open(kind, {"user": "alice", "password": "right password"})

    await served.broker.users.delete("alice", principal=SYSTEM)
    assert await session.is_over()

    deleted, ended = recorder.take()
    assert (deleted.action, deleted.outcome.value) == ("user.delete", "done")
    assert (ended.action, ended.principal, ended.address) == ("session.end", "User:alice", "127.0.0.1")
    assert ended.listener == (kind if kind in {"native", "kafka"} else "http")
    assert "deleted" in str(ended.details["reason"])


async def test_a_reload_by_the_system_is_one_event(start: Any) -> None:
    served = await start(tokens=TOKENS)
    recorder = Recorder(served.broker.audit)

    await served.server.reload()

    (event,) = recorder.take()
    assert (event.action, event.outcome.value, event.principal) == ("broker.reload", "done", "System:sparrow")
    assert event.details["loaded"] == ("tokens", "log.level")
