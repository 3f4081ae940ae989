"""Records that cannot be handled become dead letters, once, with their history in headers."""

import pytest

from sparrow.base.errors import InvalidArgument, InvalidTopicName
from sparrow.broker.queues.rules.settlement import Verb
from tests.queues.work import Work, ack, settle, take
from tests.queues_dead.steps import headers_of, in_topic, moved, reject_all, until, values_of


async def test_rejected_record_is_copied_with_its_history(work: Work) -> None:
    await work.create("jobs", ("work",))
    await work.publish("work", [b"fine"])
    published_ms = work.clock.wall_ms()
    headers = [("colour", b"red"), ("deliver-at", b"1"), ("expires-at", b"9" * 15), ("priority", b"7")]
    await work.publish("work", [b"v"], keys=[b"k"], headers=headers)
    consumer = await work.consumer("jobs")
    work.clock.advance(5)
    (first, *_) = await take(consumer, 1)
    assert first.value == b"v"
    await settle(consumer, Verb.NACK, [first], text="no luck")
    work.clock.advance(5)
    (again, *_) = await take(consumer, 1)
    await settle(consumer, Verb.REJECT, [again], text="hopeless")
    await moved(work, "jobs")
    (letter,) = await in_topic(work.broker, "jobs.dead")
    assert (letter.key, letter.value) == (b"k", b"v")
    assert letter.timestamp == published_ms + 10_000
    assert headers_of(letter) == {
        "colour": b"red",
        "priority": b"7",
        "dead-letter-reason": b"REJECTED",
        "dead-letter-error": b"hopeless",
        "dead-letter-delivery-count": b"2",
        "dead-letter-queue": b"jobs",
        "dead-letter-topic": b"work",
        "dead-letter-partition": b"0",
        "dead-letter-offset": b"1",
        "dead-letter-timestamp": b"%d" % published_ms,
        "dead-letter-first-delivery": b"%d" % (published_ms + 5000),
        "dead-letter-last-delivery": b"%d" % (published_ms + 10_000),
    }
    statistics = work.statistics("jobs")
    assert (statistics.dead, statistics.dead_lettered, statistics.unfinished) == (1, 1, 1)


async def test_a_poison_record_dies_after_exactly_the_limit_and_blocks_no_other(work: Work) -> None:
    await work.create("jobs", delivery_limit=3)
    await work.publish("jobs", [b"poison", b"fine"])
    consumer = await work.consumer("jobs")
    deliveries = 0
    while taken := await take(consumer, wait_ms=0 if deliveries else 500):
        for record in taken:
            if record.value == b"poison":
                deliveries += 1
                await settle(consumer, Verb.NACK, [record], text=f"attempt {deliveries}")
            else:
                await ack(consumer, [record])
    assert deliveries == 3
    await moved(work, "jobs")
    (letter,) = await in_topic(work.broker, "jobs.dead")
    assert headers_of(letter)["dead-letter-reason"] == b"DELIVERY_LIMIT"
    assert headers_of(letter)["dead-letter-error"] == b"attempt 3"
    assert headers_of(letter)["dead-letter-delivery-count"] == b"3"
    assert work.statistics("jobs").unfinished == 0


async def test_a_lease_that_ends_at_the_limit_is_a_death_too(work: Work) -> None:
    await work.create("jobs", delivery_limit=1, lease_ms=1000)
    await work.publish("jobs", [b"slow"])
    await take(await work.consumer("jobs"))
    work.pass_time(1.1)
    await moved(work, "jobs")
    (letter,) = await in_topic(work.broker, "jobs.dead")
    assert headers_of(letter)["dead-letter-reason"] == b"DELIVERY_LIMIT"


async def test_children_of_a_dead_parent_follow(work: Work) -> None:
    await work.create("jobs", order="parented")
    await work.publish("jobs", [b"parent"], headers=[("message-id", b"p")])
    await work.publish("jobs", [b"child"], headers=[("parent-id", b"p"), ("message-id", b"c")])
    await work.publish("jobs", [b"grandchild"], headers=[("parent-id", b"c")])
    await reject_all(work, await work.consumer("jobs"))
    await moved(work, "jobs")
    letters = await in_topic(work.broker, "jobs.dead")
    assert {letter.value: headers_of(letter)["dead-letter-reason"] for letter in letters} == {
        b"parent": b"REJECTED",
        b"child": b"PARENT_FAILED",
        b"grandchild": b"PARENT_FAILED",
    }
    assert "dead-letter-first-delivery" not in headers_of(letters[-1])


