"""`topic.watch`: the end offsets of topics, returned at once or at the first change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sparrow.base.errors import InvalidArgument, NotAuthorized, Overloaded
from sparrow.broker.access.authz import Principal
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading import watches
from sparrow.protocol.native import messages as m
from tests.native_fetch.test_fetch import ByName, filled
from tests.native_frontend.raw import OpenListener, RawClient, batch_of

if TYPE_CHECKING:
    from pathlib import Path

LONG_MS = 5000
SOON_S = 4.0
"""Long before the wait ends."""


async def watch(client: RawClient, *topics: str, **wanted: Any) -> dict[str, Any]:
    return await client.call("topic.watch", topics=list(topics), **wanted)


def ends(reply: dict[str, Any]) -> dict[str, dict[int, int]]:
    return {each["name"]: {p: end for p, _, end in each["partitions"]} for each in reply["topics"]}


class Watching:
    """A waiting watch: it gets no response until something changes."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    async def begin(self, *topics: str, **wanted: Any) -> None:
        self._client.send(
            m.Request(99, "topic.watch", {"topics": list(topics), "wait_ms": LONG_MS, **wanted})
        )
        assert await self._client.nothing_comes()

    async def end(self) -> dict[str, Any]:
        """Return the response, which must come long before the wait ends."""
        async with asyncio.timeout(SOON_S):
            response = await self._client.expect(m.Response)
        assert response.failure is None
        result: dict[str, Any] = response.result
        return result


@pytest.fixture
def watching_client(client: RawClient) -> Watching:
    return Watching(client)


async def test_a_watch_that_knows_nothing_is_answered_at_once(broker: Broker, client: RawClient) -> None:
    await broker.topics.create("wide", 3)
    await filled(broker, "orders", [b"a", b"b"], [b"c"])
    await broker.topics.delete_records("orders", {0: 1})
    reply = await watch(client, "orders", "wide", "none", wait_ms=LONG_MS)
    assert reply == {
        "topics": [
            {
                "name": "orders",
                "id": str(broker.parts.topic_registry.get("orders").id),
                "partitions": [[0, 1, 3]],
            },
            {
                "name": "wide",
                "id": str(broker.parts.topic_registry.get("wide").id),
                "partitions": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
            },
        ],
        "missing": ["none"],
    }


@pytest.mark.parametrize(
    "known",
    [
        {"orders": {0: 0}},
        {"orders": {}},
        {"orders": {0: 1, 1: 0}},
        {"orders": {0: 1}, "none": {0: 0}},
        {"none": {}},
    ],
)
async def test_a_change_since_the_known_state_is_reported_at_once(
    broker: Broker, client: RawClient, known: dict[str, dict[int, int]]
) -> None:
    await filled(broker, "orders", [b"a"])
    async with asyncio.timeout(SOON_S):
        assert ends(await watch(client, "orders", "none", known=known, wait_ms=LONG_MS)) == {"orders": {0: 1}}


