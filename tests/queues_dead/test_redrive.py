"""Dead letters go back to their source topics, once each, and only those of the queue."""

import random

import pytest

from sparrow.base.errors import Conflict, InvalidArgument
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.model.queues import RedriveProgress
from tests.queues.work import Work, ack, settle, take
from tests.queues_dead.steps import headers_of, in_topic, moved, reject_all, until, values_of

LARGE = random.Random(1).randbytes(400)
"""A size that compression does not reduce."""


async def dead(work: Work, name: str, values: list[bytes], reason: str = "bad", **options: object) -> None:
    """Publish these and let them die."""
    for value in values:
        await work.publish(name, [value], keys=[value[:1]], **options)
    await reject_all(work, await work.consumer(name), reason)
    await moved(work, name)


async def redrive(
    work: Work, name: str, where: RedriveFilter | None = None, **options: object
) -> RedriveProgress:
    queues = work.broker.queues
    await queues.redrive(name, where or RedriveFilter(), **options)
    await until(lambda: not queues.redrive_progress(name).is_running)
    return queues.redrive_progress(name)


async def test_redriven_records_are_new_records_of_their_queue_alone(work: Work) -> None:
    await work.create("jobs")
    await work.create("audit", ("jobs",))
    await dead(work, "jobs", [b"a", b"b", b"c"], headers=[("colour", b"red")])
    assert await redrive(work, "jobs") == RedriveProgress(moved=3)
    again = await take(await work.consumer("jobs"))
    assert values_of(again) == [b"a", b"b", b"c"]
    assert [record.key for record in again] == [b"a", b"b", b"c"]
    assert headers_of(again[0]) == {"colour": b"red", "redrive-queue": b"jobs", "redrive-count": b"1"}
    assert again[0].partition == 0
    assert values_of(await take(await work.consumer("audit"))) == [b"a", b"b", b"c"]
    assert work.statistics("audit").ready == 0
    assert work.statistics("jobs").dead == 0
    assert await redrive(work, "jobs") == RedriveProgress()


async def test_a_record_that_dies_again_is_counted_and_can_be_sent_again(work: Work) -> None:
    await work.create("jobs")
    await dead(work, "jobs", [b"a"])
    for count in (b"1", b"2"):
        assert (await redrive(work, "jobs")).moved == 1
        consumer = await work.consumer("jobs")
        (again,) = await take(consumer)
        assert headers_of(again)["redrive-count"] == count
        assert [name for name, _ in again.headers].count("redrive-queue") == 1
        await settle(consumer, Verb.REJECT, [again])
        await moved(work, "jobs")
    await until(lambda: work.statistics("jobs").dead == 1)
    assert values_of(await take(await work.consumer("jobs.dead"))) == [b"a"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (RedriveFilter(), [b"a1", b"a2", b"b1"]),
        (RedriveFilter(reason="REJECTED"), [b"a1", b"a2", b"b1"]),
        (RedriveFilter(reason="DELIVERY_LIMIT"), []),
        (RedriveFilter(key=b"a"), [b"a1", b"a2"]),
        (RedriveFilter(error_contains="econd"), [b"a2", b"b1"]),
        (RedriveFilter(error_contains="econd", key=b"a"), [b"a2"]),
        (RedriveFilter(topic="jobs", partition=0), [b"a1", b"a2", b"b1"]),
        (RedriveFilter(letters=frozenset({(0, 0), (0, 2), (3, 1)})), [b"a1", b"b1"]),
        (RedriveFilter(partition=1), []),
        (RedriveFilter(subscriber="nobody"), []),
        (RedriveFilter(until_ms=10_000), [b"a1"]),
        (RedriveFilter(since_ms=10_000), [b"a2", b"b1"]),
    ],
)
async def test_only_matching_dead_letters_are_sent(
    work: Work, where: RedriveFilter, expected: list[bytes]
) -> None:
    await work.create("jobs")
    await dead(work, "jobs", [b"a1"], "first")
    began_ms = work.clock.wall_ms()
    work.clock.advance(10)
    await dead(work, "jobs", [b"a2", b"b1"], "second")
    if where.until_ms is not None:
        where = RedriveFilter(until_ms=began_ms + where.until_ms)
    if where.since_ms is not None:
        where = RedriveFilter(since_ms=began_ms + where.since_ms)
    progress = await redrive(work, "jobs", where)
    assert progress == RedriveProgress(moved=len(expected), skipped=3 - len(expected))
    assert values_of(await take(await work.consumer("jobs"))) == expected
    left = await work.broker.queues.peek("jobs.dead")
    assert len(left) == 3 - len(expected)
    assert all(each.delivery_count == 0 and each.state == "ready" for each in left)


async def test_chosen_dead_letters_that_match_and_exist_are_sent(work: Work) -> None:
    await work.create("jobs")
    await dead(work, "jobs", [b"a1"], "first")
    await dead(work, "jobs", [b"a2", b"b1"], "second")
    none = RedriveFilter(letters=frozenset())
    assert await redrive(work, "jobs", none) == RedriveProgress()
    second = RedriveFilter(letters=frozenset({(0, 1), (0, 99), (7, 0)}), error_contains="first")
    assert (await redrive(work, "jobs", second)).moved == 0
    assert (await redrive(work, "jobs", RedriveFilter(letters=frozenset({(0, 2)})))).moved == 1
    assert values_of(await take(await work.consumer("jobs"))) == [b"b1"]


