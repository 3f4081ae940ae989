"""The handlers of REQUEST."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import (
    InternalError,
    InvalidArgument,
    InvalidTopicName,
    NotAuthenticated,
    Overloaded,
    SparrowError,
    TopicExists,
    UnknownTopic,
)
from sparrow.broker.access.authz import Principal
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import OpenListener, RawClient, batch_of

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


async def test_the_life_of_a_topic(client: RawClient) -> None:
    made = await client.call("topic.create", name="orders", partitions=2, config={"retention.ms": "1000"})
    assert (made["name"], made["partition_count"]) == ("orders", 2)
    with pytest.raises(TopicExists):
        await client.call("topic.create", name="orders")
    configured = await client.call(
        "topic.configure", name="orders", set={"segment.bytes": "1048576"}, unset=["retention.ms"]
    )
    sources = {c["name"]: c["source"] for c in configured["config"]}
    assert (sources["segment.bytes"], sources["retention.ms"]) == ("topic", "default")
    grown = await client.call("topic.add_partitions", name="orders", total=3)
    assert [p["partition"] for p in grown["partitions"]] == [0, 1, 2]
    described = await client.call("topic.describe", name="orders")
    assert described["id"] == made["id"]
    await client.call("topic.ensure", name="audit")
    listed = await client.call("topic.list", pattern="ord*")
    assert listed["topics"] == [
        {"name": "orders", "id": made["id"], "partition_count": 3, "partitions": [], "config": []}
    ]
    assert await client.call("topic.delete", name="orders") == {}
    with pytest.raises(UnknownTopic):
        await client.call("topic.describe", name="orders")


async def test_offsets_and_delete_records(broker: Broker, client: RawClient) -> None:
    await broker.topics.create("orders", 1)
    for value in (b"a", b"b"):
        await broker.records.publish("orders", 0, batch_of(value), acks=1)
    assert await client.call("topic.offsets", name="orders", at="end") == {"offsets": [[0, 2, -1]]}
    found = await client.call(
        "topic.offsets", name="orders", partition=0, at="timestamp", value=1_700_000_000_000
    )
    assert found == {"offsets": [[0, 0, 1_700_000_000_000]]}
    assert await client.call("topic.delete_records", name="orders", offsets={0: 1}) == {"starts": {0: 1}}
    assert await client.call("topic.offsets", name="orders", at="beginning") == {"offsets": [[0, 1, -1]]}


async def test_the_broker_describes_itself(broker: Broker, client: RawClient) -> None:
    described = await client.call("broker.describe")
    assert described["cluster_id"] == broker.cluster_id
    assert described["connections"] == 1
    assert {"version", "uptime_ms", "topics", "partitions", "bytes"} <= described.keys()


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("topic.explode", {}, InvalidArgument),
        ("topic.create", {}, InvalidArgument),
        ("topic.create", {"name": 5}, InvalidArgument),
        ("topic.create", {"name": "a", "partitions": 1 << 70 >> 7}, SparrowError),
        ("topic.create", {"name": "../etc"}, InvalidTopicName),
        ("topic.create", {"name": "x" * 300}, InvalidTopicName),
        ("topic.delete_records", {"name": "a", "offsets": {"0": 1}}, InvalidArgument),
        ("group.commit", {"group": "g", "offsets": [["a"]]}, InvalidArgument),
        ("topic.offsets", {"name": "nowhere"}, UnknownTopic),
    ],
)
async def test_wrong_calls_fail_alone(
    client: RawClient, verb: str, arguments: dict[str, object], error: type[SparrowError]
) -> None:
    with pytest.raises(error):
        await client.call(verb, **arguments)
    await client.call("broker.describe")


async def test_a_bug_becomes_internal_and_is_logged_and_no_other_client_notices(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(broker.topics, "describe", broken)
    monkeypatch.setattr(broker.records, "publish", broken)
    await client.open_producer()
    with caplog.at_level(logging.ERROR):
        with pytest.raises(InternalError):
            await client.call("topic.describe", name="orders")
        confirmation = await client.publish("orders", b"a")
    assert confirmation.failure
    assert confirmation.failure.code == "INTERNAL"
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    await client.call("broker.describe")


async def test_an_answer_over_the_frame_limit_is_a_failure(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=2_000)
    client = await listener.client()
    for number in range(40):
        await broker.topics.create(f"topic-{number:03}", 1)
    with pytest.raises(Overloaded, match="narrower"):
        await client.call("topic.list")
    assert len((await client.call("topic.list", pattern="topic-00*"))["topics"]) == 10


async def test_many_calls_at_once_are_all_answered(client: RawClient) -> None:
    for ref in range(2_000):
        client.send(m.Request(ref, "topic.list", {}))
    refs = {(await client.expect(m.Response)).ref for _ in range(2_000)}
    assert refs == set(range(2_000))


# ── who it is ─────────────────────────────────────────────────────────────────────────────────────


class Tokens:
    def __init__(self, *, awaits: bool) -> None:
        self.awaits = awaits

    def authenticate(self, credentials: dict[str, str], peer: str) -> object:
        return self._later(credentials) if self.awaits else self._check(credentials)

    async def _later(self, credentials: dict[str, str]) -> Principal:
        return self._check(credentials)

    def _check(self, credentials: dict[str, str]) -> Principal:
        if credentials.get("token") != "open sesame":
            raise NotAuthenticated("This token is not known here.")
        return Principal("alibaba")


@pytest.mark.parametrize("awaits", [False, True])
async def test_wrong_credentials_are_refused_and_right_ones_accepted(
    broker: Broker, awaits: bool, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, Tokens(awaits=awaits))
    client = await listener.client(credentials={"token": "open sesame"})
    assert [s.principal.name for s in listener.frontend.open_connections] == ["alibaba"]
    stranger = await listener.silent_client()
    stranger.send(m.Hello("sparrow", 1, 1))
    assert (await stranger.expect(m.Error)).code == "NOT_AUTHENTICATED"
    assert await stranger.at_eof()
    await client.call("broker.describe")


async def test_rights_are_checked_for_the_principal_of_the_connection(
    broker: Broker, open_listener: OpenListener
) -> None:
    class OnlyListing:
        def allows(self, principal: Principal, *_: object) -> bool:
            return principal.name == "root"

    broker.access.authorizer = OnlyListing()
    listener = await open_listener(broker)
    client = await listener.client()
    for verb, arguments in {
        "topic.create": {"name": "orders"},
        "topic.describe": {"name": "orders"},
        "group.delete": {"group": "g"},
    }.items():
        with pytest.raises(SparrowError, match="not allowed"):
            await client.call(verb, **arguments)
    await client.open_producer()
    confirmation = await client.publish("orders", b"a")
    assert confirmation.failure
    assert confirmation.failure.code == "NOT_AUTHORIZED"
    client.send(m.Subscribe([m.Selector("orders")]), 2)
    assert (await client.expect(m.Error, 2)).code == "NOT_AUTHORIZED"
