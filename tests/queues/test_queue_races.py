"""Events while something else is in progress: leases that are being read or written, and queues
that change meanwhile.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.queues.held import held_up, unwritten
from tests.queues.work import Work, ack, records, settle, take

from sparrow.base.errors import LeaseExpired, StaleMember, UnknownQueue
from sparrow.broker.queues.rules.record_state import LEASED, READY
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.broker.queues.scan import scanner


async def test_grants_of_a_consumer_that_is_replaced_are_ready_at_once(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2"])
    one = await work.consumer("jobs", "one")
    with unwritten(work.queue("jobs")) as gate:
        leasing = asyncio.create_task(one.lease(10, wait_ms=500))
        await gate.reached.wait()
        again = await work.consumer("jobs", "one")
    with pytest.raises(StaleMember):
        await leasing
    leased = await again.lease(10, wait_ms=500)
    assert leased[0].ranges == [(0, 1, 1)]


async def test_a_lease_that_is_cancelled_leaves_a_later_one_of_the_same_records_alone(work: Work) -> None:
    await work.create("jobs", lease_ms=1000)
    await work.publish("jobs", [b"1", b"2"])
    one = await work.consumer("jobs", "one")
    source = work.queue("jobs").source(("jobs", 0))
    with held_up(source, "read") as gate:
        first = asyncio.create_task(one.lease(10, wait_ms=500))
        await gate.reached.wait()
        work.pass_time(1.1)
    await asyncio.sleep(0)
    with held_up(source, "read") as gate:
        work.pass_time(0)
        second = asyncio.create_task(one.lease(10, wait_ms=500))
        await gate.reached.wait()
        first.cancel()
        await asyncio.wait([first])
    leased = await second
    assert leased[0].ranges == [(0, 1, 2)]
    await ack(one, records(leased))


async def test_lease_that_ended_during_its_read_is_not_handed_out(work: Work) -> None:
    await work.create("jobs", lease_ms=1000)
    await work.publish("jobs", [b"1"])
    one, two = await work.consumer("jobs"), await work.consumer("jobs")
    source = work.queue("jobs").source(("jobs", 0))
    with held_up(source, "read") as gate:
        first = asyncio.create_task(one.lease(10))
        await gate.reached.wait()
        work.pass_time(1.1)
        gate.opened.set()
        second = await two.lease(10, wait_ms=500)
    assert await first == []
    assert second[0].ranges == [(0, 0, 2)]


async def test_a_lease_goes_on_when_the_queue_is_rebuilt_meanwhile(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2"])
    one = await work.consumer("jobs")
    with held_up(work.queue("jobs").source(("jobs", 0)), "read") as gate:
        leasing = asyncio.create_task(one.lease(10, wait_ms=5000))
        await gate.reached.wait()
        await work.broker.queues.configure("jobs", {"expiry_ms": 3_600_000})
    leased = await leasing
    assert leased[0].ranges == [(0, 1, 1)]
    await ack(one, records(leased))


@pytest.mark.parametrize("at", ["read", "kept"])
async def test_a_consumer_that_waits_while_the_queue_is_deleted_gets_the_error(work: Work, at: str) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2"])
    one = await work.consumer("jobs")
    queue = work.queue("jobs")
    holding = held_up(queue.source(("jobs", 0)), "read") if at == "read" else unwritten(queue)
    with holding as gate:
        leasing = asyncio.create_task(one.lease(10, wait_ms=5000))
        await gate.reached.wait()
        deleting = asyncio.create_task(work.broker.queues.delete("jobs"))
        await asyncio.sleep(0.05)
    await deleting
    with pytest.raises(UnknownQueue):
        await leasing


async def test_an_acknowledgement_that_waits_while_the_queue_is_deleted_fails(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2", b"3"])
    one = await work.consumer("jobs")
    taken = await take(one)
    queue = work.queue("jobs")
    with unwritten(queue):
        settling = []
        for message in taken:
            settling.append(asyncio.create_task(settle(one, Verb.ACK, [message])))
            await asyncio.sleep(0.01)
        assert queue.writer.is_writing  # two are being written, the third waits
        deleting = asyncio.create_task(work.broker.queues.delete("jobs"))
        await asyncio.sleep(0.05)
    await deleting
    await settling[0]
    await settling[1]
    with pytest.raises(UnknownQueue):
        await settling[2]


async def test_leases_of_a_topic_that_is_deleted_do_not_count_any_more(work: Work) -> None:
    await work.create("jobs", ["orders"], max_leased=3)
    await work.publish("orders", [b"1", b"2", b"3"])
    one = await work.consumer("jobs", "one")
    assert len(await take(one)) == 3
    await work.restart()
    queue = work.queue("jobs")
    queue.scanner.close()
    await work.broker.topics.delete("orders")
    subscriber = queue.state.subscribers[""]
    assert (subscriber.counts[LEASED], subscriber.leases.leased_counts, subscriber.leases.by_number) == (
        0,
        {},
        {},
    )


async def test_messages_are_found_after_a_purge_of_more_than_is_known_ahead(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "SCAN_AHEAD", 10)
    await work.create("jobs")
    for _ in range(3):
        await work.publish("jobs", [b"old"] * 20)
        await asyncio.sleep(0.02)
    assert work.queue("jobs").state.subscribers[""].counts[READY] < 60
    assert await work.broker.queues.purge("jobs") == 60
    await work.publish("jobs", [b"new"])
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"new"]


async def test_messages_are_found_after_those_before_them_expired(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "SCAN_AHEAD", 10)
    await work.create("jobs", expiry_ms=1000)
    for _ in range(3):
        await work.publish("jobs", [b"old"] * 20)
        await asyncio.sleep(0.02)
    for _ in range(3):
        work.pass_time(2)
        await asyncio.sleep(0.02)
    await work.publish("jobs", [b"new"])
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"new"]


async def test_a_parented_queue_with_more_than_is_known_ahead_is_purged(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "SCAN_AHEAD", 10)
    await work.create("jobs", order="parented")
    for _ in range(3):
        await work.publish("jobs", [b"old"] * 20)
    async with asyncio.timeout(20):
        assert await work.broker.queues.purge("jobs") == 60
    assert work.statistics("jobs").unfinished == 0


@pytest.mark.parametrize("order", ["none", "key", "parented"])
async def test_purge_leaves_leased_records_alone(work: Work, order: str) -> None:
    await work.create("jobs", order=order)
    await work.publish("jobs", [b"%d" % n for n in range(5000)], keys=[b"%d" % (n % 7) for n in range(5000)])
    one = await work.consumer("jobs")
    taken = await take(one, 3)
    assert await work.broker.queues.purge("jobs") == 4997
    assert work.statistics("jobs").unfinished == 3
    await ack(one, taken)
    assert work.statistics("jobs").unfinished == 0


async def test_a_record_that_a_woken_consumer_does_not_take_goes_to_another(work: Work) -> None:
    await work.create("jobs")
    idle, eager = await work.consumer("jobs"), await work.consumer("jobs")
    told = asyncio.create_task(idle.wait(20_000))
    await asyncio.sleep(0)
    leasing = asyncio.create_task(eager.lease(10, wait_ms=20_000))
    await asyncio.sleep(0)
    await work.publish("jobs", [b"1"])
    async with asyncio.timeout(10):
        assert await told
        idle.wake_another()
        assert [r.value for r in records(await leasing)] == [b"1"]


async def test_a_message_whose_time_is_over_while_it_is_leased_expires_when_it_comes_back(work: Work) -> None:
    await work.create("jobs")
    at = work.clock.wall_ms() + 5000
    await work.publish("jobs", [b"1", b"2"], headers=[("expires-at", b"%d" % at)])
    one = await work.consumer("jobs")
    taken = await take(one)
    work.pass_time(6)
    await settle(one, Verb.NACK, taken[:1])
    assert await take(one, wait_ms=0) == []
    await settle(one, Verb.RELEASE, taken[1:])
    assert await take(one, wait_ms=0) == []
    assert work.statistics("jobs").expired == 2


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.REJECT, Verb.EXTEND, Verb.RELEASE])
async def test_settlement_of_an_ended_lease_does_not_affect_the_next_one(work: Work, verb: Verb) -> None:
    """It crosses the record on its way to the same consumer."""
    await work.create("jobs", lease_ms=1000)
    await work.publish("jobs", [b"1"])
    one = await work.consumer("jobs")
    await take(one)
    work.pass_time(1.1)
    taken = await take(one)
    (error,) = await one.settle([Settlement(verb, "jobs", 0, 0, 0, delivery=1)])
    assert isinstance(error, LeaseExpired)
    assert work.statistics("jobs").leased == 1
    (error,) = await one.settle([Settlement(Verb.ACK, "jobs", 0, 0, 0, delivery=2)])
    assert error is None
    assert len(taken) == 1
