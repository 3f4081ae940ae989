"""Authentication by HTTP with tokens, passwords, certificates or nothing, and the broker's rules
for each.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.config import BrokerConfig
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, ask
from tests.security.certificates import Certificates, make_certificates

OPEN_TOPICS = BrokerConfig(allow_unnamed_resources=True)
PUBLISH = "/v1/topics/orders/messages"
ALICE = "Basic " + b64encode("alice:pass wörd:1".encode()).decode()
USERS = {"alice": "pass wörd:1"}
TOKENS = {"robot": "t0ken"}


async def allow(
    http: Http, who: str, operation: Operation, *, topic: str = "orders", host: str = "*"
) -> None:
    rule = AclBinding(ResourceType.TOPIC, topic, PatternType.LITERAL, who, host, operation, Permission.ALLOW)
    assert await http.broker.acls.create([rule], principal=SYSTEM) == [None]


@pytest.mark.parametrize(
    "authorization", ["Bearer t0ken", "bearer  t0ken ", ALICE, ALICE.replace("Basic", "BASIC")]
)
async def test_logged_in_user_may_publish(make_http: MakeHttp, authorization: str) -> None:
    http = await make_http(users=USERS, tokens=TOKENS, config=OPEN_TOPICS)
    assert (await http.post(PUBLISH, b"a", authorization=authorization)).status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer t0ken t0ken",
        "Basic",
        "Basic %%%",
        "Basic " + b64encode(b"alice").decode(),
        "Basic " + b64encode(b"alice:wrong").decode(),
        "Basic " + b64encode(b"nobody:x").decode(),
        "Basic " + b64encode(b"\xff:\xff").decode(),
        "Digest username=alice",
    ],
)
async def test_others_are_asked_to(make_http: MakeHttp, authorization: str | None) -> None:
    http = await make_http(users=USERS, tokens=TOKENS)
    headers = {} if authorization is None else {"authorization": authorization}
    async with Raw(http.port) as raw:
        raw.send(_bytes_of("POST", PUBLISH, b"a", headers))
        head = await raw.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert head.count(b"www-authenticate: ") == 2
    assert b'Bearer realm="sparrow"' in head
    assert http.broker.parts.topic_registry.find("orders") is None


def _bytes_of(method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    from tests.http_frontend.raw import request

    return request(method, path, body, headers)


@pytest.mark.parametrize(
    "path", ["/docs", "/openapi.json", "/metrics", "/v1/topics", "/no/such/page", PUBLISH]
)
async def test_nothing_but_health_is_open_where_login_is_required(make_http: MakeHttp, path: str) -> None:
    http = await make_http(users=USERS)
    refused = await http.get(path)
    assert refused.code == "NOT_AUTHENTICATED"
    assert "Authorization: Bearer TOKEN" in refused.json["detail"]
    assert (await http.get("/healthz")).status == (await http.get("/readyz")).status == 200


async def test_wrong_credentials_are_refused_where_none_are_needed(make_http: MakeHttp) -> None:
    http = await make_http(users=USERS, tokens=TOKENS, login=False, config=OPEN_TOPICS)
    assert (await http.post(PUBLISH, b"a")).status == 200
    assert (await http.post(PUBLISH, b"a", authorization="Bearer wrong")).status == 401


async def test_a_guess_waits_for_its_response(make_http: MakeHttp, caplog: pytest.LogCaptureFixture) -> None:
    http = await make_http(users=USERS, failed_login_delay_ms=200)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with caplog.at_level(logging.WARNING):
        assert (await http.get("/docs", authorization="Bearer guess")).status == 401
    assert loop.time() - begun > 0.19
    assert "failed logins: 1 from 1 addresses; most, 1, from 127.0.0.1" in caplog.text
    assert "guess" not in caplog.text


async def test_a_password_is_hashed_once_and_not_for_each_request(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = await make_http(users=USERS, config=OPEN_TOPICS)
    hashed: list[Any] = []
    original = hashlib.pbkdf2_hmac

    def counted(*arguments: Any, **options: Any) -> bytes:
        hashed.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    for _ in range(5):
        assert (await http.post(PUBLISH, b"a", authorization=ALICE)).status == 200
    assert len(hashed) == 1
    await http.broker.users.delete("alice", principal=SYSTEM)
    assert (await http.post(PUBLISH, b"a", authorization=ALICE)).status == 401


async def test_the_rules_of_the_broker_hold(make_http: MakeHttp) -> None:
    http = await make_http(tokens=TOKENS, config=BrokerConfig(allow_unnamed_resources=False))
    await http.broker.topics.create("orders", principal=SYSTEM)
    robot = {"authorization": "Bearer t0ken"}
    response = await http.post(PUBLISH, b"a", **robot)
    assert (response.status, response.code) == (403, "NOT_AUTHORIZED")
    await allow(http, "User:robot", Operation.WRITE)
    assert (await http.post(PUBLISH, b"a", **robot)).status == 200
    assert (await http.get(PUBLISH, **robot)).status == 403
    assert (await http.get(f"{PUBLISH}/0/0", **robot)).status == 403
    await allow(http, "User:robot", Operation.READ)
    assert (await http.get(PUBLISH, **robot)).status == 200


async def test_rules_may_name_the_address_of_the_client(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(allow_unnamed_resources=False))
    await http.broker.topics.create("orders", principal=SYSTEM)
    await allow(http, "User:ANONYMOUS", Operation.WRITE, host="10.0.0.1")
    assert (await http.post(PUBLISH, b"a")).status == 403
    await allow(http, "User:ANONYMOUS", Operation.WRITE, host="127.0.0.1")
    assert (await http.post(PUBLISH, b"a")).status == 200


async def test_a_token_in_the_address_counts_for_streams_alone(make_http: MakeHttp) -> None:
    http = await make_http(tokens=TOKENS)
    assert (await http.get(f"{PUBLISH}?access_token=t0ken")).status == 401
    refused = await http.get("/v1/topics/orders/stream?access_token=wrong")
    assert refused.status == 401
    found = await http.get("/v1/topics/%00/stream?access_token=t0ken")
    assert found.code == "INVALID_TOPIC_NAME"


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_tls(certificates: Certificates, *, asks: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    if asks:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(certificates: Certificates, *, shows: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.ca)
    if shows:
        context.load_cert_chain(certificates.client.certificate, certificates.client.key)
    return context


async def test_https_is_http_behind_tls(make_http: MakeHttp, certificates: Certificates) -> None:
    http = await make_http(tls=server_tls(certificates, asks=False), max_body_bytes=100_000)
    tls = client_tls(certificates, shows=False)
    assert (await ask(http.port, "POST", PUBLISH, b"a", tls=tls)).status == 200
    async with Raw(http.port, tls) as raw:
        for _ in range(3):
            assert (await raw.ask("GET", PUBLISH)).json["next"] == {"0": 1}
    refused = await ask(http.port, "POST", PUBLISH, bytes(100_001), tls=tls)
    assert refused.code == "BODY_TOO_LARGE"


async def test_a_certificate_says_who_asks(make_http: MakeHttp, certificates: Certificates) -> None:
    http = await make_http(
        tls=server_tls(certificates, asks=True),
        tokens=TOKENS,
        config=BrokerConfig(allow_unnamed_resources=False),
    )
    await http.broker.topics.create("orders", principal=SYSTEM)
    tls = client_tls(certificates, shows=True)
    assert (await ask(http.port, "POST", PUBLISH, b"a", tls=tls)).code == "NOT_AUTHORIZED"
    await allow(http, f"User:{certificates.client_subject}", Operation.WRITE)
    assert (await ask(http.port, "POST", PUBLISH, b"a", tls=tls)).status == 200
    as_robot = {"Authorization": "Bearer t0ken"}
    assert (await ask(http.port, "POST", PUBLISH, b"a", as_robot, tls)).code == "NOT_AUTHORIZED"
    await allow(http, "User:robot", Operation.WRITE)
    assert (await ask(http.port, "POST", PUBLISH, b"a", as_robot, tls)).status == 200


async def test_client_without_a_certificate_is_refused(
    make_http: MakeHttp, certificates: Certificates, tmp_path: Path
) -> None:
    http = await make_http(tls=server_tls(certificates, asks=True))
    with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
        await ask(http.port, "GET", "/healthz", tls=client_tls(certificates, shows=False))
    good = client_tls(certificates, shows=True)
    assert (await ask(http.port, "GET", "/healthz", tls=good)).status == 200


async def test_plain_http_on_a_tls_port_is_cut_off(make_http: MakeHttp, certificates: Certificates) -> None:
    http = await make_http(tls=server_tls(certificates, asks=False))
    async with Raw(http.port) as raw:
        raw.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert not (await raw.ended()).startswith(b"HTTP")
