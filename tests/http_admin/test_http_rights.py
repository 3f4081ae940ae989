"""Every route, called by a principal without rights. A route that is not in the table fails the
test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.sinks.state import Caller
from sparrow.frontends.http.leases import LeaseToken, token_text
from tests.broker.batches import batch
from tests.http_admin.calls import call
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_queues.lease_calls import until_waiting

TOKENS = {"nobody": "n-token", "somebody": "s-token", "root": "r-token"}
LEASE = {"leases": [token_text(LeaseToken(0, "c", "", "secret", 0, 0, 1))]}
RULE = {"resource_type": "Topic", "name": "secret", "principal": "User:nobody", "operation": "Read"}
Q, T, G, S = (
    "/v1/queues/{queue}",
    "/v1/topics/{topic}",
    "/v1/groups/{group}",
    "/v1/queues/{queue}/subscribers",
)
ONE = f"{S}/{{subscriber}}"

CALLS: dict[tuple[str, str], Any] = {
    ("GET", "/v1/topics"): None,
    ("POST", "/v1/topics"): {"name": "new"},
    ("GET", T): None,
    ("PATCH", T): {"set": {"retention.ms": "1"}},
    ("DELETE", T): None,
    ("POST", f"{T}/partitions"): {"total": 9},
    ("POST", f"{T}/truncate"): {"before": {"0": 0}},
    ("GET", f"{T}/offsets"): None,
    ("POST", f"{T}/messages"): {"messages": [{"value": "x"}]},
    ("GET", f"{T}/messages"): None,
    ("GET", f"{T}/messages/{{partition}}/{{offset}}"): None,
    ("GET", f"{T}/stream"): None,
    ("GET", "/v1/groups"): None,
    ("GET", G): None,
    ("DELETE", G): None,
    ("GET", f"{G}/offsets"): None,
    ("PUT", f"{G}/offsets"): {"offsets": [{"topic": "secret", "partition": 0, "offset": 1}]},
    ("POST", f"{G}/reset"): {"topic": "secret", "to": "end"},
    ("GET", "/v1/queues"): None,
    ("POST", "/v1/queues"): {"name": "new"},
    ("GET", Q): None,
    ("PUT", Q): {},
    ("PATCH", Q): {"set": {"lease_ms": 1000}},
    ("DELETE", Q): None,
    ("POST", f"{Q}/pause"): None,
    ("POST", f"{Q}/resume"): None,
    ("POST", f"{Q}/purge"): None,
    ("POST", f"{Q}/messages"): {"messages": [{"value": "x"}]},
    ("GET", f"{Q}/messages"): None,
    ("POST", f"{Q}/lease"): None,
    ("POST", f"{Q}/ack"): LEASE,
    ("POST", f"{Q}/nack"): LEASE,
    ("POST", f"{Q}/reject"): LEASE,
    ("POST", f"{Q}/extend"): LEASE,
    ("POST", f"{Q}/release"): LEASE,
    ("GET", f"{Q}/dead-letters"): None,
    ("POST", f"{Q}/dead-letters/{{partition}}/{{offset}}/redrive"): None,
    ("GET", f"{Q}/redrive"): None,
    ("POST", f"{Q}/redrive"): {},
    ("DELETE", f"{Q}/redrive"): None,
    ("GET", S): None,
    ("GET", ONE): None,
    ("PUT", ONE): {},
    ("DELETE", ONE): None,
    ("POST", f"{ONE}/pause"): None,
    ("POST", f"{ONE}/resume"): None,
    ("POST", f"{ONE}/rotate-secret"): None,
    ("GET", "/v1/schedules"): None,
    ("PUT", "/v1/schedules/{schedule}"): {"queue": "secret-queue", "every": "1m"},
    ("GET", "/v1/schedules/{schedule}"): None,
    ("DELETE", "/v1/schedules/{schedule}"): None,
    ("POST", "/v1/schedules/{schedule}/pause"): None,
    ("POST", "/v1/schedules/{schedule}/resume"): None,
    ("POST", "/v1/schedules/{schedule}/run"): None,
    ("GET", "/v1/users"): None,
    ("POST", "/v1/users"): {"name": "new", "password": "x"},
    ("GET", "/v1/users/{user}"): None,
    ("PUT", "/v1/users/{user}"): {"password": "x"},
    ("DELETE", "/v1/users/{user}"): None,
    ("GET", "/v1/acls"): None,
    ("POST", "/v1/acls"): {"rules": [RULE]},
    ("DELETE", "/v1/acls"): None,
    ("POST", "/v1/broker/reload"): None,
    ("GET", "/v1/quotas"): None,
    ("PATCH", "/v1/quotas"): {"entity": {"user": "nobody"}, "values": {"producer_byte_rate": 1}},
    ("GET", "/v1/broker"): None,
    ("GET", "/metrics"): None,
    ("GET", "/v1/status"): None,
    ("GET", "/v1/history"): None,
    ("GET", "/v1/me"): None,
    ("GET", "/v1/config"): None,
    ("GET", "/v1/log"): None,
    ("GET", "/v1/connections"): None,
    ("DELETE", "/v1/connections/{number}"): None,
    ("GET", "/v1/tokens"): None,
    ("GET", "/v1/acls/check"): None,
    ("GET", "/v1/overview/topics"): None,
    ("GET", "/v1/overview/queues"): None,
    ("GET", "/v1/overview/groups"): None,
    ("GET", f"{T}/readers"): None,
    ("GET", f"{T}/search"): None,
    ("GET", f"{Q}/dead-letter-groups"): None,
    ("POST", f"{Q}/dead-letters/purge"): {"all": True},
    ("GET", "/v1/pipelines"): None,
    ("GET", "/v1/sinks"): None,
    ("GET", "/v1/sinks/{sink}"): None,
}
QUERIES = {
    ("DELETE", "/v1/acls"): "?all=true",
    ("GET", "/v1/acls/check"): "?principal=User:a&operation=Read&resource_type=Topic&name=secret",
}
OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/v1/session"), ("DELETE", "/v1/session")}
"""Routes that need no login."""
ENDLESS = {("GET", "/v1/events")}
"""Streams that any principal may follow; what they show is in `tests/console`."""
SHOWN = {
    ("GET", "/v1/topics"): {"topics": []},
    ("GET", "/v1/groups"): {"groups": []},
    ("GET", "/v1/queues"): {"queues": []},
    ("GET", "/v1/overview/topics"): {"topics": [], "total": 0},
    ("GET", "/v1/overview/queues"): {"queues": [], "total": 0},
    ("GET", "/v1/overview/groups"): {"groups": [], "total": 0},
    ("GET", "/v1/schedules"): {"schedules": []},
    ("GET", "/v1/pipelines"): {"pipelines": []},
    ("GET", "/v1/sinks"): {"sinks": []},
    ("GET", "/v1/me"): {
        "principal": "User:nobody",
        "login": "token",
        "rights": {"cluster": [], "topic": None, "group": None},
    },
}
"""Routes that show less instead of refusing."""
PLACES = {
    "topic": "secret",
    "queue": "secret-queue",
    "group": "secret-group",
    "subscriber": "hook",
    "user": "alice",
    "partition": "0",
    "offset": "0",
    "schedule": "secret-schedule",
    "sink": "secret-sink",
    "number": "1",
}


@pytest_asyncio.fixture
async def guarded(tmp_path: Path, make_http: MakeHttp) -> AsyncIterator[Http]:
    config = BrokerConfig(
        default_partitions=1, super_users=frozenset({"User:root"}), allow_unnamed_resources=False
    )
    async with Broker(tmp_path / "data", config=config) as broker:
        await broker.topics.create("secret", principal=SYSTEM)
        await broker.records.publish("secret", 0, batch(b"secret"), principal=SYSTEM)
        await broker.groups.commit_offsets("secret-group", {("secret", 0): (1, "")}, principal=SYSTEM)
        await broker.queues.create("secret-queue", ["secret"], principal=SYSTEM)
        await broker.webhooks.put("secret-queue", "hook", {"url": "https://example.org"}, principal=SYSTEM)
        schedule = {"queue": "secret-queue", "every": "1h"}
        await broker.schedules.put("secret-schedule", schedule, principal=SYSTEM)
        caller = Caller("query", "run", 0)
        await broker.sinks.stage(
            "secret-sink", caller, task=0, attempt=0, timeout_ms=600_000, principal=SYSTEM
        )
        await broker.users.ensure({"alice": "long enough"})
        http = await make_http(broker=broker, tokens=TOKENS)
        yield http
        await http.frontend.drain(1)


def path_of(template: str) -> str:
    return template.format(**PLACES)


async def test_the_table_has_every_route_of_the_document(guarded: Http) -> None:
    response = await call(guarded, "GET", "/openapi.json", token=TOKENS["nobody"])

    served = {
        (method.upper(), path) for path, methods in response.json["paths"].items() for method in methods
    }
    assert served == CALLS.keys() | OPEN | ENDLESS


async def test_a_principal_without_rights_does_nothing_and_sees_nothing(guarded: Http) -> None:
    before = await state_of(guarded)
    for (method, template), body in CALLS.items():
        path = path_of(template) + QUERIES.get((method, template), "")
        response = await call(guarded, method, path, body, TOKENS["nobody"])
        expected = SHOWN.get((method, template))
        if expected is None:
            assert (response.status, response.code) == (403, "NOT_AUTHORIZED"), (method, path, response)
            assert "retriable" in response.json
        else:
            assert (response.status, response.json) == (200, expected), (method, path, response)
    assert await state_of(guarded) == before


@pytest.mark.parametrize("site", ["cross-site", "same-origin"])
async def test_no_get_changes_anything_even_with_every_right(guarded: Http, site: str) -> None:
    before = await state_of(guarded)
    commits = guarded.broker._meta.commit_times.count
    headers = {"Authorization": f"Bearer {TOKENS['root']}", "Sec-Fetch-Site": site}
    for method, template in sorted(CALLS.keys() | OPEN):
        if method != "GET":
            continue
        if template.endswith("/stream"):
            assert await begins(guarded, path_of(template), headers)
            continue
        for asked in ("GET", "HEAD"):
            path = path_of(template) + QUERIES.get(("GET", template), "")
            response = await guarded.ask(asked, path, headers=headers)
            assert response.status == 200, (template, response)
    assert await state_of(guarded) == before
    assert guarded.broker._meta.commit_times.count == commits, "something was stored"


async def test_a_request_without_credentials_gets_in_nowhere(guarded: Http) -> None:
    for (method, template), body in CALLS.items():
        response = await call(guarded, method, path_of(template), body)
        assert (response.status, response.code) == (401, "NOT_AUTHENTICATED"), (method, template, response)
        assert "www-authenticate" in response.headers
    for path in ("/openapi.json", "/docs"):
        assert (await call(guarded, "GET", path)).status == 401, path
    for method, path in OPEN:
        assert (await call(guarded, method, path)).status in ((200,) if method == "GET" else (204, 400))


async def test_a_principal_that_may_read_a_queue_leases_from_it_and_changes_nothing_else(
    guarded: Http,
) -> None:
    await grant(guarded, ResourceType.GROUP, "secret-queue", Operation.READ)
    await grant(guarded, ResourceType.TOPIC, "secret", Operation.READ)
    token = TOKENS["somebody"]

    leased = await call(guarded, "POST", "/v1/queues/secret-queue/lease", token=token)
    (message,) = leased.json["messages"]
    acked = await call(guarded, "POST", "/v1/queues/secret-queue/ack", {"leases": [message["lease"]]}, token)

    assert (message["value"], acked.status) == ("secret", 200)
    assert (await call(guarded, "POST", "/v1/queues/secret-queue/pause", token=token)).status == 403
    assert (await call(guarded, "POST", "/v1/queues/secret-queue/messages", {}, token)).status == 403


async def test_a_right_that_is_taken_away_ends_the_leasing_of_a_shared_consumer_for_that_user_alone(
    guarded: Http,
) -> None:
    for name in ("somebody", "nobody"):
        await grant(guarded, ResourceType.GROUP, "secret-queue", Operation.READ, name)
        await grant(guarded, ResourceType.TOPIC, "secret", Operation.READ, name)
    path = "/v1/queues/secret-queue/lease?consumer=shared"
    first = await call(guarded, "POST", path, token=TOKENS["somebody"])
    assert len(first.json["messages"]) == 1

    await guarded.broker.acls.delete([AclFilter(principal="User:somebody")], principal=SYSTEM)

    assert (await call(guarded, "POST", path, token=TOKENS["somebody"])).status == 403
    acked = await call(
        guarded,
        "POST",
        "/v1/queues/secret-queue/ack",
        {"leases": [first.json["messages"][0]["lease"]]},
        TOKENS["nobody"],
    )
    assert acked.status == 200, acked


async def test_a_right_that_is_taken_away_ends_a_wait_and_not_that_of_others_by_the_same_consumer(
    guarded: Http,
) -> None:
    for name in ("somebody", "nobody"):
        await grant(guarded, ResourceType.GROUP, "secret-queue", Operation.READ, name)
        await grant(guarded, ResourceType.TOPIC, "secret", Operation.READ, name)
    await guarded.broker.queues.purge("secret-queue", principal=SYSTEM)
    path = "/v1/queues/secret-queue/lease?consumer=shared&wait_ms=30000"
    waiting = []
    for name in ("somebody", "nobody", "somebody"):
        waiting.append(asyncio.create_task(call(guarded, "POST", path, token=TOKENS[name])))
        await until_waiting(guarded, len(waiting), "secret-queue")

    await guarded.broker.acls.delete([AclFilter(principal="User:somebody")], principal=SYSTEM)

    assert (await waiting[0]).code == "NOT_AUTHORIZED"
    await until_waiting(guarded, 1, "secret-queue")
    await guarded.broker.records.publish("secret", 0, batch(b"a", b"b"), principal=SYSTEM)
    found = (await waiting[1]).json["messages"]
    assert [each["value"] for each in found] == ["a"]
    assert (await waiting[2]).code == "NOT_AUTHORIZED"


async def test_a_right_that_is_taken_away_in_a_wait_by_the_consumer_of_another_brings_nothing(
    guarded: Http,
) -> None:
    for name in ("somebody", "nobody"):
        await grant(guarded, ResourceType.GROUP, "secret-queue", Operation.READ, name)
        await grant(guarded, ResourceType.TOPIC, "secret", Operation.READ, name)
    await guarded.broker.queues.purge("secret-queue", principal=SYSTEM)
    path = "/v1/queues/secret-queue/lease?consumer=shared"
    await call(guarded, "POST", path, token=TOKENS["nobody"])
    waiting = asyncio.create_task(call(guarded, "POST", f"{path}&wait_ms=30000", token=TOKENS["somebody"]))
    await until_waiting(guarded, 1, "secret-queue")

    await guarded.broker.acls.delete([AclFilter(principal="User:somebody")], principal=SYSTEM)
    await guarded.broker.records.publish("secret", 0, batch(b"a"), principal=SYSTEM)

    assert (await waiting).code == "NOT_AUTHORIZED"
    again = await call(guarded, "POST", path, token=TOKENS["nobody"])
    assert [(each["value"], each["delivery_count"]) for each in again.json["messages"]] == [("a", 1)]


async def grant(
    http: Http, kind: ResourceType, name: str, operation: Operation, to: str = "somebody"
) -> None:
    rule = AclBinding(kind, name, PatternType.LITERAL, f"User:{to}", "*", operation, Permission.ALLOW)
    assert await http.broker.acls.create([rule], principal=SYSTEM) == [None]


async def begins(http: Http, path: str, headers: dict[str, str]) -> bool:
    """Ask for a response that does not end; return True if it is not refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    lines = [f"GET {path}?from=beginning HTTP/1.1", "Host: localhost", *map(": ".join, headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = await reader.readuntil(b"data:")
    writer.close()
    return head.startswith(b"HTTP/1.1 200")


async def state_of(http: Http) -> Any:
    """Return everything that a call could have changed."""
    broker = http.broker
    offsets = await broker.groups.report("secret-group", principal=SYSTEM)
    return (
        broker.statistics(principal=SYSTEM)["topics"],
        broker.topics.describe("secret", principal=SYSTEM),
        offsets,
        broker.queues.listing(principal=SYSTEM)[0].policy,
        broker.queues.listing(principal=SYSTEM)[0].is_paused,
        len(broker.queues.listing(principal=SYSTEM)),
        [(each.name, each.is_paused, each.secrets) for each in broker.webhooks.listing(principal=SYSTEM)],
        broker.users.listing(principal=SYSTEM),
        broker.acls.describe(AclFilter(), principal=SYSTEM),
        broker.quotas.describe([], principal=SYSTEM),
    )