async def test_another_id_than_the_known_one_is_reported_at_once(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    before = str(broker.parts.topic_registry.get("orders").id)
    await broker.topics.delete("orders")
    await filled(broker, "orders", [b"b"])
    async with asyncio.timeout(SOON_S):
        reply = await watch(
            client, "orders", known={"orders": {0: 1}}, ids={"orders": before}, wait_ms=LONG_MS
        )
    assert reply["topics"][0]["id"] not in {before, ""}


async def test_without_a_change_it_is_answered_when_the_wait_is_over(
    broker: Broker, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a"])
    assert ends(await watch(client, "orders", known={"orders": {0: 1}}, wait_ms=20)) == {"orders": {0: 1}}


async def test_an_append_wakes_it(broker: Broker, watching_client: Watching) -> None:
    await broker.topics.create("wide", 3)
    await watching_client.begin("wide", known={"wide": {0: 0, 1: 0, 2: 0}})
    await broker.records.publish("wide", 2, batch_of(b"a"), acks=1)
    assert ends(await watching_client.end()) == {"wide": {0: 0, 1: 0, 2: 1}}


async def test_other_topics_do_not_wake_it(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    await Watching(client).begin("orders", known={"orders": {0: 1}})
    await filled(broker, "others", [b"b"], [b"c"])
    await broker.topics.delete("others")
    assert await client.nothing_comes()


async def test_a_topic_that_is_made_grows_or_goes_wakes_it(broker: Broker, watching_client: Watching) -> None:
    await broker.topics.create("old", 1)
    await watching_client.begin("old", "new", known={"old": {0: 0}})
    await broker.topics.create("new", 1)
    assert ends(await watching_client.end()) == {"old": {0: 0}, "new": {0: 0}}
    await watching_client.begin("old", "new", known={"old": {0: 0}, "new": {0: 0}})
    await broker.topics.add_partitions("new", 2)
    assert ends(await watching_client.end()) == {"old": {0: 0}, "new": {0: 0, 1: 0}}
    await watching_client.begin("old", "new", known={"old": {0: 0}, "new": {0: 0, 1: 0}})
    await broker.topics.delete("old")
    reply = await watching_client.end()
    assert (ends(reply), reply["missing"]) == ({"new": {0: 0, 1: 0}}, ["old"])


async def test_a_watch_leaves_nothing_behind(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    await watch(client, "orders", known={"orders": {0: 1}}, wait_ms=1)
    watching = Watching(client)
    await watching.begin("orders", known={"orders": {0: 1}})
    watchers = len(broker.parts.topic_registry._watchers)
    assert len(broker.records.watches) == 1
    client.close()
    async with asyncio.timeout(5):
        while len(broker.records.watches) or broker.parts.topic_registry.get("orders").partitions[0]._waiters:
            await asyncio.sleep(0)
    assert len(broker.parts.topic_registry._watchers) == watchers - 1


async def test_too_many_watches_are_refused_and_those_that_do_not_wait_are_not(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MAX_WATCHES", 3)
    await filled(broker, "orders", [b"a"])
    wanted = {"topics": ["orders"], "known": {"orders": {0: 1}}, "wait_ms": LONG_MS}
    for ref in range(3):
        client.send(m.Request(1000 + ref, "topic.watch", wanted))
    assert await client.nothing_comes()
    with pytest.raises(Overloaded, match="3 callers"):
        await client.call("topic.watch", **wanted)
    assert ends(await watch(client, "orders")) == {"orders": {0: 1}}


async def test_a_topic_that_may_not_be_described_is_not_watched(
    tmp_path: Path, open_listener: OpenListener
) -> None:
    config = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)
    async with Broker(tmp_path / "locked", config=config) as broker:
        root = Principal("root")
        await broker.topics.create("orders", 1, principal=root)
        listener = await open_listener(broker, ByName())
        nobody = await listener.client(credentials={"name": "nobody"})
        for name in ("orders", "none"):
            with pytest.raises(NotAuthorized, match=name):
                await watch(nobody, name)
        await listener.close()


@pytest.mark.parametrize(
    "wanted",
    [
        {"topics": "orders"},
        {"topics": [1]},
        {"topics": ["orders"], "known": {"orders": [0]}},
        {"topics": ["orders"], "known": {"orders": {"x": 0}}},
        {"topics": ["orders"], "isolation": "serializable"},
        {"topics": ["orders"] * 10_001, "known": {"orders": {0: 0}}},
        {},
    ],
)
async def test_nonsense_is_refused_and_ends_nothing(
    broker: Broker, client: RawClient, wanted: dict[str, Any]
) -> None:
    await filled(broker, "orders", [b"a"])
    with pytest.raises(InvalidArgument):
        await client.call("topic.watch", **wanted)
    assert ends(await watch(client, "orders")) == {"orders": {0: 1}}
