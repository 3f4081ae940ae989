"""Leasing through the native frontend: credit, pulls, the content of a lease, and the records of a
consumer that goes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull
from sparrow.broker.broker import Broker
from sparrow.frontends.native import queue_channel
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.messages import SettleVerb
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
    settlement,
    statistics,
    taken_of,
    until_scanned,
)


async def test_push_leases_present_and_later_records(broker: Broker, client: RawClient) -> None:
    await made(broker, b"a", b"b", lease_ms=5000)
    answer = await opened(client, credit=10)
    assert answer.consumer_id
    assert (answer.lease_ms, answer.prefetch, answer.subscriber) == (5000, 0, "")
    head = await client.expect(m.Leased, CHANNEL)
    assert (head.ref, head.topic, head.partition) == (-1, QUEUE, 0)
    assert 0 < head.lease_ms <= 5000
    assert head.ranges == [(0, 1, 1)]
    assert taken_of(head, client.batches) == [(0, b"a", 1), (1, b"b", 1)]
    await filled(broker, b"c")
    assert await pushed(client, 1) == [(2, b"c", 1)]
    assert statistics(broker).leased == 3


async def test_each_pushed_record_takes_one_credit_and_none_comes_without(
    broker: Broker, client: RawClient
) -> None:
    await made(broker, *[b"%d" % n for n in range(10)])
    await opened(client, credit=0)
    assert await client.nothing_comes()
    client.send(m.QueueCredit(3), CHANNEL)
    assert [offset for offset, _, _ in await pushed(client, 3)] == [0, 1, 2]
    assert await client.nothing_comes()
    await acked(client, (0, 2))  # settling gives no credit
    assert await client.nothing_comes()
    client.send(m.QueueCredit(1), CHANNEL)
    client.send(m.QueueCredit(1), CHANNEL)
    assert [offset for offset, _, _ in await pushed(client, 2)] == [3, 4]
    assert await client.nothing_comes()


async def test_credit_may_be_as_large_as_a_number_can_be(broker: Broker, client: RawClient) -> None:
    await made(broker, b"a")
    await opened(client, credit=2**63 - 1)
    for _ in range(3):
        client.send(m.QueueCredit(2**63 - 1), CHANNEL)
    assert await pushed(client, 1) == [(0, b"a", 1)]


async def test_a_consumer_leases_no_more_than_its_prefetch(broker: Broker, client: RawClient) -> None:
    await made(broker, *[b"%d" % n for n in range(10)])
    assert (await opened(client, credit=100, prefetch=4)).prefetch == 4
    assert len(await pushed(client, 4)) == 4
    assert await client.nothing_comes()
    await acked(client, (1, 2))
    assert [offset for offset, _, _ in await pushed(client, 2)] == [4, 5]


async def test_a_channel_without_credit_stalls_no_other(broker: Broker, client: RawClient) -> None:
    await made(broker, b"a", b"b")
    await opened(client, channel=7, credit=0)
    await opened(client, channel=8, credit=10)
    assert len(await pushed(client, 2, channel=8)) == 2


async def test_competing_consumers_share_the_records(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, *[b"%d" % n for n in range(10)])
    other = await listener.client()
    await opened(client, credit=5)
    await opened(other, credit=5)
    ours, theirs = await pushed(client, 5), await pushed(other, 5)
    assert sorted(offset for offset, _, _ in ours + theirs) == list(range(10))


async def test_a_lease_of_nothing_gets_a_response(broker: Broker, client: RawClient) -> None:
    await made(broker)
    await opened(client, push=False)
    assert await leased(client, ref=1) == []
    assert await leased(client, ref=2, wait_ms=5) == []


async def test_a_lease_waits_for_the_first_record(broker: Broker, client: RawClient) -> None:
    await made(broker)
    await opened(client, push=False)
    client.send(m.Lease(9, 10, wait_ms=60_000), CHANNEL)
    assert await client.nothing_comes()
    await filled(broker, b"a")
    assert await lease_answer(client, ref=9) == [(0, b"a", 1)]


async def test_lease_takes_at_most_the_requested_number(broker: Broker, client: RawClient) -> None:
    await made(broker, *[b"%d" % n for n in range(10)])
    await opened(client, push=False)
    assert [value for _, value, _ in await leased(client, 3)] == [b"0", b"1", b"2"]
    assert [value for _, value, _ in await leased(client, 2)] == [b"3", b"4"]
    assert len(await leased(client, 100)) == 5


async def test_a_lease_takes_about_the_bytes_that_it_asks_for_and_at_least_one_record(
    broker: Broker, client: RawClient
) -> None:
    await made(broker)
    for _ in range(20):
        await filled(broker, bytes(10_000))
    await until_scanned(broker)
    await opened(client, push=False)
    assert len(await leased(client, 100, max_bytes=1)) == 1
    assert 1 <= len(await leased(client, 100, max_bytes=50_000)) <= 10


@pytest.mark.parametrize("push", [True, False])
async def test_while_leases_cannot_be_kept_nothing_is_leased_and_then_it_goes_on(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch, push: bool
) -> None:
    monkeypatch.setattr(queue_channel, "RETRY_S", 0.01)
    await made(broker, b"a")
    await until_scanned(broker)
    write = broker._meta.write
    failed = asyncio.Event()

    async def full(*_: Any) -> Any:
        failed.set()
        raise DiskFull("no room")

    monkeypatch.setattr(broker._meta, "write", full)
    await opened(client, push=push, credit=10)
    if not push:
        client.send(m.Lease(1, 10, wait_ms=60_000), CHANNEL)
    async with asyncio.timeout(10):
        await failed.wait()
    assert await client.nothing_comes()
    monkeypatch.setattr(broker._meta, "write", write)
    assert await (pushed(client, 1) if push else lease_answer(client)) == [(0, b"a", 1)]


async def test_a_channel_that_pulls_is_not_pushed_to(broker: Broker, client: RawClient) -> None:
    await made(broker, b"a")
    await opened(client, push=False, credit=100)
    assert await client.nothing_comes()
    assert statistics(broker).leased == 0


async def test_records_of_several_partitions_come_in_frames_of_their_own(
    broker: Broker, client: RawClient
) -> None:
    await broker.queues.create(QUEUE, policy={}, partitions=3)
    await opened(client, push=False)
    for partition in range(3):
        await broker.records.publish(QUEUE, partition, batch_of(b"x", b"y"), acks=1)
    await until_scanned(broker)
    client.send(m.Lease(1, 100), CHANNEL)
    seen = {}
    for _ in range(3):
        head = await client.expect(m.Leased, CHANNEL)
        seen[head.partition] = head.ranges
    assert seen == {0: [(0, 1, 1)], 1: [(0, 1, 1)], 2: [(0, 1, 1)]}
    assert await client.expect(m.LeaseDone, CHANNEL) == m.LeaseDone(1, 6)


async def test_close_releases_leased_records_and_the_delivery_does_not_count(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a", b"b", b"c")
    await opened(client, credit=10)
    await pushed(client, 3)
    await acked(client, 0)
    other = await listener.client()
    await opened(other, credit=10)
    assert await other.nothing_comes()
    client.send(m.Close(), CHANNEL)
    await client.expect(m.Closed, CHANNEL)
    assert await pushed(other, 2) == [(1, b"b", 1), (2, b"c", 1)]


async def test_the_goodbye_of_a_client_releases_leased_records(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a", b"b")
    await opened(client, credit=10)
    await pushed(client, 2)
    client.send(m.Settle(5, [settlement(SettleVerb.ACK, 0)]), CHANNEL)
    client.send(m.Goodbye())
    assert await client.expect(m.Settled, CHANNEL) == m.Settled(5)
    assert await client.at_eof()
    other = await listener.client()
    await opened(other, credit=10)
    assert await pushed(other, 1) == [(1, b"b", 1)]


async def test_a_lost_connection_keeps_its_leases_until_their_time(
    timed_broker: Broker, open_listener: OpenListener, clock: ManualClock
) -> None:
    listener = await open_listener(timed_broker)
    lost, other = await listener.client(), await listener.client()
    await made(timed_broker, b"a", lease_ms=5000)
    await opened(lost, credit=10)
    await pushed(lost, 1)
    lost.close()
    await opened(other, credit=10)
    assert await other.nothing_comes()
    clock.advance(4.9)
    timed_broker.parts.queue_registry.get(QUEUE).tick()
    assert await other.nothing_comes()
    clock.advance(0.2)
    timed_broker.parts.queue_registry.get(QUEUE).tick()
    assert await pushed(other, 1) == [(0, b"a", 2)]


async def test_a_consumer_that_comes_back_with_its_id_settles_its_leases(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a", b"b", b"c")
    consumer_id = (await opened(client, credit=2)).consumer_id
    await pushed(client, 2)
    client.close()
    again = await listener.client()
    assert (await opened(again, consumer_id=consumer_id, credit=10)).consumer_id == consumer_id
    assert await pushed(again, 1) == [(2, b"c", 1)]  # what it holds is not delivered to it again
    await acked(again, (0, 2))
    assert statistics(broker).unfinished == 0


async def test_an_id_that_is_opened_elsewhere_ends_the_channel_that_had_it(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a")
    await opened(client, consumer_id="worker-1", credit=10)
    await pushed(client, 1)
    other = await listener.client()
    await opened(other, consumer_id="worker-1")
    error = await client.expect(m.Error, CHANNEL)
    assert error.code == "STALE_MEMBER"
    await acked(other, 0)


async def test_the_subscribers_of_an_all_of_queue_each_get_every_record(
    broker: Broker, client: RawClient
) -> None:
    await made(broker, b"a", subscribers=["audit", "mail"])
    assert (await opened(client, channel=7, subscriber="audit")).subscriber == "audit"
    await opened(client, channel=8, subscriber="mail")
    for channel in (7, 8):
        client.send(m.QueueCredit(10), channel)
    found = {(await client.receive()).channel for _ in range(2)}
    assert found == {7, 8}
    await acked(client, 0, channel=7)
    assert statistics(broker).unfinished == 1
    await acked(client, 0, channel=8)
    assert statistics(broker).unfinished == 0


async def test_a_queue_that_is_missing_is_made_only_when_asked(broker: Broker, client: RawClient) -> None:
    client.send(m.OpenQueue(QUEUE), CHANNEL)
    assert (await client.expect(m.Error, CHANNEL)).code == "UNKNOWN_QUEUE"
    await opened(client, create=True, credit=1)
    await filled(broker, b"a")
    assert await pushed(client, 1) == [(0, b"a", 1)]


async def test_a_paused_queue_hands_out_nothing_until_it_goes_on(broker: Broker, client: RawClient) -> None:
    await made(broker, b"a")
    await broker.queues.pause(QUEUE)
    await opened(client, channel=7, credit=10)
    assert await client.nothing_comes()
    await broker.queues.resume(QUEUE)
    assert await pushed(client, 1) == [(0, b"a", 1)]


@pytest.mark.parametrize("credit", [0, 10])
async def test_a_deleted_queue_ends_its_channels(broker: Broker, client: RawClient, credit: int) -> None:
    await made(broker)
    await opened(client, credit=credit)
    await broker.queues.delete(QUEUE)
    assert (await client.expect(m.Error, CHANNEL)).code == "UNKNOWN_QUEUE"
    assert await client.nothing_comes()
