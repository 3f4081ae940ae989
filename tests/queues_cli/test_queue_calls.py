"""Requests for queues, as frames."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from sparrow.base.errors import (
    InvalidArgument,
    InvalidConfig,
    InvalidTopicName,
    NotAuthorized,
    QueueExists,
    SparrowError,
    UnknownQueue,
)
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.native.requests import HANDLERS
from sparrow.records.builder import build_batch
from tests.native_frontend.raw import OpenListener, RawClient

NOW_MS = 1_700_000_000_000


@pytest_asyncio.fixture
async def broker(tmp_path: Path):
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as running:
        yield running


@pytest_asyncio.fixture
async def open_listener():
    opener = OpenListener()
    yield opener
    await opener.close()


@pytest_asyncio.fixture
async def client(broker: Broker, open_listener: OpenListener) -> RawClient:
    return await (await open_listener(broker)).client()


async def test_queue_is_made_described_listed_configured_and_deleted(client: RawClient) -> None:
    made = await client.call("queue.create", name="emails", policy={"lease_ms": 1000}, partitions=3)
    assert (made["name"], made["kind"], made["topics"], made["is_paused"]) == (
        "emails",
        "queue",
        ["emails"],
        False,
    )
    assert made["policy"]["lease_ms"] == 1000
    assert (await client.call("topic.describe", name="emails"))["partition_count"] == 3
    assert await client.call("queue.create", name="emails", policy={"lease_ms": 1000}) == made
    with pytest.raises(QueueExists):
        await client.call("queue.create", name="emails")
    configured = await client.call(
        "queue.configure",
        name="emails",
        set={"backoff": "linear", "dead_letter_topic": None},
        unset=["lease_ms"],
    )
    policy = configured["policy"]
    assert (policy["backoff"], policy["dead_letter_topic"], policy["lease_ms"]) == ("linear", None, 30_000)
    assert await client.call("queue.pause", name="emails") == {}
    assert (await client.call("queue.describe", name="emails"))["is_paused"]
    assert await client.call("queue.resume", name="emails") == {}
    listed = await client.call("queue.list", pattern="em*")
    assert [each["id"] for each in listed["queues"]] == [made["id"]]
    assert (await client.call("queue.list", pattern="x*"))["queues"] == []
    assert await client.call("queue.delete", name="emails") == {}
    with pytest.raises(UnknownQueue):
        await client.call("queue.describe", name="emails")


async def test_records_are_peeked_and_purged(broker: Broker, client: RawClient) -> None:
    await client.call("queue.create", name="emails")
    batch = build_batch(
        [b"a", None], [b"k", None], [(("priority", b"9"),), (("h", None), ("h", b"\xff"))], [NOW_MS] * 2
    )
    await broker.records.publish("emails", 0, batch)
    found = (await client.call("queue.peek", name="emails"))["records"]
    assert found == [
        {
            "topic": "emails",
            "partition": 0,
            "offset": offset,
            "timestamp": NOW_MS,
            "key": key,
            "value": value,
            "headers": headers,
            "state": "ready",
            "delivery_count": 0,
            "priority": priority,
            "consumer": "",
            "deliver_at_ms": 0,
            "error": "",
        }
        for offset, key, value, headers, priority in [
            (0, b"k", b"a", [["priority", b"9"]], 9),
            (1, None, None, [["h", None], ["h", b"\xff"]], 4),
        ]
    ]
    assert len((await client.call("queue.peek", name="emails", max_records=1, skip=1))["records"]) == 1
    assert (await client.call("queue.peek", name="emails", states=["leased"]))["records"] == []
    assert await client.call("queue.purge", name="emails") == {"purged": 2}


async def test_as_many_large_records_are_shown_as_a_response_holds_and_one_at_least(
    broker: Broker, open_listener: OpenListener
) -> None:
    client = await (await open_listener(broker, max_frame_bytes=100_000)).client()
    await client.call("queue.create", name="emails")
    for size in (20_000, 20_000, 20_000, 90_000):
        await broker.records.publish("emails", 0, build_batch([bytes(size)], timestamps=[NOW_MS]))
    assert len((await client.call("queue.peek", name="emails"))["records"]) == 2
    assert len((await client.call("queue.peek", name="emails", skip=3))["records"]) == 1


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("queue.create", {}, InvalidArgument),
        ("queue.create", {"name": 5}, InvalidArgument),
        ("queue.create", {"name": "q", "topics": "q"}, InvalidArgument),
        ("queue.create", {"name": "q", "topics": ["a", "a"]}, InvalidArgument),
        ("queue.create", {"name": "q", "topics": ["../etc"]}, InvalidTopicName),
        ("queue.create", {"name": "q", "policy": {"lease_ms": 1}}, InvalidConfig),
        ("queue.create", {"name": "q", "policy": {"leese": 1000}}, InvalidConfig),
        ("queue.create", {"name": "q", "policy": {"lease_ms": [1000]}}, InvalidConfig),
        ("queue.create", {"name": "q", "policy": {"backoff": {"a": 1}}}, InvalidConfig),
        ("queue.create", {"name": "q", "policy": {"subscribers": [1]}}, InvalidConfig),
        ("queue.create", {"name": ""}, SparrowError),
        ("queue.create", {"name": "x" * 5000}, SparrowError),
        ("queue.configure", {"name": "there", "set": {"start": "end"}}, InvalidArgument),
        ("queue.configure", {"name": "there", "unset": ["nothing"]}, InvalidConfig),
        ("queue.peek", {"name": "there", "max_records": 0}, InvalidArgument),
        ("queue.peek", {"name": "there", "max_records": 1 << 62}, InvalidArgument),
        ("queue.peek", {"name": "there", "states": ["asleep"]}, InvalidArgument),
        ("queue.peek", {"name": "there", "subscriber": "nobody"}, InvalidArgument),
        ("queue.redrive", {"name": "there", "where": {"partition": "one"}}, InvalidArgument),
        ("queue.redrive", {"name": "there", "per_second": "many"}, InvalidArgument),
        ("queue.redrive", {"name": "there", "per_second": -1}, InvalidArgument),
        ("queue.redrive", {"name": "there", "max_records": -1}, InvalidArgument),
    ],
)
async def test_wrong_calls_fail_alone(
    client: RawClient, verb: str, arguments: dict[str, object], error: type[SparrowError]
) -> None:
    await client.call("queue.create", name="there")
    with pytest.raises(error):
        await client.call(verb, **arguments)
    assert len((await client.call("queue.list"))["queues"]) == 1


VERBS = {each for each in HANDLERS if each.startswith("queue.")}


@pytest.mark.parametrize("verb", sorted(VERBS - {"queue.create", "queue.ensure", "queue.list"}))
async def test_calls_on_a_missing_queue_say_so(client: RawClient, verb: str) -> None:
    with pytest.raises(UnknownQueue, match="there is no queue 'nowhere'"):
        await client.call(verb, name="nowhere")


class Refusing:
    """An authorizer that allows everything but the given operations."""

    def __init__(self) -> None:
        self.refused: tuple[Operation, ResourceType, str] | None = None

    def allows(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
        return (operation, kind, name) != self.refused


QUEUE, TOPIC, DEAD = (ResourceType.GROUP, "q"), (ResourceType.TOPIC, "t"), (ResourceType.TOPIC, "q.dead")


@pytest.mark.parametrize(
    ("verb", "arguments", "needs"),
    [
        ("queue.create", {"topics": ["t"]}, [(Operation.ALTER_CONFIGS, QUEUE), (Operation.READ, TOPIC)]),
        ("queue.configure", {}, [(Operation.ALTER_CONFIGS, QUEUE)]),
        ("queue.pause", {}, [(Operation.ALTER_CONFIGS, QUEUE)]),
        ("queue.resume", {}, [(Operation.ALTER_CONFIGS, QUEUE)]),
        ("queue.describe", {}, [(Operation.DESCRIBE, QUEUE)]),
        ("queue.peek", {}, [(Operation.READ, QUEUE), (Operation.READ, TOPIC)]),
        ("queue.purge", {}, [(Operation.DELETE, QUEUE)]),
        ("queue.delete", {}, [(Operation.DELETE, QUEUE)]),
        ("queue.dead_letters", {}, [(Operation.READ, QUEUE), (Operation.READ, DEAD)]),
        ("queue.redrive", {}, [(Operation.READ, QUEUE), (Operation.READ, DEAD), (Operation.WRITE, TOPIC)]),
        ("queue.redrive_stop", {}, [(Operation.READ, QUEUE)]),
        ("queue.redrive_progress", {}, [(Operation.DESCRIBE, QUEUE)]),
    ],
)
async def test_each_operation_takes_the_right_that_the_document_says(
    broker: Broker, client: RawClient, verb: str, arguments: dict[str, object], needs: list
) -> None:
    await client.call("queue.create", name="q", topics=["t"])
    await broker.topics.create("q.dead", 1)
    broker.access.authorizer = refusing = Refusing()
    for operation, (kind, name) in needs:
        refusing.refused = (operation, kind, name)
        with pytest.raises(NotAuthorized):
            await client.call(verb, name="q", **arguments)
    refusing.refused = None
    await client.call(verb, name="q", **arguments)


async def test_queues_that_one_may_not_describe_are_not_listed(broker: Broker, client: RawClient) -> None:
    for name in ("mine", "yours"):
        await client.call("queue.create", name=name)
    broker.access.authorizer = refusing = Refusing()
    refusing.refused = (Operation.DESCRIBE, ResourceType.GROUP, "yours")
    assert [each["name"] for each in (await client.call("queue.list"))["queues"]] == ["mine"]
