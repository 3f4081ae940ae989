"""State of queues after a crash at any moment: between two writes, twice in a row, with a log that
lost its end.
"""

import asyncio
from collections.abc import Callable

import pytest
from tests.queues.held import refused, unwritten
from tests.queues.work import Work, ack, records, settle, take

from sparrow.base.errors import DiskFull
from sparrow.broker.queues.registry import QueueRegistry
from sparrow.broker.queues.rules.settlement import Verb


def after_each_write(work: Work, then: Callable[[], object]) -> None:
    """Call back whenever entries were written."""
    write = work.broker._meta.write

    async def written(writes) -> None:
        await write(writes)
        then()

    work.broker._meta.write = written


async def test_acknowledged_messages_stay_so_wherever_a_change_of_the_subscribers_crashes(work: Work) -> None:
    await work.create("jobs", subscribers=["a"])
    await work.publish("jobs", [b"1", b"2", b"3"])
    a = await work.consumer("jobs", subscriber="a")
    taken = await take(a)
    await ack(a, taken[:1])
    await ack(a, taken[2:])
    copies: list[str] = []
    after_each_write(work, lambda: copies.append(work.copied()))
    await work.broker.queues.configure("jobs", {"subscribers": ["a", "b"]})
    assert copies
    for path in copies:
        later = Work(path, work.clock, work.config)
        await later.start()
        later.pass_time(31)
        a = await later.consumer("jobs", subscriber="a")
        assert [r.value for r in await take(a)] == [b"2"]
        await later.stop()


@pytest.mark.parametrize("restarts", [1, 2])
@pytest.mark.usefixtures("large_appends")
async def test_offsets_that_a_log_gives_again_after_it_lost_its_tail_are_new_messages(
    work: Work, restarts: int
) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2"])
    before = work.copied()
    await work.publish("jobs", [b"3", b"4", b"5"])
    one = await work.consumer("jobs")
    taken = await take(one)
    await ack(one, taken[1:])
    await work.crash(loses_since=before)
    await work.publish("jobs", [b"new 3", b"new 4", b"new 5"])
    for _ in range(restarts):
        await work.crash()
    work.pass_time(31)
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"1", b"new 3", b"new 4", b"new 5"]


@pytest.mark.parametrize("restarts", [1, 2])
@pytest.mark.usefixtures("large_appends")
async def test_a_start_behind_a_log_that_lost_its_tail_is_moved_back(work: Work, restarts: int) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2"])
    before = work.copied()
    await work.publish("jobs", [b"3", b"4", b"5"])
    one = await work.consumer("jobs")
    await ack(one, await take(one))
    await work.crash(loses_since=before)
    await work.publish("jobs", [b"new 3", b"new 4", b"new 5"])
    for _ in range(restarts):
        await work.crash()
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"new 3", b"new 4", b"new 5"]


async def test_after_a_restart_an_earlier_message_of_a_key_waits_for_the_one_that_is_in_flight(
    work: Work,
) -> None:
    await work.create("jobs", order="key", lease_ms=60_000)
    at = work.clock.wall_ms() + 5000
    await work.publish("jobs", [b"a1"], keys=[b"a"], headers=[("deliver-at", b"%d" % at)])
    await work.publish("jobs", [b"a2", b"b1"], keys=[b"a", b"b"])
    one = await work.consumer("jobs", "one")
    taken = await take(one)
    assert [r.value for r in taken] == [b"a2", b"b1"]
    work.pass_time(5)
    await work.crash()
    one = await work.consumer("jobs", "one")
    assert await take(one, wait_ms=100) == []
    await ack(one, taken[:1])
    assert [r.value for r in await take(one)] == [b"a1"]


async def test_a_message_that_came_back_and_waits_for_its_key_outlives_two_crashes(work: Work) -> None:
    await work.create("jobs", order="key")
    at = work.clock.wall_ms() + 5000
    await work.publish("jobs", [b"a1"], keys=[b"a"], headers=[("deliver-at", b"%d" % at)])
    await work.publish("jobs", [b"a2"], keys=[b"a"])
    one = await work.consumer("jobs")
    await settle(one, Verb.NACK, await take(one))
    work.pass_time(5)
    for _ in range(2):
        await work.crash()
        one = await work.consumer("jobs")
        (first,) = await take(one)
        await settle(one, Verb.RELEASE, [first])
    taken = []
    for _ in range(2):
        (record,) = await take(one)
        taken.append(record.value)
        await ack(one, [record])
    assert sorted(taken) == [b"a1", b"a2"]


