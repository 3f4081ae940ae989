"""A queue over real logs and a real meta store: leases, acknowledgements, returns, restarts."""

import asyncio

import pytest
from tests.queues.work import Work, ack, settle, take, values

from sparrow.base.errors import InvalidArgument, LeasedByAnother, LeaseExpired, NotLeased
from sparrow.broker.queues.rules.settlement import Settlement, Verb


async def test_each_message_goes_to_one_consumer(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"%d" % n for n in range(10)])
    one, two = await work.consumer("jobs"), await work.consumer("jobs")
    first, second = await take(one, 4), await take(two, 100)
    assert [r.value for r in first + second] == [b"%d" % n for n in range(10)]
    assert len(first) == 4


async def test_acknowledged_messages_never_come_back(work: Work) -> None:
    await work.create("jobs", lease_ms=1000)
    await work.publish("jobs", [b"a", b"b", b"c"])
    one = await work.consumer("jobs")
    taken = await take(one)
    await ack(one, taken[1:2])
    work.pass_time(1.1)
    assert [r.value for r in await take(one)] == [b"a", b"c"]


async def test_state_survives_a_restart(work: Work) -> None:
    await work.create("jobs", lease_ms=10_000)
    await work.publish("jobs", [b"a", b"b", b"c", b"d"])
    one = await work.consumer("jobs", "one")
    taken = await take(one, 3)
    await ack(one, taken[:1])
    await settle(one, Verb.NACK, taken[1:2], text="no luck")
    await work.restart()
    one = await work.consumer("jobs", "one")
    again = await one.lease(100, wait_ms=500)
    assert values(again) == [b"b", b"d"]
    assert again[0].ranges == [(1, 1, 2), (3, 3, 1)]
    await ack(one, taken[2:3])  # its own lease still holds
    work.pass_time(10.1)
    assert [r.value for r in await take(one)] == [b"b", b"d"]


async def test_settling_an_unleased_record_is_refused_without_effect(work: Work) -> None:
    await work.create("jobs", lease_ms=1000)
    await work.publish("jobs", [b"a", b"b"])
    one, two = await work.consumer("jobs"), await work.consumer("jobs")
    taken = await take(one, 1)
    (error,) = await settle(two, Verb.ACK, taken)
    assert isinstance(error, LeasedByAnother)
    (error,) = await two.settle([Settlement(Verb.ACK, "jobs", 0, 0, 1)])
    assert isinstance(error, NotLeased)
    work.pass_time(1.1)
    (error,) = await settle(one, Verb.ACK, taken)
    assert isinstance(error, LeaseExpired)
    assert [r.value for r in await take(two)] == [b"a", b"b"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("verb", [Verb.NACK, Verb.RELEASE])
async def test_a_late_settlement_fails_with_lease_expired_though_another_consumer_had_the_record_since(
    work: Work, verb: Verb, restart: bool
) -> None:
    """`NotLeased` alone would mean "finished" to a client that repeats an acknowledgement."""
    await work.create("jobs", lease_ms=1000)
    await work.publish("jobs", [b"a"])
    one, two = await work.consumer("jobs", "one"), await work.consumer("jobs", "two")
    taken = await take(one)
    work.pass_time(1.1)
    await settle(two, verb, await take(two))
    if restart:
        await work.restart()
        one, two = await work.consumer("jobs", "one"), await work.consumer("jobs", "two")
    (error,) = await settle(one, Verb.ACK, taken)
    assert isinstance(error, LeaseExpired)
    assert values(await two.lease(1, wait_ms=500)) == [b"a"]


async def test_waiting_lease_gets_new_records(work: Work) -> None:
    await work.create("jobs")
    one = await work.consumer("jobs")
    waiting = asyncio.create_task(take(one, wait_ms=20_000))
    await asyncio.sleep(0)
    await work.publish("jobs", [b"late"])
    assert [r.value for r in await waiting] == [b"late"]


@pytest.mark.parametrize("restart", [False, True])
async def test_delayed_messages_wait_for_their_time(work: Work, restart: bool) -> None:
    await work.create("jobs")
    at = work.clock.wall_ms() + 5000
    await work.publish("jobs", [b"later"], headers=[("deliver-at", b"%d" % at)])
    await work.publish("jobs", [b"now"])
    if restart:
        await work.restart()
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"now"]
    assert work.statistics("jobs").delayed == 1
    work.pass_time(5)
    assert [r.value for r in await take(one)] == [b"later"]