async def test_an_all_of_queue_gets_them_back_at_the_subscriber_that_failed(work: Work) -> None:
    await work.create("jobs", subscribers=["a", "b"])
    await work.publish("jobs", [b"x"])
    a, b = await work.consumer("jobs", subscriber="a"), await work.consumer("jobs", subscriber="b")
    await reject_all(work, a)
    await ack(b, await take(b))
    await moved(work, "jobs")
    assert (await redrive(work, "jobs")).moved == 1
    assert values_of(await take(a)) == [b"x"]
    assert await take(b, wait_ms=50) == []


async def test_the_number_and_the_rate_are_limited(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"%d" % n for n in range(20)])
    await reject_all(work, await work.consumer("jobs"))
    await moved(work, "jobs")
    assert (await redrive(work, "jobs", max_records=5)).moved == 5
    queues = work.broker.queues
    await queues.redrive("jobs", per_second=0.01)
    await until(lambda: queues.redrive_progress("jobs").moved == 1)
    with pytest.raises(Conflict, match="already"):
        await queues.redrive("jobs")
    stopped = await queues.stop_redrive("jobs")
    assert stopped == RedriveProgress(moved=1)
    assert queues.redrive_progress("jobs") == stopped
    assert work.statistics("jobs").dead == 14
    assert (await redrive(work, "jobs", per_second=1000)).moved == 14
    assert sorted(values_of(await take(await work.consumer("jobs"))), key=int) == [
        b"%d" % n for n in range(20)
    ]


async def test_leased_dead_letters_are_left_to_their_consumers(work: Work) -> None:
    await work.create("jobs")
    await dead(work, "jobs", [b"a", b"b", b"c"])
    undertaker = await work.consumer("jobs.dead")
    taken = await take(undertaker, 1)
    assert (await redrive(work, "jobs")).moved == 2
    await ack(undertaker, taken)
    assert values_of(await take(await work.consumer("jobs"))) == [b"b", b"c"]
    assert work.statistics("jobs").dead == 0


async def test_unsendable_dead_letters_stay_and_are_reported(work: Work) -> None:
    await work.create("jobs")
    await dead(work, "jobs", [LARGE, b"small"])
    await work.broker.topics.configure("jobs", {"max.message.bytes": "300"})
    assert await redrive(work, "jobs") == RedriveProgress(moved=1, failed=1)
    assert values_of(await take(await work.consumer("jobs"))) == [b"small"]
    (left,) = await work.broker.queues.peek("jobs.dead")
    assert (left.value, left.state, left.delivery_count) == (LARGE, "ready", 0)
    assert values_of(await take(await work.consumer("jobs.dead"))) == [LARGE]


async def test_dead_letters_whose_topic_is_gone_stay(work: Work) -> None:
    await work.broker.topics.create("other", 1)
    await work.broker.topics.create("jobs", 2)
    await work.create("jobs", ("jobs", "other"))
    await work.publish("jobs", [b"1"], partition=1)
    await work.publish("other", [b"2"])
    await reject_all(work, await work.consumer("jobs"))
    await moved(work, "jobs")
    await until(lambda: work.statistics("jobs").dead == 2)
    await work.broker.topics.delete("other")
    assert await redrive(work, "jobs") == RedriveProgress(moved=1, failed=1)
    (again,) = await take(await work.consumer("jobs"))
    assert (again.value, again.partition) == (b"1", 1)


async def test_a_forged_dead_letter_is_not_sent_to_a_topic_of_others(work: Work) -> None:
    await work.broker.topics.create("secret", 1)
    await work.create("jobs")
    await dead(work, "jobs", [b"a"])
    forged = [
        ("dead-letter-queue", b"jobs"),
        ("dead-letter-topic", b"secret"),
        ("dead-letter-partition", b"0"),
        ("dead-letter-offset", b"0"),
    ]
    await work.publish("jobs.dead", [b"forged"], headers=forged)
    await work.publish("jobs.dead", [b"no letter"])
    await until(lambda: work.statistics("jobs").dead == 3)
    assert await redrive(work, "jobs") == RedriveProgress(moved=1, failed=1, skipped=1)
    assert await in_topic(work.broker, "secret") == []


async def test_a_redrive_that_makes_no_sense_is_refused(work: Work) -> None:
    await work.create("jobs", dead_letter_topic=None)
    with pytest.raises(InvalidArgument, match="no dead letters"):
        await work.broker.queues.redrive("jobs")
    await work.create("lost")
    await dead(work, "lost", [b"a"])
    with pytest.raises(InvalidArgument, match="where dead letters lie"):
        await work.broker.queues.redrive("lost.dead")
    await work.create("more")
    for wrong in ({"max_records": -1}, {"per_second": -1}, {"per_second": float("nan")}):
        with pytest.raises(InvalidArgument, match="negative"):
            await work.broker.queues.redrive("more", **wrong)
    assert await work.broker.queues.redrive("more") == RedriveProgress()


async def test_many_dead_letters_go_back_in_order(work: Work) -> None:
    await work.create("jobs")
    for start in range(0, 3000, 500):
        await work.publish("jobs", [b"%d" % n for n in range(start, start + 500)])
    consumer = await work.consumer("jobs")
    while work.statistics("jobs").ready:
        await reject_all(work, consumer)
    await moved(work, "jobs")
    assert (await redrive(work, "jobs")).moved == 3000
    again = []
    while len(again) < 3000:
        again += await take(consumer)
    assert values_of(again) == [b"%d" % n for n in range(3000)]
