"""Every call of the native listener: each change is one event, and so is each refusal.

A call that is in neither table fails the test, so that the audit of a new one cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.sinks.state import Caller
from sparrow.model.broker import ReloadedConfig
from tests.acls.test_acl_native import CALLS, SHOWN, ByName
from tests.audit.recorder import Recorder, outcomes
from tests.broker.batches import batch
from tests.native_frontend.raw import Listener, OpenListener

ACTS: dict[str, tuple[str, dict[str, Any]]] = {
    "topic.create": ("topic.create", {}),
    "topic.delete": ("topic.delete", {}),
    "topic.configure": ("topic.configure", {}),
    "topic.add_partitions": ("topic.add_partitions", {}),
    "topic.ensure": ("topic.create", {}),
    "topic.delete_records": ("topic.delete_records", {}),
    "topic.skip_batch": ("topic.skip_batch", {"force": True}),
    "group.commit": ("group.commit", {"offsets": [["secret", 0, 0]]}),
    "group.reset": ("group.reset", {}),
    "group.delete": ("group.delete", {}),
    "queue.create": ("queue.create", {}),
    "queue.configure": ("queue.configure", {}),
    "queue.ensure": ("queue.ensure", {"name": "another-queue"}),
    "queue.delete": ("queue.delete", {}),
    "queue.pause": ("queue.pause", {}),
    "queue.resume": ("queue.resume", {}),
    "queue.purge": ("queue.purge", {}),
    "queue.redrive": ("queue.redrive", {}),
    "queue.redrive_stop": ("queue.redrive_stop", {}),
    "webhook.put": ("webhook.put", {"name": "other", "settings": {"url": "https://example.org"}}),
    "webhook.delete": ("webhook.delete", {}),
    "webhook.pause": ("webhook.pause", {}),
    "webhook.resume": ("webhook.resume", {}),
    "webhook.rotate_secret": ("webhook.rotate_secret", {}),
    "schedule.put": ("schedule.put", {"name": "other"}),
    "schedule.delete": ("schedule.delete", {}),
    "schedule.pause": ("schedule.pause", {}),
    "schedule.resume": ("schedule.resume", {}),
    "schedule.run": ("schedule.run", {}),
    "sink.delete": ("sink.delete", {}),
    "broker.reload": ("broker.reload", {}),
    "user.create": ("user.create", {}),
    "user.password": ("user.password", {}),
    "user.delete": ("user.delete", {}),
    "acl.create": ("acl.create", {}),
    "acl.delete": ("acl.delete", {}),
    "quota.alter": ("quota.alter", {}),
}
"""Calls that change something: the action of the event, and arguments that make the call
succeed.
"""
OTHERS = {
    "topic.describe",
    "topic.list",
    "topic.offsets",
    "topic.publish_once",
    "topic.watch",
    "topic.weigh",
    "topic.reach",
    "group.list",
    "group.describe",
    "group.offsets",
    "group.introduce",
    "group.introduced",
    "queue.describe",
    "queue.list",
    "queue.peek",
    "queue.dead_letters",
    "queue.redrive_progress",
    "webhook.describe",
    "webhook.list",
    "schedule.describe",
    "schedule.list",
    "sink.stage",
    "sink.commit",
    "sink.abort",
    "sink.renew",
    "sink.list",
    "sink.describe",
    "pipeline.report",
    "pipeline.list",
    "user.list",
    "acl.list",
    "quota.list",
    "broker.describe",
    "broker.history",
    "broker.status",
}
"""Calls that look at something, or move data."""
CONFIG = BrokerConfig(
    default_partitions=1, super_users=frozenset({"User:root"}), allow_unnamed_resources=False
)


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[Listener, Recorder]]:
    """Yield a broker with one of each resource that calls change."""
    async with Broker(path, config=CONFIG) as broker:
        await broker.topics.create("secret", principal=SYSTEM)
        await broker.records.publish("secret", 0, batch(b"secret"), principal=SYSTEM)
        await broker.groups.commit_offsets("secret-group", {("secret", 0): (1, "")}, principal=SYSTEM)
        await broker.queues.create("secret-queue", ["secret"], principal=SYSTEM)
        await broker.queues.redrive("secret-queue", principal=SYSTEM)
        await broker.webhooks.put("secret-queue", "hook", {"url": "https://example.org"}, principal=SYSTEM)
        schedule = {"queue": "secret-queue", "every": "1h"}
        await broker.schedules.put("secret-schedule", schedule, principal=SYSTEM)
        await broker.sinks.stage(
            "secret-sink", Caller("q", "r", 0), task=0, attempt=0, timeout_ms=60_000, principal=SYSTEM
        )
        await broker.users.create(
            upsertions_of("somebody", "a password", mechanisms=(Mechanism.SHA_256,)), principal=SYSTEM
        )
        broker.reload.work = _nothing_to_load
        opener = OpenListener()
        try:
            yield await opener(broker, ByName()), Recorder(broker.audit)
        finally:
            await opener.close()


async def _nothing_to_load() -> ReloadedConfig:
    return ReloadedConfig(["tokens"])


def test_each_call_is_in_one_of_the_tables() -> None:
    assert ACTS.keys() | OTHERS == CALLS.keys()
    assert not ACTS.keys() & OTHERS


@pytest.mark.parametrize("operation", ACTS)
async def test_a_call_that_changes_something_is_one_event(operation: str, tmp_path: Path) -> None:
    action, arguments = ACTS[operation]
    async with served(tmp_path / "data") as (listener, recorder):
        root = await listener.client(credentials={"name": "root"})
        recorder.take()

        await root.call(operation, **{**CALLS[operation], **arguments})

        (event,) = recorder.take()
        assert outcomes([event]) == [(action, "done", "User:root")]
        assert (event.address, event.listener, event.error) == ("127.0.0.1", "native", "")


async def test_calls_that_change_nothing_are_no_events(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (listener, recorder):
        root = await listener.client(credentials={"name": "root"})
        for operation in sorted(OTHERS - {"topic.watch", "sink.renew", "sink.commit", "sink.abort"}):
            await root.call(operation, **CALLS[operation])
            assert recorder.take() == [], operation


async def test_each_refused_call_is_one_event(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (listener, recorder):
        nobody = await listener.client(credentials={"name": "nobody"})
        for operation, arguments in CALLS.items():
            if operation in SHOWN:
                await nobody.call(operation, **arguments)
                assert recorder.take() == [], operation
                continue
            with pytest.raises(NotAuthorized):
                await nobody.call(operation, **arguments)
            (event,) = recorder.take()
            is_asked_first = operation == "topic.ensure"  # it looks whether the topic is there
            action = ACTS[operation][0] if operation in ACTS and not is_asked_first else "access"
            assert outcomes([event]) == [(action, "refused", "User:nobody")], operation
            assert (event.address, event.listener) == ("127.0.0.1", "native")
            assert (event.error, event.count) == ("NOT_AUTHORIZED", 1), operation
            assert event.details["needs"], operation


async def test_refused_publishes_and_subscriptions_are_events(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (listener, recorder):
        nobody = await listener.client(credentials={"name": "nobody"})
        await nobody.open_producer()
        for _ in range(3):
            assert (await nobody.publish("secret", b"x")).failure is not None

        (event,) = recorder.take()

        assert (event.action, event.resource, event.details["needs"]) == ("access", "secret", "Write Topic")
        assert event.count == 3


async def test_allowed_publishes_report_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path / "data") as (listener, recorder):
        root = await listener.client(credentials={"name": "root"})
        await root.open_producer()
        reports: list[Any] = []
        spied: Callable[..., Any] = lambda *given: reports.append(given)  # noqa: E731
        monkeypatch.setattr(listener.broker.audit, "_event", spied)
        monkeypatch.setattr(listener.broker.audit, "act", spied)

        assert (await root.publish("secret", b"x")).failure is None

        assert (reports, recorder.take()) == ([], [])