async def test_a_topic_that_a_queue_dropped_begins_again_when_it_is_added_again(work: Work) -> None:
    await work.create("jobs", ["orders"])
    registry: QueueRegistry = work.broker.parts.queue_registry
    await work.publish("orders", [b"1", b"2", b"3"])
    one = await work.consumer("jobs")
    await ack(one, (await take(one))[1:])
    await registry.drop_topic("jobs", "orders")
    await work.crash()
    registry = work.broker.parts.queue_registry
    await registry.add_topics("jobs", ["orders"], lambda partition: partition.start_offset)
    await work.crash()
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"1", b"2", b"3"]


async def test_a_change_that_finds_the_disk_full_leaves_the_queue_as_it_was(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2"])
    one = await work.consumer("jobs")
    await ack(one, (await take(one))[:1])
    write = work.broker._meta.write

    async def full(_writes) -> None:
        raise DiskFull("no room")

    work.broker._meta.write = full
    with pytest.raises(DiskFull):
        await work.broker.queues.configure("jobs", {"order": "key"})
    work.broker._meta.write = write
    assert work.queue("jobs").definition.policy.order == "none"
    work.pass_time(31)
    assert [r.value for r in await take(one)] == [b"2"]


async def test_an_acknowledgement_that_could_not_be_kept_is_kept_as_soon_as_there_is_room(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1"])
    one = await work.consumer("jobs")
    taken = await take(one)
    with refused(work.queue("jobs")), pytest.raises(DiskFull):
        await ack(one, taken)
    await work.publish("jobs", [b"2"])
    await take(one)
    await work.crash()
    work.pass_time(31)
    one = await work.consumer("jobs")
    assert [r.value for r in await take(one)] == [b"2"]


async def test_new_subscriber_gets_unfinished_records(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2", b"3", b"4"])
    one = await work.consumer("jobs")
    taken = await take(one, 3)
    await ack(one, taken[1:2])
    await work.broker.queues.configure("jobs", {"subscribers": ["a", "b"]})
    for name in "ab":
        consumer = await work.consumer("jobs", subscriber=name)
        assert [r.value for r in await take(consumer)] == [b"1", b"3", b"4"]


async def test_a_subscriber_that_was_removed_and_comes_again_begins_like_a_new_one(work: Work) -> None:
    await work.create("jobs", subscribers=["a", "b"])
    await work.publish("jobs", [b"1", b"2"])
    a, b = await work.consumer("jobs", subscriber="a"), await work.consumer("jobs", subscriber="b")
    await ack(a, await take(a))
    await ack(b, (await take(b))[:1])
    await work.broker.queues.configure("jobs", {"subscribers": ["b"]})
    await work.broker.queues.configure("jobs", {"subscribers": ["a", "b"]})
    work.pass_time(31)
    a = await work.consumer("jobs", subscriber="a")
    assert [r.value for r in await take(a)] == [b"2"]


async def test_a_buffered_lease_is_handed_out_before_it_is_kept_and_an_acknowledgement_is_not(
    work: Work,
) -> None:
    await work.create("jobs", lease_durability="buffered")
    await work.publish("jobs", [b"1"])
    one = await work.consumer("jobs")
    queue = work.queue("jobs")
    with unwritten(queue):
        taken = await take(one)
        assert [each.value for each in taken] == [b"1"]
        copied = work.copied()
        acknowledging = asyncio.ensure_future(ack(one, taken))
        await asyncio.sleep(0.02)
        assert not acknowledging.done()
    await acknowledging
    await work.stop()
    work.path = copied  # the lease was lost: the record comes again at once, as if for the first time
    await work.start()
    one = await work.consumer("jobs")
    leased = await one.lease(10, wait_ms=30_000)
    assert leased[0].ranges == [(0, 0, 1)]
    await ack(one, records(leased))
    await work.crash()
    assert work.statistics("jobs").unfinished == 0
