"""The end of a queue channel from the broker's side: draining, rights that are taken away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, OpenListener, RawClient, batch_of
from tests.queues_native.raw_queues import (
    CHANNEL,
    QUEUE,
    acked,
    filled,
    lease_answer,
    leased,
    made,
    opened,
    pushed,
    settled,
    settlement,
    statistics,
)


async def test_while_the_frontend_drains_nothing_is_leased_and_leased_records_can_be_settled(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a", b"b")
    await opened(client, credit=10)
    await pushed(client, 2)
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    assert (await client.expect(m.Goodbye)).code == "DRAINING"
    await filled(broker, b"c")
    assert await client.nothing_comes()
    await acked(client, 0)
    client.send(m.Close(), CHANNEL)
    await client.expect(m.Closed, CHANNEL)
    client.send(m.Goodbye())
    assert await client.at_eof()
    await draining
    seen = statistics(broker)
    assert (seen.acknowledged, seen.leased, seen.ready) == (1, 0, 2)


async def test_a_lease_that_waits_gets_its_response_when_the_frontend_drains(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker)
    await opened(client, push=False)
    client.send(m.Lease(1, 10, wait_ms=60_000), CHANNEL)
    assert await client.nothing_comes()
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    await client.expect(m.Goodbye)
    assert await lease_answer(client, ref=1) == []
    assert await leased(client, ref=2, wait_ms=60_000) == []
    client.send(m.Goodbye())
    await draining


async def test_a_client_that_leaves_because_the_broker_stops_keeps_its_leases(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a", b"b")
    await opened(client, credit=10, consumer_id="worker-1")
    await pushed(client, 2)
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    await client.expect(m.Goodbye)
    client.send(m.Goodbye())
    assert await client.at_eof()
    await draining
    assert statistics(broker).leased == 2


async def test_an_opening_that_crosses_the_goodbye_is_refused_as_draining(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker)
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    client.send(m.OpenQueue(QUEUE), CHANNEL)
    heads = [(await client.receive()).head for _ in range(2)]
    assert [head.code for head in heads if isinstance(head, m.Error)] == ["DRAINING"]
    client.send(m.Goodbye())
    await draining


async def test_a_channel_that_is_closed_while_it_opens_releases_the_leases_of_its_consumer(
    broker: Broker, client: RawClient
) -> None:
    await made(broker, b"a")
    await opened(client, credit=10, consumer_id="worker-1")
    await pushed(client, 1)
    client.send(m.OpenQueue(QUEUE, consumer_id="worker-1"), 8)
    client.send(m.Close(), 8)
    assert (await client.expect(m.Error, CHANNEL)).code == "STALE_MEMBER"
    while not isinstance((await client.receive()).head, m.Closed):
        pass
    async with asyncio.timeout(10):
        while statistics(broker).leased:
            await asyncio.sleep(0)
    assert statistics(broker).consumers == []


# ── rights ────────────────────────────────────────────────────────────────────────────────────────


class _ByName:
    """Authenticates every client under the name that it gives."""

    def authenticate(self, credentials: Any, peer: str) -> Principal:
        return Principal(credentials["name"])


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Broker]:
    """Start a broker where nothing is allowed that no rule allows, with a queue of one record."""
    config = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)
    async with Broker(tmp_path / "guarded", config=config) as running:
        await running.queues.create(QUEUE, partitions=1, principal=SYSTEM)
        await running.records.publish(QUEUE, 0, batch_of(b"a"), acks=1, principal=SYSTEM)
        yield running


def _may(kind: ResourceType, operation: Operation = Operation.READ) -> AclBinding:
    return AclBinding(kind, QUEUE, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


@pytest.mark.parametrize("missing", [ResourceType.GROUP, ResourceType.TOPIC])
async def test_a_principal_that_may_not_read_the_queue_or_its_topics_cannot_open_a_consumer(
    guarded: Broker, open_listener: OpenListener, missing: ResourceType
) -> None:
    listener = await open_listener(guarded, _ByName())
    other = ResourceType.TOPIC if missing is ResourceType.GROUP else ResourceType.GROUP
    await guarded.acls.create([_may(other)], principal=SYSTEM)
    alice = await listener.client(credentials={"name": "alice"})
    alice.send(m.OpenQueue(QUEUE, credit=10), CHANNEL)
    assert (await alice.expect(m.Error, CHANNEL)).code == "NOT_AUTHORIZED"


@pytest.mark.parametrize("credit", [1, 10])
@pytest.mark.parametrize("taken", [ResourceType.GROUP, ResourceType.TOPIC])
async def test_a_channel_ends_when_the_right_is_taken_away(
    guarded: Broker, open_listener: OpenListener, taken: ResourceType, credit: int
) -> None:
    listener = await open_listener(guarded, _ByName())
    await guarded.acls.create([_may(ResourceType.GROUP), _may(ResourceType.TOPIC)], principal=SYSTEM)
    alice = await listener.client(credentials={"name": "alice"})
    await opened(alice, credit=credit)
    await pushed(alice, 1)
    await guarded.acls.delete([AclFilter(resource_type=taken)], principal=SYSTEM)
    assert (await alice.expect(m.Error, CHANNEL)).code == "NOT_AUTHORIZED"
    await guarded.records.publish(QUEUE, 0, batch_of(b"b"), acks=1, principal=SYSTEM)
    assert await alice.nothing_comes()
    assert guarded.queues.describe(QUEUE, principal=SYSTEM).statistics.consumers == []


async def test_a_right_that_is_not_the_queues_ends_nothing(
    guarded: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(guarded, _ByName())
    await guarded.acls.create([_may(ResourceType.GROUP), _may(ResourceType.TOPIC)], principal=SYSTEM)
    alice = await listener.client(credentials={"name": "alice"})
    await opened(alice, credit=10)
    await guarded.acls.create([_may(ResourceType.TOPIC, Operation.WRITE)], principal=SYSTEM)
    assert await pushed(alice, 1) == [(0, b"a", 1)]
    assert await settled(alice, settlement(m.SettleVerb.ACK, 0)) == []
