"""Every call and every frame of the native protocol, sent by a user without rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.native.requests import HANDLERS
from sparrow.protocol.native import messages as m
from tests.broker.batches import batch
from tests.native_frontend.raw import Listener, OpenListener, RawClient

RULE = {"resource_type": "Topic", "name": "secret", "principal": "User:nobody", "operation": "Read"}
SALTED = ["SCRAM-SHA-256", 4096, b"salt", b"x" * 32]

CALLS: dict[str, dict[str, Any]] = {
    "topic.create": {"name": "new"},
    "topic.delete": {"name": "secret"},
    "topic.describe": {"name": "secret"},
    "topic.list": {},
    "topic.configure": {"name": "secret", "set": {"retention.ms": "1"}},
    "topic.add_partitions": {"name": "secret", "total": 9},
    "topic.ensure": {"name": "new"},
    "topic.offsets": {"name": "secret"},
    "topic.publish_once": {"name": "secret", "once": "x"},
    "topic.delete_records": {"name": "secret", "offsets": {0: 0}},
    "topic.skip_batch": {"name": "secret", "partition": 0, "offset": 0},
    "group.list": {},
    "group.describe": {"group": "secret-group"},
    "group.commit": {"group": "secret-group", "offsets": [["secret", 0, 1]]},
    "group.offsets": {"group": "secret-group"},
    "group.reset": {"group": "secret-group", "topic": "secret", "at": "end"},
    "group.delete": {"group": "secret-group"},
    "queue.create": {"name": "new-queue"},
    "queue.ensure": {"name": "new-queue"},
    "queue.configure": {"name": "secret-queue", "set": {"lease_ms": 1000}},
    "queue.delete": {"name": "secret-queue"},
    "queue.describe": {"name": "secret-queue"},
    "queue.list": {},
    "queue.pause": {"name": "secret-queue"},
    "queue.resume": {"name": "secret-queue"},
    "queue.purge": {"name": "secret-queue"},
    "queue.peek": {"name": "secret-queue"},
    "queue.dead_letters": {"name": "secret-queue"},
    "queue.redrive": {"name": "secret-queue"},
    "queue.redrive_progress": {"name": "secret-queue"},
    "queue.redrive_stop": {"name": "secret-queue"},
    "webhook.put": {"queue": "secret-queue", "name": "hook", "settings": {"url": "https://example.org"}},
    "webhook.delete": {"queue": "secret-queue", "name": "hook"},
    "webhook.describe": {"queue": "secret-queue", "name": "hook"},
    "webhook.list": {},
    "webhook.pause": {"queue": "secret-queue", "name": "hook"},
    "webhook.resume": {"queue": "secret-queue", "name": "hook"},
    "webhook.rotate_secret": {"queue": "secret-queue", "name": "hook"},
    "topic.watch": {"topics": ["secret"]},
    "topic.weigh": {"topic": "secret", "ranges": [[0, 0, 1]]},
    "topic.reach": {"topic": "secret", "points": [[0, 0, 1]]},
    "schedule.put": {"name": "secret-schedule", "settings": {"queue": "secret-queue", "every": "1m"}},
    "schedule.delete": {"name": "secret-schedule"},
    "schedule.describe": {"name": "secret-schedule"},
    "schedule.list": {},
    "schedule.pause": {"name": "secret-schedule"},
    "schedule.resume": {"name": "secret-schedule"},
    "schedule.run": {"name": "secret-schedule"},
    "sink.stage": {"sink": "secret-sink", "query": "q", "run": "r", "batch": 0},
    "sink.commit": {"sink": "secret-sink", "query": "q", "run": "r", "batch": 0},
    "sink.abort": {"sink": "secret-sink", "query": "q", "run": "r", "batch": 0},
    "sink.renew": {"sink": "secret-sink", "run": "r", "batch": 0},
    "sink.list": {},
    "sink.describe": {"sink": "secret-sink"},
    "sink.delete": {"sink": "secret-sink"},
    "pipeline.report": {"name": "secret-pipeline", "flow": "f", "run": "r", "state": "running"},
    "pipeline.list": {},
    "group.introduce": {"reader": "r", "group": "secret-group"},
    "group.introduced": {"reader": "r"},
    "broker.reload": {},
    "broker.status": {},
    "broker.history": {},
    "user.list": {},
    "user.create": {"name": "new", "credentials": [SALTED]},
    "user.password": {"name": "somebody", "credentials": [SALTED]},
    "user.delete": {"name": "somebody"},
    "acl.create": {"rules": [RULE]},
    "acl.list": {},
    "acl.delete": {},
    "quota.alter": {"entity": {"user": "nobody"}, "values": {"producer_byte_rate": 1.0}},
    "quota.list": {},
    "broker.describe": {},
}
SHOWN = {
    "topic.list": {"topics": []},
    "group.list": {"groups": []},
    "queue.list": {"queues": []},
    "webhook.list": {"webhooks": []},
    "schedule.list": {"schedules": []},
    "sink.list": {"sinks": []},
    "pipeline.list": {"pipelines": []},
    "group.introduced": {"group": None},
}
"""Calls that show less instead of refusing."""


class ByName:
    """An authenticator that accepts every client under the name it gives."""

    def authenticate(self, credentials: Any, peer: str) -> Principal:
        return Principal(credentials["name"])


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        default_partitions=1, super_users=frozenset({"User:root"}), allow_unnamed_resources=False
    )
    async with Broker(tmp_path / "data", config=config) as running:
        await running.topics.create("secret", principal=SYSTEM)
        await running.records.publish("secret", 0, batch(b"secret"), principal=SYSTEM)
        await running.groups.commit_offsets("secret-group", {("secret", 0): (1, "")}, principal=SYSTEM)
        await running.queues.create("secret-queue", ["secret"], principal=SYSTEM)
        yield running


@pytest_asyncio.fixture
async def listener(broker: Broker) -> AsyncIterator[Listener]:
    opener = OpenListener()
    yield await opener(broker, ByName())
    await opener.close()


@pytest_asyncio.fixture
async def nobody(listener: Listener) -> RawClient:
    return await listener.client(credentials={"name": "nobody"})


def test_the_table_has_every_call_that_is_served() -> None:
    assert set(CALLS) == set(HANDLERS)


async def test_every_call_refuses_or_shows_nothing(nobody: RawClient, broker: Broker) -> None:
    for operation, arguments in CALLS.items():
        if operation in SHOWN:
            assert await nobody.call(operation, **arguments) == SHOWN[operation]
        else:
            right = HANDLERS[operation].right
            with pytest.raises(NotAuthorized, match=f"User:nobody is not allowed to {right} "):
                await nobody.call(operation, **arguments)
    assert [topic.name for topic in broker.parts.topic_registry] == ["secret"]
    assert broker.parts.topic_registry.get("secret").info().partitions[0].end_offset == 1


async def test_offsets_of_topics_that_may_not_be_described_are_not_shown(listener: Listener) -> None:
    root = await listener.client(credentials={"name": "root"})
    await root.call("topic.create", name="open")
    await root.call("group.commit", group="secret-group", offsets=[["open", 0, 0]])
    rules = [
        {"resource_type": "Group", "name": "*", "principal": "User:alice", "operation": "Describe"},
        {"resource_type": "Topic", "name": "open", "principal": "User:alice", "operation": "Describe"},
    ]
    await root.call("acl.create", rules=rules)
    alice = await listener.client(credentials={"name": "alice"})
    assert (await alice.call("group.offsets", group="secret-group"))["offsets"] == [["open", 0, 0, ""]]
    described = await alice.call("group.describe", group="secret-group")
    assert [each["topic"] for each in described["offsets"]] == ["open"]
    with pytest.raises(NotAuthorized):
        await alice.call("group.offsets", group="secret-group", topics=["secret"])


async def test_topics_of_members_that_may_not_be_described_are_not_shown(listener: Listener) -> None:
    root = await listener.client(credentials={"name": "root"})
    await root.call("topic.create", name="open")
    rules = [
        {"resource_type": "Group", "name": "*", "principal": "User:alice", "operation": "Describe"},
        {"resource_type": "Topic", "name": "open", "principal": "User:alice", "operation": "Describe"},
    ]
    await root.call("acl.create", rules=rules)
    selectors = [m.Selector("secret"), m.Selector("open")]
    root.send(m.Subscribe(selectors, group="watchers"), channel=1)
    await root.expect(m.Subscribed, channel=1)
    await root.expect(m.Assigned, channel=1)
    alice = await listener.client(credentials={"name": "alice"})
    (member,) = (await alice.call("group.describe", group="watchers"))["members"]
    assert member["topics"] == ["open"]
    assert {topic for topic, _ in member["partitions"]} == {"open"}


async def test_showing_configuration_needs_the_right_to_describe_it(listener: Listener) -> None:
    root = await listener.client(credentials={"name": "root"})
    alice = await listener.client(credentials={"name": "alice"})
    rule = {**RULE, "principal": "User:alice"}
    await root.call("acl.create", rules=[{**rule, "operation": "Describe"}])
    described = await alice.call("topic.describe", name="secret")
    assert len(described["partitions"]) == 1
    assert described["config"] == []
    await root.call("acl.create", rules=[{**rule, "operation": "DescribeConfigs"}])
    assert (await alice.call("topic.describe", name="secret"))["config"]


async def test_nothing_is_published(nobody: RawClient) -> None:
    await nobody.open_producer()
    for topic in ("secret", "new"):
        confirmation = await nobody.publish(topic, b"x")
        assert confirmation.failure is not None
        assert confirmation.failure.code == "NOT_AUTHORIZED"


async def test_an_idempotent_producer_is_refused_by_the_name_of_the_topic(nobody: RawClient) -> None:
    await nobody.open_producer(1, idempotent=True)
    confirmation = await nobody.publish("secret", b"x", channel=1)
    assert confirmation.failure is not None
    assert confirmation.failure.code == "NOT_AUTHORIZED"
    assert "is not allowed to Write Topic 'secret'" in confirmation.failure.text


async def test_no_idempotent_producer_is_taken_over(nobody: RawClient) -> None:
    nobody.send(m.OpenProducer(True, 0, 0), 1)
    assert (await nobody.expect(m.Error, 1)).code == "UNKNOWN_PRODUCER"


@pytest.mark.parametrize("group", ["", "secret-group", "new"])
async def test_nothing_is_subscribed_to(nobody: RawClient, broker: Broker, group: str) -> None:
    for topic in ("secret", "new"):
        nobody.send(m.Subscribe([m.Selector(topic)], group=group), 2)
        assert (await nobody.expect(m.Error, 2)).code == "NOT_AUTHORIZED"
    if group:
        nobody.send(m.Subscribe([m.Selector("*", True)], group=group), 2)
        assert (await nobody.expect(m.Error, 2)).code == "NOT_AUTHORIZED"
    assert broker.parts.topic_registry.find("new") is None


async def test_a_pattern_brings_nothing_and_is_not_widened(nobody: RawClient) -> None:
    await nobody.subscribe("*", credit_bytes=1 << 20)
    nobody.send(m.Update(1, [m.Selector("secret")]), 2)
    response = await nobody.expect(m.Response, 2)
    assert response.failure is not None
    assert response.failure.code == "NOT_AUTHORIZED"
    assert await nobody.nothing_comes()


async def test_a_running_subscription_ends_when_its_rule_goes(listener: Listener, broker: Broker) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "secret",
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    await broker.acls.create([rule], principal=SYSTEM)
    alice = await listener.client(credentials={"name": "alice"})
    await alice.subscribe("secret", credit_bytes=1 << 20)
    await alice.expect(m.Assigned, 2)
    assert await alice.deliveries(1) == [b"secret"]
    root = await listener.client(credentials={"name": "root"})
    assert await root.call("acl.delete", name="secret") == {
        "rules": [
            {
                "resource_type": "Topic",
                "name": "secret",
                "pattern_type": "Literal",
                "principal": "User:alice",
                "host": "*",
                "operation": "Read",
                "permission": "Allow",
            }
        ]
    }
    assert (await alice.expect(m.Error, 2)).code == "NOT_AUTHORIZED"


async def test_a_rule_for_an_address_looks_at_where_the_connection_comes_from(
    listener: Listener, broker: Broker
) -> None:
    alice = await listener.client(credentials={"name": "alice"})
    root = await listener.client(credentials={"name": "root"})
    rule = {**RULE, "principal": "User:alice", "operation": "Describe"}
    await root.call("acl.create", rules=[{**rule, "host": "10.9.9.9"}])
    with pytest.raises(NotAuthorized):
        await alice.call("topic.describe", name="secret")
    await root.call("acl.create", rules=[{**rule, "host": "127.0.0.1"}])
    assert (await alice.call("topic.describe", name="secret"))["name"] == "secret"
