"""The process is killed, or the machine loses power, at every step of a move: each record is in
exactly one place.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from contextlib import suppress

import pytest

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.storage import durability
from tests.queues.held import refused
from tests.queues.work import settle, take
from tests.queues_dead.machine import Machine
from tests.queues_dead.steps import headers_of, in_topic, moved, reject_all, take_all, until, values_of

VALUES = [b"%d" % n for n in range(8)]
MORE_STEPS_THAN_ANY_MOVE_HAS = 200


async def began() -> Machine:
    """Make a queue over two partitions with eight records."""
    machine = Machine()
    await machine.start()
    await machine.broker.topics.create("jobs", 2)
    await machine.create("jobs", lease_ms=1000)
    for partition in range(2):
        await machine.publish("jobs", VALUES[4 * partition : 4 * partition + 4], partition=partition)
    return machine


async def die_after(machine: Machine, steps: int) -> bool:
    """Reject everything, with a disk that is gone after this many steps. Return True if the move
    was over before.
    """
    consumer = await machine.consumer("jobs")
    taken = await take_all(consumer, len(VALUES))
    machine.fs.calls_left = steps
    with suppress(SparrowError):
        await settle(consumer, Verb.REJECT, taken)
    await until(lambda: machine.is_cut or not machine.statistics("jobs").moving)
    is_over = not machine.is_cut
    for _ in range(20):
        await asyncio.sleep(0)
    return is_over


@pytest.mark.parametrize("power_fails", [False, True])
async def test_each_record_dies_once_whatever_the_step_of_the_crash(power_fails: bool) -> None:
    is_over, steps = False, 0
    while not is_over:
        machine = await began()
        is_over = await die_after(machine, steps)
        await machine.kill(power_fails=power_fails)
        await machine.start()
        machine.pass_time(1.1)
        await until(lambda: not machine.statistics("jobs").moving)  # noqa: B023
        died = values_of(await in_topic(machine.broker, "jobs.dead"))
        alive = values_of(await take_all(await machine.consumer("jobs"), len(VALUES) - len(died)))
        assert Counter(alive + died) == Counter(VALUES), f"after {steps} steps"
        await machine.queue("jobs").writer.flushed()
        assert not await machine.queue("jobs").writer._store.scan("queue-move")
        await machine.stop()
        steps += 1
        assert steps < MORE_STEPS_THAN_ANY_MOVE_HAS
    assert steps > 3


@pytest.mark.parametrize("power_fails", [False, True])
async def test_each_dead_letter_is_sent_back_once_whatever_the_step_of_the_crash(power_fails: bool) -> None:
    is_over, steps = False, 0
    while not is_over:
        machine = await began()
        await die_after(machine, MORE_STEPS_THAN_ANY_MOVE_HAS)
        queues = machine.broker.queues
        await until(lambda: machine.statistics("jobs").dead == len(VALUES))  # noqa: B023
        machine.fs.calls_left = steps
        with suppress(SparrowError):
            await queues.redrive("jobs")
        await until(lambda: not queues.redrive_progress("jobs").is_running)  # noqa: B023
        is_over = not machine.is_cut
        await machine.kill(power_fails=power_fails)
        await machine.start()
        sent = [
            each for each in await in_topic(machine.broker, "jobs") if "redrive-queue" in headers_of(each)
        ]
        dead = await machine.consumer("jobs.dead")
        await until(lambda: not machine.statistics("jobs.dead").moving)  # noqa: B023
        left = values_of(await take_all(dead, len(VALUES) - len(sent)))
        assert Counter(values_of(sent) + left) == Counter(VALUES), f"after {steps} steps"
        await machine.stop()
        steps += 1
        assert steps < MORE_STEPS_THAN_ANY_MOVE_HAS
    assert steps > 3


async def test_a_redrive_that_a_restart_ended_leaves_dead_letters_as_they_were() -> None:
    machine = await began()
    await die_after(machine, MORE_STEPS_THAN_ANY_MOVE_HAS)
    machine.fs.calls_left = None
    await until(lambda: machine.statistics("jobs").dead == len(VALUES))
    dead = machine.queue("jobs.dead")
    subscriber = dead.state.subscribers[""]
    assert subscriber.start_redrive(0, 0, 4) == [(0, 4)]
    dead.changed()
    await dead.writer.flushed()
    await machine.kill()
    await machine.start()
    taken = await take_all(await machine.consumer("jobs.dead"), len(VALUES))
    assert sorted(values_of(taken)) == sorted(VALUES)
    await machine.stop()


# ── what fails and comes back ─────────────────────────────────────────────────────────────────────


async def test_while_the_disk_is_full_records_stay_and_block_no_others() -> None:
    machine = await began()
    consumer = await machine.consumer("jobs")
    taken = await take(consumer, 2)
    machine.fs.capacity_bytes = 0
    assert not any(await settle(consumer, Verb.REJECT, taken))
    await asyncio.sleep(0.05)
    assert machine.statistics("jobs").moving == 2
    assert not any(await settle(consumer, Verb.ACK, await take(consumer, 6)))
    machine.fs.capacity_bytes = 1 << 40
    await moved(machine, "jobs")
    assert values_of(await in_topic(machine.broker, "jobs.dead")) == values_of(taken)
    await machine.stop()


async def test_while_no_intent_can_be_kept_nothing_is_moved() -> None:
    machine = await began()
    consumer = await machine.consumer("jobs")
    taken = await take(consumer, 2)
    await settle(consumer, Verb.REJECT, taken[:1])
    await moved(machine, "jobs")
    with refused(machine.queue("jobs")):
        with pytest.raises(SparrowError):
            await settle(consumer, Verb.REJECT, taken[1:])
        await asyncio.sleep(0.05)
        assert len(await in_topic(machine.broker, "jobs.dead")) == 1
    await moved(machine, "jobs")
    assert values_of(await in_topic(machine.broker, "jobs.dead")) == values_of(taken)
    await machine.stop()


async def test_dead_letters_that_could_not_be_synced_are_neither_lost_nor_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durability, "REDO_BYTES", -1)  # the journal would have them
    machine = await began()
    consumer = await machine.consumer("jobs")
    taken = await take(consumer, 3)
    await settle(consumer, Verb.REJECT, taken[:1])
    await moved(machine, "jobs")
    sync = machine.fs.sync

    def sync_no_log(fd: int) -> None:
        if "/logs/" in machine.fs._open[fd][0]:
            raise OSError(errno.EIO, "no sync")
        sync(fd)

    machine.fs.sync = sync_no_log
    await settle(consumer, Verb.REJECT, taken[1:])
    await asyncio.sleep(0.25)
    assert machine.statistics("jobs").moving == 2
    await machine.kill()
    machine.fs.sync = sync
    await machine.start()
    await moved(machine, "jobs")
    assert Counter(values_of(await in_topic(machine.broker, "jobs.dead"))) == Counter(values_of(taken))
    await machine.stop()


async def test_a_missing_topic_that_may_not_be_made_is_waited_for() -> None:
    machine = Machine(auto_create_topics=False)
    await machine.start()
    await machine.broker.topics.create("jobs", 1)
    await machine.create("jobs")
    await machine.publish("jobs", [b"x"])
    await reject_all(machine, await machine.consumer("jobs"))
    await asyncio.sleep(0.05)
    assert machine.statistics("jobs").moving == 1
    assert machine.broker.parts.topic_registry.find("jobs.dead") is None
    await machine.broker.topics.create("jobs.dead", 1)
    await moved(machine, "jobs")
    assert values_of(await in_topic(machine.broker, "jobs.dead")) == [b"x"]
    await machine.stop()


async def test_a_record_that_the_topic_does_not_take_holds_up_no_other(random_bytes: bytes) -> None:
    machine = Machine()
    await machine.start()
    await machine.create("jobs")
    await machine.broker.topics.create("jobs.dead", 1, {"max.message.bytes": "1000"})
    await machine.publish("jobs", [b"one", random_bytes, bytes(2000), b"four"])
    await reject_all(machine, await machine.consumer("jobs"))
    await until(lambda: machine.statistics("jobs").moving == 1)
    assert values_of(await in_topic(machine.broker, "jobs.dead")) == [b"one", bytes(2000), b"four"]
    await machine.broker.topics.configure("jobs.dead", {"max.message.bytes": "5000"})
    await moved(machine, "jobs")
    assert values_of(await in_topic(machine.broker, "jobs.dead"))[3:] == [random_bytes]
    await machine.stop()


async def test_a_dead_letter_topic_that_was_deleted_is_made_again() -> None:
    machine = await began()
    consumer = await machine.consumer("jobs")
    taken = await take(consumer, 2)
    await settle(consumer, Verb.REJECT, taken[:1])
    await moved(machine, "jobs")
    await machine.broker.topics.delete("jobs.dead")
    await settle(consumer, Verb.REJECT, taken[1:])
    await moved(machine, "jobs")
    assert values_of(await in_topic(machine.broker, "jobs.dead")) == values_of(taken[1:])
    assert machine.statistics("jobs").dead == 1
    await machine.stop()


async def test_records_that_wait_are_dropped_when_the_policy_says_so() -> None:
    machine = Machine(auto_create_topics=False)
    await machine.start()
    await machine.broker.topics.create("jobs", 1)
    await machine.create("jobs")
    await machine.publish("jobs", [b"x"])
    await reject_all(machine, await machine.consumer("jobs"))
    await machine.broker.queues.configure("jobs", {"dead_letter_topic": None})
    await moved(machine, "jobs")
    assert machine.statistics("jobs").dropped == 1
    await machine.stop()
