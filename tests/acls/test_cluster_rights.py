"""Every route, verb and API that asks for a right of administration, through all listeners, as an
ordinary user.

The walk calls everything that the listeners serve and records which calls ask the authorizer about
the cluster, users or delegation tokens. The table below must name exactly these, so that a new call
that takes a right on the cluster cannot be forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import ssl
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
import websockets
from kio.index import load_request_schema
from kio.serial.errors import OutOfBoundValue

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import NotAuthorized, SparrowError
from sparrow.broker.access.acl_store import ADMINISTRATION, StoredAuthorizer
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.client.results import AccessRule
from sparrow.frontends.kafka.apis import APIS
from sparrow.protocol.native import messages as m
from sparrow.testing.running_broker import RunningBroker
from tests.acls.logins import TOKENS
from tests.acls.test_acl_enforcement import (
    CLUSTER_DENIED,
    DENIALS,
    GROUP,
    ROWS,
    SECRET,
    TOPIC_DENIED,
    Row,
    Site,
    codes,
    message,
)
from tests.acls.test_acl_native import CALLS as NATIVE_CALLS
from tests.http_admin.test_http_rights import CALLS as HTTP_CALLS
from tests.http_admin.test_http_rights import QUERIES, path_of
from tests.http_frontend.raw import ask
from tests.kafka_frontend.raw import RawClient as RawKafkaClient
from tests.native_frontend.raw import RawClient, batch_of
from tests.security.certificates import Certificates, make_certificates
from tests.security.test_native_security import tls_options

ORDINARY: Final = "alice"
"""A user without a rule; another user has one."""
MODES: Final = ("auto", "allow")
REFUSED: Final = "refused"

Outcome = str | None
"""REFUSED, or None."""
Call = Callable[[RunningBroker, str, uuid.UUID], Outcome]


# ── the calls ─────────────────────────────────────────────────────────────────────────────────────


def http_call(method: str, template: str, body: Any) -> Call:
    def call(broker: RunningBroker, user: str, _: uuid.UUID) -> Outcome:
        path = path_of(template) + QUERIES.get((method, template), "")
        content = (
            None if body is None and method == "GET" else b"" if body is None else json.dumps(body).encode()
        )
        headers = {"Authorization": f"Bearer {TOKENS[user]}", "Connection": "close"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        if path.endswith("/stream"):  # it would not end
            path += "?max_messages=0"
        port = int(broker.http.rpartition(":")[2])
        response = asyncio.run(ask(port, method, path, content, headers))
        return REFUSED if response.status == 403 else None

    return call


def native_call(verb: str, arguments: dict[str, Any]) -> Call:
    async def doing(client: RawClient) -> None:
        await client.call(verb, **arguments)

    return native(doing)


def native(doing: Callable[[RawClient], Awaitable[None]]) -> Call:
    async def ask_it(broker: RunningBroker, user: str) -> Outcome:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", broker.port))
        try:
            await client.hello(credentials={"token": TOKENS[user]})
            await doing(client)
        except NotAuthorized:
            return REFUSED
        except SparrowError:
            return None
        finally:
            client.close()
        return None

    return lambda broker, user, _: asyncio.run(ask_it(broker, user))


async def open_idempotent(client: RawClient) -> None:
    client.send(m.OpenProducer(True), 1)
    head = (await client.receive()).head
    if isinstance(head, m.Error):
        raise NotAuthorized(head.text)


async def publish_to_a_new_topic(client: RawClient) -> None:
    await client.open_producer()
    client.send(m.Publish(1, "new-by-native", 0, -1), 1, batch_of(b"x"))
    failure = (await client.expect(m.Confirm, 1)).confirmations[0].failure
    if failure is not None and failure.code == "NOT_AUTHORIZED":
        raise NotAuthorized(failure.text)


def kafka_call(row: Row) -> Call:
    newest = dataclasses.replace(row, first=row.versions()[-1], last=row.versions()[-1])

    def call(broker: RunningBroker, user: str, topic_id: uuid.UUID) -> Outcome:
        try:
            ((_, response),) = Site(broker, topic_id).asks(user, newest)
        # no transaction, begun at -1: the codec of the tests cannot read that
        except OutOfBoundValue:
            return None
        return REFUSED if codes(response) & DENIALS else None

    return call


def websocket_call(kind: str, **members: Any) -> Call:
    async def ask_it(broker: RunningBroker, user: str) -> Outcome:
        url = f"{broker.http.replace('http', 'ws')}/v1/ws"
        headers = {"Authorization": f"Bearer {TOKENS[user]}"}
        async with websockets.connect(url, additional_headers=headers, proxy=None) as socket:
            await socket.send(json.dumps({"type": kind, **members}))
            response = json.loads(await socket.recv())
        return REFUSED if response.get("error", {}).get("code") == "NOT_AUTHORIZED" else None

    return lambda broker, user, _: asyncio.run(ask_it(broker, user))


CALLS: dict[str, Call] = {
    **{f"HTTP {method} {path}": http_call(method, path, body) for (method, path), body in HTTP_CALLS.items()},
    **{
        f"native {verb}": native_call(verb, arguments)
        for verb, arguments in (NATIVE_CALLS | {"topic.ensure": {"name": "ensured"}}).items()
    },
    "native OPEN_PRODUCER, idempotent": native(open_idempotent),
    "native PUBLISH to a new topic": native(publish_to_a_new_topic),
    **{
        f"Kafka {APIS[row.key].name}{' ' + row.what if row.what else ''}": kafka_call(row)
        for row in ROWS
        if row.user == "nobody"
    },
    "WebSocket publish to a new topic": websocket_call(
        "publish", topic="new-by-socket", message={"value": "x"}
    ),
    "WebSocket subscribe": websocket_call("subscribe", subscription="s", topics=[SECRET], credit=1),
    "WebSocket subscribe to a queue": websocket_call(
        "subscribe", subscription="s", queue="secret-queue", credit=1
    ),
}


ADMINISTRATIVE: Final = {
    "HTTP GET /v1/users",
    "HTTP GET /v1/users/{user}",
    "HTTP POST /v1/users",
    "HTTP PUT /v1/users/{user}",
    "HTTP DELETE /v1/users/{user}",
    "HTTP GET /v1/acls",
    "HTTP POST /v1/acls",
    "HTTP DELETE /v1/acls",
    "HTTP POST /v1/broker/reload",
    "HTTP GET /v1/quotas",
    "HTTP PATCH /v1/quotas",
    "HTTP GET /v1/broker",
    "HTTP GET /metrics",
    "HTTP GET /v1/status",
    "HTTP GET /v1/history",
    "HTTP GET /v1/config",
    "HTTP GET /v1/log",
    "HTTP GET /v1/connections",
    "HTTP DELETE /v1/connections/{number}",
    "HTTP GET /v1/tokens",
    "HTTP GET /v1/acls/check",
    "native broker.status",
    "native broker.history",
    "native broker.reload",
    "native broker.describe",
    "native user.list",
    "native user.create",
    "native user.password",
    "native user.delete",
    "native acl.create",
    "native acl.list",
    "native acl.delete",
    "native quota.alter",
    "native quota.list",
    "Kafka FindCoordinator of a share partition",
    "Kafka DescribeAcls",
    "Kafka CreateAcls",
    "Kafka DeleteAcls",
    "Kafka DescribeConfigs of the broker",
    "Kafka AlterConfigs of the broker",
    "Kafka IncrementalAlterConfigs of the broker",
    "Kafka AlterReplicaLogDirs",
    "Kafka DescribeLogDirs",
    "Kafka ElectLeaders",
    "Kafka AlterPartitionReassignments",
    "Kafka ListPartitionReassignments",
    "Kafka DescribeClientQuotas",
    "Kafka AlterClientQuotas",
    "Kafka DescribeUserScramCredentials",
    "Kafka AlterUserScramCredentials",
    "Kafka DescribeQuorum",
    "Kafka UpdateFeatures",
    "Kafka WriteTxnMarkers",
    "Kafka ListConfigResources",
}
"""Take a right on the cluster: refused whatever `acl.default` says."""
OR_ON_A_TOPIC: Final = {
    "HTTP POST /v1/topics",
    "HTTP DELETE /v1/topics/{topic}",
    "HTTP POST /v1/topics/{topic}/messages",
    "HTTP PUT /v1/queues/{queue}",
    "HTTP GET /v1/topics/{topic}/readers",
    "native topic.create",
    "native topic.ensure",
    "native topic.publish_once",
    "native topic.delete",
    "native topic.skip_batch",
    "native queue.create",
    "Kafka CreateTopics",
    "Kafka DeleteTopics",
    "Kafka DeleteTopics by id",
    "WebSocket publish to a new topic",
    "WebSocket subscribe",
}
"""A right on a topic suffices, too: refused unless `acl.default` allows topics."""
SHOW_LESS: Final = {
    "HTTP GET /v1/groups",
    "HTTP GET /v1/overview/groups",
    "HTTP GET /v1/me",
    "native group.list",
    "Kafka ListGroups",
    "Kafka DescribeCluster",
}
"""Calls that are refused to no user: they show only the allowed part."""


# ── the walk ──────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def guarded_broker(default: str) -> Iterator[tuple[RunningBroker, uuid.UUID]]:
    options: Any = {"tokens": TOKENS, "super_users": "root", "acl_default": default, "default_partitions": 1}
    with sparrow.testing.broker(**options) as broker:
        with sparrow.sync.connect(broker.url, token=TOKENS["root"]) as root:
            made = root.admin.create_topic(SECRET)
            root.admin.commit(GROUP, {(SECRET, 0): 0})
            root.admin.create_access_rules([AccessRule("Topic", "unrelated", "User:seer", "Read")])
        yield broker, uuid.UUID(made.id)


@dataclasses.dataclass
class Walk:
    """The outcome of each call, and the calls that asked about administration."""

    outcomes: dict[str, Outcome]
    asked: set[str]
    has_changed: bool = False
    """Return True if users, rules or quotas differ from before."""


def walk(monkeypatch: pytest.MonkeyPatch, default: str, user: str) -> Walk:
    asking: list[Any] = []
    allows = StoredAuthorizer.allows

    def recorded(
        self: Any, principal: Principal, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if kind in ADMINISTRATION and principal.kind == "User":
            asking.append(operation)
        return allows(self, principal, operation, kind, name)

    monkeypatch.setattr(StoredAuthorizer, "allows", recorded)
    found = Walk({}, set())
    with guarded_broker(default) as (broker, topic_id):
        before = administered(broker)
        for name, call in CALLS.items():
            asking.clear()
            found.outcomes[name] = call(broker, user, topic_id)
            if asking:
                found.asked.add(name)
        found.has_changed = administered(broker) != before
    return found


def administered(broker: RunningBroker) -> Any:
    with sparrow.sync.connect(broker.url, token=TOKENS["root"]) as root:
        return root.admin.list_users(), root.admin.list_access_rules(), root.admin.list_quotas()


@pytest.fixture(scope="module")
def walks() -> Iterator[dict[tuple[str, str], Walk]]:
    """Return the walks, by `acl.default` and user."""
    found = {}
    for default, user in (("auto", ORDINARY), ("allow", ORDINARY), ("auto", "root")):
        with pytest.MonkeyPatch.context() as patch:
            found[default, user] = walk(patch, default, user)
    return found


def test_the_table_has_every_call_that_asks_for_a_right_of_administration(walks) -> None:
    asked = set().union(*(each.asked for each in walks.values()))
    assert asked == ADMINISTRATIVE | OR_ON_A_TOPIC | SHOW_LESS


@pytest.mark.parametrize("default", MODES)
def test_an_ordinary_user_is_refused_all_administration_whatever_the_default(walks, default: str) -> None:
    found = walks[default, ORDINARY]
    assert {name for name in ADMINISTRATIVE if found.outcomes[name] is not REFUSED} == set()
    assert not found.has_changed


@pytest.mark.parametrize("default", MODES)
def test_where_a_right_on_a_topic_does_as_well_the_default_decides(walks, default: str) -> None:
    outcomes = walks[default, ORDINARY].outcomes
    expected = REFUSED if default == "auto" else None
    assert {name for name in OR_ON_A_TOPIC if outcomes[name] is not expected} == set()
    assert {name for name in SHOW_LESS if outcomes[name] is REFUSED} == set()


def test_a_super_user_is_refused_nothing(walks) -> None:
    outcomes = walks["auto", "root"].outcomes
    assert {name for name, outcome in outcomes.items() if outcome is REFUSED} == set()
    assert walks["auto", "root"].has_changed


# ── client certificates alone ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("default", MODES)
def test_client_certificates_alone_close_the_broker(certificates: Certificates, default: str) -> None:
    """Without users and tokens, a client with a certificate is an ordinary user, at every listener
    with TLS.
    """
    may_use_topics = default == "allow"
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.client.certificate, certificates.client.key)
    options = tls_options(certificates, tls_client_ca=certificates.ca, acl_default=default)
    with sparrow.testing.broker(**options) as broker:
        shown = {"certificate_file": certificates.client.certificate, "key_file": certificates.client.key}
        with sparrow.sync.connect(broker.url, ca_file=certificates.ca, **shown) as client:
            for administer in (
                client.admin.describe_broker,
                client.admin.list_users,
                lambda: client.admin.create_access_rules(
                    [AccessRule("Cluster", "kafka-cluster", "User:*", "All")]
                ),
            ):
                with pytest.raises(NotAuthorized):
                    administer()
            with contextlib.nullcontext() if may_use_topics else pytest.raises(NotAuthorized):
                client.admin.create_topic("by-native")

        port = int(broker.http.rpartition(":")[2])
        for method, path, body, is_refused in (
            ("GET", "/v1/users", None, True),
            ("POST", "/v1/topics", b'{"name": "by-http"}', not may_use_topics),
        ):
            headers = {"Content-Type": "application/json"}
            response = asyncio.run(ask(port, method, path, body, headers, tls=context))
            assert (response.status == 403) is is_refused, response

        topic = {"name": "by-kafka", "num_partitions": 1, "replication_factor": 1}
        creating = Row(19, None, {"topics": [topic], "timeout": timedelta(seconds=1)})
        rules = next(row for row in ROWS if row.key == 29)
        with RawKafkaClient(broker.kafka) as raw:
            raw.socket = context.wrap_socket(raw.socket, server_hostname="localhost")
            for row, refusals in (
                (rules, {CLUSTER_DENIED}),
                (creating, set() if may_use_topics else {TOPIC_DENIED}),
            ):
                version = row.versions()[-1]
                asked = message(load_request_schema(row.key, version), row.fields, uuid.UUID(int=0))
                assert codes(raw.call(asked)) == refusals