async def test_higher_priorities_come_first(work: Work) -> None:
    await work.create("jobs")
    for priority in (1, 9, 5):
        await work.publish("jobs", [b"p%d" % priority], headers=[("priority", b"%d" % priority)])
    await work.publish("jobs", [b"none"])
    one = await work.consumer("jobs")
    taken = [record.value for _ in range(4) for record in await take(one, 1)]
    assert taken == [b"p9", b"p5", b"none", b"p1"]


async def test_higher_priorities_come_first_within_a_lease(work: Work) -> None:
    await work.create("jobs")
    for priority in (1, 9, 5, 9):
        await work.publish("jobs", [b"p%d" % priority], headers=[("priority", b"%d" % priority)])
    one = await work.consumer("jobs")
    assert [record.value for record in await take(one)] == [b"p9", b"p9", b"p5", b"p1"]


async def test_one_message_of_a_key_at_a_time(work: Work) -> None:
    await work.create("jobs", order="key")
    await work.publish("jobs", [b"a1", b"a2", b"b1", b"-"], keys=[b"a", b"a", b"b", None])
    one = await work.consumer("jobs")
    taken = await take(one)
    assert [r.value for r in taken] == [b"a1", b"b1", b"-"]
    await ack(one, taken[:1])
    assert [r.value for r in await take(one)] == [b"a2"]


@pytest.mark.parametrize("restart", [False, True])
async def test_children_wait_for_their_parents(work: Work, restart: bool) -> None:
    await work.create("jobs", order="parented")
    await work.publish("jobs", [b"child"], headers=[("message-id", b"c"), ("parent-id", b"p")])
    await work.publish("jobs", [b"parent"], headers=[("message-id", b"p")])
    one = await work.consumer("jobs")
    taken = await take(one)
    assert [r.value for r in taken] == [b"parent"]
    await ack(one, taken)
    if restart:
        await work.restart()
        one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"child"]


async def test_all_subscribers_must_accept(work: Work) -> None:
    await work.create("jobs", subscribers=["a", "b"], order="parented")
    await work.publish("jobs", [b"p"], headers=[("message-id", b"p")])
    await work.publish("jobs", [b"c"], headers=[("message-id", b"c"), ("parent-id", b"p")])
    a, b = await work.consumer("jobs", subscriber="a"), await work.consumer("jobs", subscriber="b")
    taken = await take(a)
    await ack(a, taken)
    assert await take(a, wait_ms=0) == []
    await ack(b, await take(b))
    assert [r.value for r in await take(a)] == [b"c"]
    assert [r.value for r in await take(b)] == [b"c"]


async def test_purge_and_pause(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"a", b"b", b"c"])
    one = await work.consumer("jobs")
    taken = await take(one, 1)
    await work.broker.queues.pause("jobs")
    assert await take(one, wait_ms=0) == []
    assert await work.broker.queues.purge("jobs") == 2
    await work.broker.queues.resume("jobs")
    assert await take(one, wait_ms=0) == []
    await ack(one, taken)
    assert work.statistics("jobs").unfinished == 0


async def test_one_message_wakes_one_of_many_waiting_consumers(work: Work) -> None:
    await work.create("jobs")
    consumers = [await work.consumer("jobs") for _ in range(50)]
    waiting = [asyncio.create_task(take(each, wait_ms=60_000)) for each in consumers]
    await asyncio.sleep(0)
    for number in range(10):
        await work.publish("jobs", [b"%d" % number])
        await asyncio.sleep(0.01)
    done = [task.result()[0].value for task in waiting if task.done()]
    assert sorted(done) == [b"%d" % n for n in range(10)]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_consumer_that_is_full_does_not_keep_others_asleep(work: Work) -> None:
    await work.create("jobs")
    full, other = await work.consumer("jobs", prefetch=1), await work.consumer("jobs")
    await work.publish("jobs", [b"a"])
    await take(full)
    waiting = [asyncio.create_task(take(each, wait_ms=60_000)) for each in (full, other)]
    await asyncio.sleep(0)
    await work.publish("jobs", [b"b"])
    assert [record.value for record in await waiting[1]] == [b"b"]
    waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_queues_of_any_name_are_found_by_patterns(work: Work) -> None:
    for name in ("mails/eu", "mails/us", "größe [1]", "x"):
        await work.broker.queues.create(name, ["jobs"], {"dead_letter_topic": None})

    def found(pattern: str) -> list[str]:
        return [each.name for each in work.broker.queues.listing(pattern)]

    assert found("mails/*") == ["mails/eu", "mails/us"]
    assert found("größe [?]") == ["größe [1]"]
    assert found("[x]") == []
    assert found("*" * 255) == ["größe [1]", "mails/eu", "mails/us", "x"]
    with pytest.raises(InvalidArgument, match="256 characters"):
        found("*" * 256)
