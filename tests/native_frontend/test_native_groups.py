"""Groups through the native frontend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import GroupNotEmpty, UnknownGroup
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, RawClient, batch_of

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


async def _member(
    listener: Listener, *, member_id: str = "", credit: int = 1 << 20
) -> tuple[RawClient, m.Subscribed]:
    client = await listener.client(client_name="worker")
    subscribed = await client.subscribe("orders", group="billing", member_id=member_id, credit_bytes=credit)
    return client, subscribed


async def test_a_member_reads_commits_and_another_goes_on_there(broker: Broker, listener: Listener) -> None:
    await broker.topics.create("orders", 1)
    for value in (b"a", b"b"):
        await broker.records.publish("orders", 0, batch_of(value), acks=1)
    client, subscribed = await _member(listener)
    assert subscribed.member_id
    assert (await client.expect(m.Assigned, 2)).added == [m.PartitionAt("orders", 0, 0)]
    assert await client.deliveries(2) == [b"a", b"b"]
    client.send(m.Commit(1, [m.OffsetCommit("orders", 0, 1, "note")]), 2)
    assert await client.expect(m.Response, 2) == m.Response(1)
    client.send(m.Close(), 2)
    await client.expect(m.Closed, 2)
    assert await client.call("group.offsets", group="billing") == {"offsets": [["orders", 0, 1, "note"]]}
    other, _ = await _member(listener)
    assert (await other.expect(m.Assigned, 2)).added == [m.PartitionAt("orders", 0, 1)]
    assert await other.deliveries(1) == [b"b"]


async def test_a_second_member_gets_a_partition_when_the_first_has_given_it_back(
    broker: Broker, listener: Listener
) -> None:
    await broker.topics.create("orders", 2)
    first, _ = await _member(listener)
    assert len((await first.expect(m.Assigned, 2)).added) == 2
    second, _ = await _member(listener)
    revoke = await first.expect(m.Revoke, 2)
    assert revoke.reason == ""
    assert await second.nothing_comes()
    ((topic, partition),) = revoke.partitions
    first.send(m.Commit(1, [m.OffsetCommit(topic, partition, 0)]), 2)
    first.send(m.Revoked(revoke.epoch, revoke.partitions), 2)
    assert await first.expect(m.Response, 2) == m.Response(1)
    assert (await second.expect(m.Assigned, 2)).added == [m.PartitionAt(topic, partition, 0)]
    first.send(m.Commit(2, [m.OffsetCommit(topic, partition, 0)]), 2)
    failure = (await first.expect(m.Response, 2)).failure
    assert failure
    assert failure.code == "STALE_MEMBER"


async def test_a_reconnecting_member_keeps_its_partitions(broker: Broker, listener: Listener) -> None:
    await broker.topics.create("orders", 1)
    client, subscribed = await _member(listener)
    await client.expect(m.Assigned, 2)
    client.writer.transport.abort()
    await listener.frontend.wait_until_gone(5)
    again, resubscribed = await _member(listener, member_id=subscribed.member_id)
    assert resubscribed.member_id == subscribed.member_id
    assert len((await again.expect(m.Assigned, 2)).added) == 1


async def test_goodbye_leaves_the_group_at_once(broker: Broker, listener: Listener) -> None:
    await broker.topics.create("orders", 1)
    client, _ = await _member(listener)
    await client.expect(m.Assigned, 2)
    client.send(m.Goodbye())
    assert await client.at_eof()
    other, _ = await _member(listener)
    assert len((await other.expect(m.Assigned, 2)).added) == 1


async def test_a_member_that_another_connection_takes_over_is_reported(
    broker: Broker, listener: Listener
) -> None:
    await broker.topics.create("orders", 1)
    client, subscribed = await _member(listener)
    await client.expect(m.Assigned, 2)
    other, _ = await _member(listener, member_id=subscribed.member_id)
    assert (await client.expect(m.Error, 2)).code == "STALE_MEMBER"
    await other.expect(m.Assigned, 2)


async def test_the_group_requests(broker: Broker, listener: Listener, client: RawClient) -> None:
    await broker.topics.create("orders", 2)
    for value in (b"a", b"b", b"c"):
        await broker.records.publish("orders", 0, batch_of(value), acks=1)
    assert await client.call("group.list") == {"groups": []}
    await client.call("group.commit", group="billing", offsets=[["orders", 0, 2], ["orders", 1, 0, "x"]])
    assert await client.call("group.list") == {
        "groups": [
            {"group": "billing", "state": "empty", "members": 0, "type": "classic", "protocol_type": ""}
        ]
    }
    assert await client.call("group.offsets", group="billing", topics=["orders"]) == {
        "offsets": [["orders", 0, 2, ""], ["orders", 1, 0, "x"]]
    }
    described = await client.call("group.describe", group="billing")
    assert described["offsets"][0] == {
        "topic": "orders", "partition": 0, "offset": 2, "end_offset": 3, "lag": 1, "metadata": ""
    }  # fmt: skip
    reset = await client.call("group.reset", group="billing", topic="orders", at="end", partitions=[0])
    assert reset == {"offsets": [["orders", 0, 3]]}
    member, _ = await _member(listener)
    await member.expect(m.Assigned, 2)
    described = await client.call("group.describe", group="billing")
    (shown,) = described["members"]
    assert shown["client_name"] == "worker"
    assert sorted(shown["partitions"]) == [["orders", 0], ["orders", 1]]
    with pytest.raises(GroupNotEmpty):
        await client.call("group.reset", group="billing", topic="orders", at="beginning")
    member.send(m.Close(), 2)
    await member.expect(m.Closed, 2)
    assert await client.call("group.delete", group="billing") == {}
    with pytest.raises(UnknownGroup):
        await client.call("group.delete", group="billing")


async def test_a_commit_right_before_the_goodbye_is_answered(broker: Broker, listener: Listener) -> None:
    await broker.topics.create("orders", 1)
    client, _ = await _member(listener, credit=0)
    await client.expect(m.Assigned, 2)
    client.connection.send(m.Commit(1, [m.OffsetCommit("orders", 0, 5)]), 2)
    client.connection.send(m.Goodbye())
    client.send_raw(b"".join(client.connection.data_to_send()))
    assert await client.expect(m.Response, 2) == m.Response(1)
    await client.expect(m.Goodbye)
    assert broker.groups.describe("billing").members == []
    assert [o.offset for o in broker.groups.fetch_offsets("billing")] == [5]


async def test_a_client_that_said_goodbye_and_does_not_wait_for_its_commit_leaves_the_group_too(
    broker: Broker, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    await broker.topics.create("orders", 1)
    client, _ = await _member(listener)
    await client.expect(m.Assigned, 2)
    monkeypatch.setattr(broker.parts.group_registry, "commit", wait_for_ever)
    client.send(m.Commit(1, [m.OffsetCommit("orders", 0, 1)]), 2)
    client.send(m.Goodbye())
    assert [group.members for group in broker.groups.listing()] == [1]
    client.close()
    await listener.frontend.wait_until_gone(5)
    assert [group.members for group in broker.groups.listing()] == [0]
