"""Dead letters of records that cannot be read, and of logs that cannot say whether they kept
them.
"""

from __future__ import annotations

import asyncio

import pytest

from sparrow.base.errors import NotAuthorized, Overloaded
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.model.queues import RedriveProgress
from sparrow.records.builder import BatchFields, assemble
from tests.queues.work import Work, settle, take
from tests.queues_dead.steps import headers_of, in_topic, moved, reject_all, until, values_of


async def test_a_record_whose_batch_cannot_be_read_dies_without_its_content(work: Work) -> None:
    await work.create("jobs")
    now_ms = work.clock.wall_ms()
    # As it may be in a log, though no client can publish it.
    unreadable = assemble(b"no record at all", 1, 0, BatchFields(now_ms, now_ms))
    await work.broker.records.publish("jobs", 0, unreadable, is_built_here=True)
    await work.publish("jobs", [b"fine"])
    consumer = await work.consumer("jobs")
    while work.statistics("jobs").ready:
        await consumer.lease(10, wait_ms=500)
    await consumer.settle([Settlement(Verb.REJECT, "jobs", 0, 0, 1, text="cannot read it")])
    await moved(work, "jobs")
    broken, fine = await in_topic(work.broker, "jobs.dead")
    assert (broken.key, broken.value, fine.value) == (None, None, b"fine")
    assert headers_of(broken)["dead-letter-offset"] == b"0"
    assert headers_of(broken)["dead-letter-error"] == b"cannot read it"
    queues = work.broker.queues
    await queues.redrive("jobs")
    await until(lambda: not queues.redrive_progress("jobs").is_running)
    assert queues.redrive_progress("jobs") == RedriveProgress(moved=1, failed=1)


async def test_dead_letter_with_a_late_sync_is_not_written_again(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    await work.create("jobs")
    await work.broker.topics.create("jobs.dead", 1)
    log = work.broker.parts.topic_registry.get("jobs.dead").partitions[0].log
    durable, refusals = log.durable, 2

    def sometimes(offset: int) -> asyncio.Future[None]:
        nonlocal refusals
        refusals -= 1
        if refusals < 0:
            return durable(offset)
        raise Overloaded("not now")

    monkeypatch.setattr(log, "durable", sometimes)
    await work.publish("jobs", [b"a", b"b"])
    await reject_all(work, await work.consumer("jobs"))
    await moved(work, "jobs")
    assert refusals < 0
    assert values_of(await in_topic(work.broker, "jobs.dead")) == [b"a", b"b"]


async def test_a_redrive_whose_records_could_not_be_synced_at_once_sends_them_once(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"a", b"b"])
    await reject_all(work, await work.consumer("jobs"))
    await until(lambda: work.statistics("jobs").dead == 2)
    log = work.broker.parts.topic_registry.get("jobs").partitions[0].log
    durable, refusals = log.durable, 1

    def sometimes(offset: int) -> asyncio.Future[None]:
        nonlocal refusals
        refusals -= 1
        if refusals < 0:
            return durable(offset)
        raise Overloaded("not now")

    monkeypatch.setattr(log, "durable", sometimes)
    queues = work.broker.queues
    await queues.redrive("jobs")
    await until(lambda: not queues.redrive_progress("jobs").is_running)
    assert queues.redrive_progress("jobs").error == "not now"
    await until(lambda: work.statistics("jobs").dead == 0)
    assert values_of(await take(await work.consumer("jobs"))) == [b"a", b"b"]


async def test_moves_go_on_when_the_queue_is_rebuilt_meanwhile(work: Work) -> None:
    await work.create("jobs")
    for start in range(0, 4000, 1000):
        await work.publish("jobs", [b"%d" % n for n in range(start, start + 1000)])
    consumer = await work.consumer("jobs")
    rejecting = [settle(consumer, Verb.REJECT, await take(consumer)) for _ in range(4)]
    for settled in rejecting:
        await settled
        await work.broker.queues.configure("jobs", {"expiry_ms": 10**9 + len(rejecting)})
        await work.broker.queues.configure("jobs", {"expiry_ms": 10**9})
    await moved(work, "jobs")
    died = values_of(await in_topic(work.broker, "jobs.dead"))
    assert sorted(died, key=int) == [b"%d" % n for n in range(4000)]


async def test_a_queue_that_is_deleted_while_records_die_takes_nothing_along(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"%d" % n for n in range(1000)])
    await reject_all(work, await work.consumer("jobs"))
    await work.broker.queues.delete("jobs")
    await work.restart()
    assert work.broker.queues.listing("jobs") == []
    died = values_of(await in_topic(work.broker, "jobs.dead"))
    assert len(set(died)) == len(died)


async def test_a_principal_that_may_not_write_to_a_topic_cannot_send_dead_letters_there(work: Work) -> None:
    class Refusing:
        def allows(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
            return (operation, name) != (Operation.WRITE, "secret")

    await work.create("jobs")
    work.broker.access.authorizer = Refusing()
    with pytest.raises(NotAuthorized):
        await work.broker.queues.create("more", policy={"dead_letter_topic": "secret"})
    with pytest.raises(NotAuthorized):
        await work.broker.queues.configure("jobs", {"dead_letter_topic": "secret"})
    await work.broker.queues.configure("jobs", {"dead_letter_topic": "open"})
