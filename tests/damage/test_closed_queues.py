"""A queue is closed while one of its logs is: what it has is kept until then, and it opens when the
damaged topic is deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import LogDamaged, UnknownWebhook
from sparrow.broker.config import BrokerConfig
from sparrow.cli.doctor import doctor
from sparrow.storage.names import LOG
from tests.queues.work import Work, ack, take

TOPIC_CONFIG = {"segment.bytes": "2048"}
PAYMENTS = [b"payment %d" % number for number in range(60)]
ORDERS = [b"order %d" % number for number in range(4)]
QUEUE = "both"


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Work]:
    """A stopped broker whose queue has two topics; half of the orders are acknowledged."""
    work = Work(str(tmp_path / "data"), ManualClock(), BrokerConfig(default_partitions=1))
    await work.start()
    for topic in ("orders", "payments"):
        await work.broker.topics.create(topic, config=TOPIC_CONFIG)
    await work.publish("orders", ORDERS)
    await work.create(QUEUE, ["orders", "payments"])
    await work.broker.webhooks.put(QUEUE, "hook", {"url": "https://example.org"})
    consumer = await work.consumer(QUEUE, "c")
    await ack(consumer, await take(consumer, 2))
    for value in PAYMENTS:
        await work.publish("payments", [value.ljust(100, b".")])
    await work.stop()
    yield work
    await work.stop()


def segments(work: Work, topic: str) -> list[Path]:
    return sorted(Path(work.path, f"logs/{topic}-0").glob(f"*{LOG}"))


def damage(work: Work) -> None:
    """Remove a segment of the payments between others."""
    _, lost, _, *_ = segments(work, "payments")
    lost.unlink()


async def test_a_closed_queue_opens_when_its_damaged_topic_is_deleted(work: Work) -> None:
    damage(work)
    await work.start()
    with pytest.raises(LogDamaged, match="queue 'both' is closed"):
        work.queue(QUEUE)
    await work.broker.topics.delete("payments")
    for _ in range(2):
        work.pass_time(60)
        assert await waiting(work) == ORDERS[2:]
        assert work.broker.parts.webhook_registry.get(QUEUE, "hook").name == "hook"
        await work.restart()
    await work.broker.topics.create("payments")
    await work.publish("payments", [b"of a new topic of that name"])
    work.pass_time(60)
    assert sorted(await waiting(work)) == [b"of a new topic of that name", *ORDERS[2:]]


async def test_a_queue_with_two_damaged_topics_opens_when_the_second_is_deleted(work: Work) -> None:
    damage(work)
    segments(work, "orders")[0].unlink()
    await work.start()
    await work.broker.topics.delete("payments")
    with pytest.raises(LogDamaged, match="orders-0"):
        work.queue(QUEUE)
    await work.broker.topics.delete("orders")
    assert work.queue(QUEUE).definition.topics == ("orders", "payments")


async def test_webhooks_of_a_closed_queue_are_kept_and_go_with_it(work: Work) -> None:
    damage(work)
    await work.start()
    await work.stop()
    assert doctor(work.path, accept_loss=True) in {0, 1}
    await work.start()
    assert work.broker.parts.webhook_registry.get(QUEUE, "hook").name == "hook"
    await work.stop()
    damage(work)
    await work.start()
    await work.broker.queues.delete(QUEUE)
    await work.broker.queues.create(QUEUE, ["orders"])
    for _ in range(2):
        with pytest.raises(UnknownWebhook):
            work.broker.parts.webhook_registry.get(QUEUE, "hook")
        await work.restart()


async def test_closed_queue_forgets_records_lost_by_its_other_logs(work: Work) -> None:
    """Else records that take the offsets of lost ones would count as acknowledged."""
    await work.start()
    before = work.copied()
    await work.publish("orders", [b"to be lost"])
    consumer = await work.consumer(QUEUE)
    taken = [each for each in await take(consumer) if each.topic == "orders"]
    assert [each.value for each in taken] == [*ORDERS[2:], b"to be lost"]
    await ack(consumer, taken)
    after = work.copied()
    await work.stop()
    shutil.rmtree(Path(after, "logs"))
    shutil.copytree(Path(before, "logs"), Path(after, "logs"))
    work.path = after
    damage(work)
    await work.start()
    with pytest.raises(LogDamaged):
        work.queue(QUEUE)
    await work.publish("orders", [b"at the same offset"])
    await work.stop()
    assert doctor(work.path, accept_loss=True) in {0, 1}
    await work.start()
    work.pass_time(60)
    assert [each for each in await waiting(work) if each.startswith((b"order", b"at"))] == [
        b"at the same offset"
    ]


async def waiting(work: Work) -> list[bytes]:
    """Lease everything; return the values."""
    return [each.value or b"" for each in await take(await work.consumer(QUEUE))]
