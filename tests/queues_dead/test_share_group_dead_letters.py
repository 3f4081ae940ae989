"""Dead letters of Kafka share groups (KIP-1191): Kafka's headers, and the record itself only where
the group says so.
"""

from __future__ import annotations

import asyncio

import pytest

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.configs.changes import ConfigChange, ConfigOperation
from sparrow.broker.configs.service import ConfigResource, ConfigResourceType
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.model.queues import RedriveProgress
from tests.queues.work import Work, settle, take
from tests.queues_dead.steps import headers_of, in_topic, moved, until, values_of
from tests.share_groups.machine import joining

ENABLED = {"errors.deadletterqueue.group.enable": "true"}


async def configure(work: Work, kind: ConfigResourceType, name: str, **settings: str) -> None:
    changes = [
        ConfigChange(key.replace("_", "."), ConfigOperation.SET, value) for key, value in settings.items()
    ]
    await work.broker.configs.alter(ConfigResource(kind, name), changes, principal=ANONYMOUS)


async def group_with_records(work: Work, **settings: str) -> None:
    """Make a group "g" on topic "t" with a rejected record, and one that reached the limit."""
    await work.broker.topics.create("t", 1)
    await configure(
        work,
        ConfigResourceType.GROUP,
        "g",
        share_auto_offset_reset="earliest",
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name="dlq.g",
        **settings,
    )
    await work.broker.parts.group_registry.share.heartbeat("g", joining("m", "t"))
    await work.publish("t", [b"a"], keys=[b"k"], headers=[("colour", b"red")])
    await work.publish("t", [b"b"])
    member = await work.consumer("g", "m")
    a, b = await take(member)
    await settle(member, Verb.REJECT, [a], text="")
    await settle(member, Verb.NACK, [b])
    await settle(member, Verb.NACK, await take(member))


@pytest.mark.parametrize("copies", ["false", "true"])
async def test_a_dead_letter_has_the_headers_of_kafka(work: Work, copies: str) -> None:
    await work.broker.topics.create("dlq.g", 1, ENABLED)
    await group_with_records(work, errors_deadletterqueue_copy_record_enable=copies)
    await moved(work, "g")
    a, b = sorted(await in_topic(work.broker, "dlq.g"), key=lambda each: each.offset)
    kafka = {name: value for name, value in a.headers if name.startswith("__dlq.")}
    assert kafka == {
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    assert headers_of(b)["__dlq.errors.delivery.count"] == b"2"
    assert headers_of(b)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert headers_of(b)["dead-letter-reason"] == b"DELIVERY_LIMIT"
    if copies == "true":
        assert (a.key, a.value, headers_of(a)["colour"]) == (b"k", b"a", b"red")
    else:
        assert (a.key, a.value, headers_of(a).get("colour")) == (None, None, None)


@pytest.mark.parametrize("copies", ["false", "true"])
async def test_redriven_records_have_their_content_again(work: Work, copies: str) -> None:
    await work.broker.topics.create("dlq.g", 1, ENABLED)
    await group_with_records(work, errors_deadletterqueue_copy_record_enable=copies)
    await moved(work, "g")
    queues = work.broker.queues
    await queues.redrive("g", RedriveFilter(key=b"k"))
    await until(lambda: not queues.redrive_progress("g").is_running)
    assert queues.redrive_progress("g") == RedriveProgress(moved=1, skipped=1)
    (again,) = await take(await work.consumer("g", "m"))
    assert (again.key, again.value) == (b"k", b"a")
    assert headers_of(again) == {"colour": b"red", "redrive-queue": b"g", "redrive-count": b"1"}


async def test_a_dead_letter_whose_record_is_gone_cannot_be_sent_back(work: Work) -> None:
    await work.broker.topics.create("dlq.g", 1, ENABLED)
    await group_with_records(work)
    await moved(work, "g")
    await work.broker.topics.delete_records("t", {0: -1})
    queues = work.broker.queues
    await queues.redrive("g")
    await until(lambda: not queues.redrive_progress("g").is_running)
    assert queues.redrive_progress("g") == RedriveProgress(failed=2)


async def test_records_wait_for_a_topic_that_allows_dead_letters(work: Work) -> None:
    await work.broker.topics.create("dlq.g", 1)
    await group_with_records(work)
    await asyncio.sleep(0.05)
    assert (work.statistics("g").moving, await in_topic(work.broker, "dlq.g")) == (2, [])
    await work.broker.topics.configure("dlq.g", ENABLED)
    await moved(work, "g")
    assert values_of(await in_topic(work.broker, "dlq.g")) == [None, None]


async def test_the_topic_is_made_where_the_broker_is_configured_to(work: Work) -> None:
    await configure(
        work, ConfigResourceType.BROKER, "", errors_deadletterqueue_auto_create_topics_enable="true"
    )
    await group_with_records(work)
    await moved(work, "g")
    assert len(await in_topic(work.broker, "dlq.g")) == 2
    assert work.broker.parts.share_dead_letter_refusal("dlq.g") is None