async def test_each_subscriber_has_its_own_dead_letter(work: Work) -> None:
    await work.create("jobs", subscribers=["a", "b"])
    await work.publish("jobs", [b"x"])
    await reject_all(work, await work.consumer("jobs", subscriber="a"))
    b = await work.consumer("jobs", subscriber="b")
    await ack(b, await take(b))
    await moved(work, "jobs")
    (letter,) = await in_topic(work.broker, "jobs.dead")
    assert headers_of(letter)["dead-letter-subscriber"] == b"a"
    assert work.statistics("jobs").unfinished == 0


async def test_many_records_of_many_partitions_die_once_each(work: Work) -> None:
    await work.broker.topics.create("jobs", 3)
    await work.create("jobs")
    expected = set()
    for partition in range(3):
        for start in range(0, 1500, 500):
            values = [b"%d/%d" % (partition, n) for n in range(start, start + 500)]
            await work.publish("jobs", values, partition=partition)
            expected.update(values)
    consumer = await work.consumer("jobs")
    while work.statistics("jobs").ready:
        await reject_all(work, consumer)
    await moved(work, "jobs")
    letters = await in_topic(work.broker, "jobs.dead")
    assert len(letters) == len(expected) == 4500
    assert {letter.value for letter in letters} == expected
    assert work.broker.topics.describe("jobs.dead").partition_count == 3
    assert all(headers_of(each)["dead-letter-partition"] == b"%d" % each.partition for each in letters)


async def test_the_dead_letters_are_a_queue(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"a", b"b"])
    await reject_all(work, await work.consumer("jobs"))
    await until(lambda: work.statistics("jobs").dead == 2)
    assert work.broker.queues.describe("jobs.dead").kind == "dead"
    consumer = await work.consumer("jobs.dead")
    taken = await take(consumer)
    assert values_of(taken) == [b"a", b"b"]
    await ack(consumer, taken[:1])
    await settle(consumer, Verb.RELEASE, taken[1:])
    assert work.statistics("jobs").dead == 1
    assert await work.broker.queues.purge("jobs.dead") == 1
    assert work.statistics("jobs").dead == 0


async def test_without_a_dead_letter_topic_records_are_dropped_and_counted(work: Work) -> None:
    await work.create("jobs", dead_letter_topic=None)
    await work.publish("jobs", [b"a"])
    await reject_all(work, await work.consumer("jobs"))
    assert work.statistics("jobs").dropped == 1
    assert work.broker.parts.topic_registry.find("jobs.dead") is None


async def test_another_dead_letter_topic_may_be_shared_by_queues(work: Work) -> None:
    for name in ("one", "two"):
        await work.create(name, dead_letter_topic="graveyard")
        await work.publish(name, [name.encode()])
        await reject_all(work, await work.consumer(name))
        await moved(work, name)
    letters = await in_topic(work.broker, "graveyard")
    assert [headers_of(letter)["dead-letter-queue"] for letter in letters] == [b"one", b"two"]


async def test_a_queue_whose_dead_letters_could_have_no_topic_is_refused(work: Work) -> None:
    await work.broker.topics.create("t", 1)
    with pytest.raises(InvalidTopicName, match="dead letters"):
        await work.create("with space", ("t",))
    with pytest.raises(InvalidArgument, match="internal"):
        await work.create("jobs", dead_letter_topic="__consumer_offsets")
    await work.create("with space", ("t",), dead_letter_topic=None)


async def test_a_record_that_retention_deleted_has_no_dead_letter(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"a", b"b"])
    consumer = await work.consumer("jobs")
    taken = await take(consumer)
    await work.broker.topics.delete_records("jobs", {0: 1})
    await settle(consumer, Verb.REJECT, taken[1:])
    await settle(consumer, Verb.REJECT, taken[:1])
    await moved(work, "jobs")
    assert values_of(await in_topic(work.broker, "jobs.dead")) == [b"b"]
    assert work.statistics("jobs").lost == 1
    assert work.statistics("jobs").unfinished == 0
