"""A queue that gets further topics after its creation."""

from __future__ import annotations

import pytest
from tests.queues.work import Work, ack, settle, take

from sparrow.base.errors import InvalidArgument, NotAuthorized, UnknownQueue
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.queues.rules.settlement import Verb


@pytest.mark.parametrize(("start", "values"), [("beginning", [b"a", b"b", b"c"]), ("end", [b"a", b"c"])])
async def test_records_of_an_added_topic_are_delivered_from_the_start_of_the_policy(
    work: Work, start, values
):
    await work.create("q", ["one"])
    await work.broker.topics.create("two", 1)
    await work.publish("two", [b"b"])
    if start == "end":
        await work.broker.queues.delete("q")
        await work.create("q", ["one"], start="end")
    await work.broker.queues.add_topics("q", ["two", "one"])
    await work.publish("one", [b"a"])
    await work.publish("two", [b"c"])
    consumer = await work.consumer("q")
    assert sorted(record.value for record in await take(consumer)) == values


@pytest.mark.parametrize("order", ["none", "key", "parented"])
async def test_state_of_records_survives_an_addition_and_a_crash(work: Work, order):
    await work.create("q", ["one"], order=order)
    await work.publish("one", [b"done", b"back", b"left"], keys=[b"1", b"2", b"3"])
    consumer = await work.consumer("q", "c")
    taken = await take(consumer)
    await ack(consumer, taken[:1])
    await work.broker.queues.add_topics("q", ["two"], partitions=2)
    await work.publish("two", [b"new"], partition=1)
    await settle(consumer, Verb.RELEASE, taken[1:2])
    await work.crash()
    again = await work.consumer("q", "c")
    await again.settle([])
    work.pass_time(60)
    found = [record.value for record in await take(again)]
    while len(found) < 3:  # a log that was opened later
        found += [record.value for record in await take(again, wait_ms=30_000)]
    assert sorted(found) == [b"back", b"left", b"new"]
    assert work.queue("q").definition.topics == ("one", "two")


async def test_adding_topics_needs_rights_and_must_not_feed_dead_letters_back(work: Work):
    await work.create("q", ["one"])
    with pytest.raises(InvalidArgument, match="one of its own topics"):
        await work.broker.queues.add_topics("q", ["q.dead"])
    assert work.broker.parts.topic_registry.find("q.dead") is None
    await work.broker.parts.queue_registry.share("group")
    with pytest.raises(InvalidArgument, match="is a share group"):
        await work.broker.queues.add_topics("group", ["two"])
    with pytest.raises(UnknownQueue):
        await work.broker.queues.add_topics("none", ["two"])
    ann = Principal("ann")
    rules = [
        AclBinding(kind, name, PatternType.LITERAL, "User:bob", "*", Operation.ALL, Permission.ALLOW)
        for kind, name in ((ResourceType.TOPIC, "secret"), (ResourceType.GROUP, "guarded"))
    ]
    await work.create("guarded", ["one"])
    await work.broker.acls.create(rules, principal=SYSTEM)
    for queue, topic in (("q", "secret"), ("guarded", "two")):
        with pytest.raises(NotAuthorized):
            await work.broker.queues.add_topics(queue, [topic], principal=ann)
    assert work.broker.parts.topic_registry.find("secret") is None
    assert work.broker.parts.topic_registry.find("two") is None
