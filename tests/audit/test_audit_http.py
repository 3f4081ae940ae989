"""Every route of HTTP: each change is one event, and so is each refusal.

A route that is in neither table fails the test, so that the audit of a new one cannot be forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.broker import Broker
from sparrow.model.broker import ReloadedConfig
from tests.audit.recorder import Recorder, outcomes
from tests.audit.test_audit_native import CONFIG
from tests.broker.batches import batch
from tests.http_admin.calls import call
from tests.http_admin.test_http_rights import CALLS, ONE, OPEN, QUERIES, SHOWN, TOKENS, G, Q, T, path_of
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw

CONNECTION = "/v1/connections/{number}"
ACTS: dict[tuple[str, str], tuple[str, Any]] = {
    ("POST", "/v1/topics"): ("topic.create", {"name": "new"}),
    ("PATCH", T): ("topic.configure", {"set": {"retention.ms": "1"}}),
    ("DELETE", T): ("topic.delete", None),
    ("POST", f"{T}/partitions"): ("topic.add_partitions", {"total": 9}),
    ("POST", f"{T}/truncate"): ("topic.delete_records", {"before": {"0": 0}}),
    ("DELETE", G): ("group.delete", None),
    ("PUT", f"{G}/offsets"): (
        "group.commit",
        {"offsets": [{"topic": "secret", "partition": 0, "offset": 0}]},
    ),
    ("POST", f"{G}/reset"): ("group.reset", {"topic": "secret", "to": "end"}),
    ("POST", "/v1/queues"): ("queue.create", {"name": "new"}),
    ("PUT", Q): ("queue.create", {"topics": ["secret"], "policy": {"lease_ms": 1000}}),
    ("PATCH", Q): ("queue.configure", {"set": {"lease_ms": 1000}}),
    ("DELETE", Q): ("queue.delete", None),
    ("POST", f"{Q}/pause"): ("queue.pause", None),
    ("POST", f"{Q}/resume"): ("queue.resume", None),
    ("POST", f"{Q}/purge"): ("queue.purge", None),
    ("POST", f"{Q}/dead-letters/{{partition}}/{{offset}}/redrive"): ("queue.redrive", None),
    ("POST", f"{Q}/redrive"): ("queue.redrive", {}),
    ("DELETE", f"{Q}/redrive"): ("queue.redrive_stop", None),
    ("PUT", ONE): ("webhook.put", {"url": "https://example.org/other"}),
    ("DELETE", ONE): ("webhook.delete", None),
    ("POST", f"{ONE}/pause"): ("webhook.pause", None),
    ("POST", f"{ONE}/resume"): ("webhook.resume", None),
    ("POST", f"{ONE}/rotate-secret"): ("webhook.rotate_secret", None),
    ("PUT", "/v1/schedules/{schedule}"): ("schedule.put", {"queue": "secret-queue", "every": "2h"}),
    ("DELETE", "/v1/schedules/{schedule}"): ("schedule.delete", None),
    ("POST", "/v1/schedules/{schedule}/pause"): ("schedule.pause", None),
    ("POST", "/v1/schedules/{schedule}/resume"): ("schedule.resume", None),
    ("POST", "/v1/schedules/{schedule}/run"): ("schedule.run", None),
    ("POST", "/v1/users"): ("user.create", {"name": "new", "password": "a password"}),
    ("PUT", "/v1/users/{user}"): ("user.password", {"password": "another password"}),
    ("DELETE", "/v1/users/{user}"): ("user.delete", None),
    ("POST", "/v1/acls"): ("acl.create", CALLS["POST", "/v1/acls"]),
    ("DELETE", "/v1/acls"): ("acl.delete", None),
    ("POST", "/v1/broker/reload"): ("broker.reload", None),
    ("PATCH", "/v1/quotas"): ("quota.alter", CALLS["PATCH", "/v1/quotas"]),
    ("POST", f"{Q}/dead-letters/purge"): ("queue.purge_dead_letters", {"all": True}),
    ("DELETE", CONNECTION): ("connection.close", None),
}
"""Routes that change something: the action of the event, and a body that makes it succeed."""
DATA = {
    ("POST", f"{T}/messages"),
    ("POST", f"{Q}/messages"),
    ("POST", f"{Q}/lease"),
    ("POST", f"{Q}/ack"),
    ("POST", f"{Q}/nack"),
    ("POST", f"{Q}/reject"),
    ("POST", f"{Q}/extend"),
    ("POST", f"{Q}/release"),
}
"""Routes that move data. All others read (GET)."""
ASKED_FIRST = {
    ("POST", "/v1/users"),
    ("PUT", "/v1/users/{user}"),
    *(each for each in CALLS if each[1].startswith(ONE)),
}
"""Routes that check a right before the act begins: hashing a password is expensive, and the
existence of a webhook matters.
"""


@asynccontextmanager
async def served(path: Path, make_http: MakeHttp) -> AsyncIterator[tuple[Http, Recorder]]:
    """Yield a broker with one of each resource that routes change."""
    async with Broker(path, config=CONFIG) as broker:
        await broker.topics.create("secret", principal=SYSTEM)
        await broker.records.publish("secret", 0, batch(b"secret"), principal=SYSTEM)
        await broker.groups.commit_offsets("secret-group", {("secret", 0): (1, "")}, principal=SYSTEM)
        await broker.queues.create("secret-queue", ["secret"], principal=SYSTEM)
        await broker.queues.redrive("secret-queue", principal=SYSTEM)
        await broker.webhooks.put("secret-queue", "hook", {"url": "https://example.org"}, principal=SYSTEM)
        schedule = {"queue": "secret-queue", "every": "1h"}
        await broker.schedules.put("secret-schedule", schedule, principal=SYSTEM)
        await broker.users.create(
            upsertions_of("alice", "a password", mechanisms=(Mechanism.SHA_256,)), principal=SYSTEM
        )
        broker.reload.work = _nothing_to_load
        http = await make_http(broker=broker, tokens=TOKENS)
        try:
            yield http, Recorder(broker.audit)
        finally:
            await http.frontend.drain(1)


async def _nothing_to_load() -> ReloadedConfig:
    return ReloadedConfig(["tokens"])


def test_each_route_is_in_one_of_the_tables() -> None:
    changing = {each for each in CALLS if each[0] != "GET"}
    assert ACTS.keys() | DATA == changing
    assert not ACTS.keys() & DATA


@pytest.mark.parametrize("route", ACTS, ids=" ".join)
async def test_a_route_that_changes_something_is_one_event(
    route: tuple[str, str], tmp_path: Path, make_http: MakeHttp
) -> None:
    action, body = ACTS[route]
    method, template = route
    async with served(tmp_path / "data", make_http) as (http, recorder):
        if route == ("PUT", Q):  # creates missing resources, and changes existing ones
            await http.broker.queues.delete("secret-queue", principal=SYSTEM)
        recorder.take()

        async with Raw(http.port):
            path = path_of(template) + QUERIES.get(route, "")
            if template == CONNECTION:
                while not http.frontend.open_connections:
                    await asyncio.sleep(0)
                path = template.format(number=next(iter(http.frontend.open_connections)).number)
            response = await call(http, method, path, body, TOKENS["root"])

        assert 200 <= response.status < 300, response
        (event,) = recorder.take()
        assert outcomes([event]) == [(action, "done", "User:root")]
        assert (event.address, event.listener, event.error) == ("127.0.0.1", "http", "")


async def test_routes_that_read_are_no_events(tmp_path: Path, make_http: MakeHttp) -> None:
    async with served(tmp_path / "data", make_http) as (http, recorder):
        for method, template in CALLS.keys() | OPEN:
            if method == "GET" and not template.endswith("/stream"):
                await call(http, method, path_of(template), None, TOKENS["root"])
                assert recorder.take() == [], template


async def test_each_refused_request_is_one_event(tmp_path: Path, make_http: MakeHttp) -> None:
    async with served(tmp_path / "data", make_http) as (http, recorder):
        for (method, template), body in CALLS.items():
            path = path_of(template) + QUERIES.get((method, template), "")
            response = await call(http, method, path, body, TOKENS["nobody"])
            found = recorder.take()
            if (method, template) in SHOWN:
                assert (response.status, found) == (200, []), template
                continue
            assert response.status == 403
            (event,) = found
            assert (event.outcome.value, event.principal) == ("refused", "User:nobody"), (method, template)
            assert (event.address, event.listener) == ("127.0.0.1", "http")
            assert (event.error, event.count) == ("NOT_AUTHORIZED", 1), (method, template)
            if (method, template) in ACTS and (method, template) not in ASKED_FIRST:
                expected = "queue.create" if method == "PUT" and template == Q else ACTS[method, template][0]
                assert event.action == expected, (method, template)


async def test_each_request_without_a_login_is_one_event(tmp_path: Path, make_http: MakeHttp) -> None:
    async with served(tmp_path / "data", make_http) as (http, recorder):
        for (method, template), body in CALLS.items():
            response = await call(http, method, path_of(template), body)
            assert response.status == 401
            (event,) = recorder.take()
            assert outcomes([event]) == [("login", "refused", "")], (method, template)
            assert (event.listener, event.details["mechanism"]) == ("http", "none")
