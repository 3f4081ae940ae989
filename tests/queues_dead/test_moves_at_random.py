"""Records go to the dead letters and back, again and again, while the machine stops at random
steps.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.rules.settlement import Verb
from tests.queues.work import settle, take
from tests.queues_dead.machine import Machine
from tests.queues_dead.steps import take_all, until, values_of

VALUES = [b"%d" % n for n in range(12)]
ROUNDS = 25


async def some_turns() -> None:
    for _ in range(150):
        await asyncio.sleep(0)


async def reject_some(machine: Machine, dice: random.Random) -> None:
    with suppress(SparrowError):
        consumer = await machine.consumer("jobs")
        taken = await take(consumer, dice.randint(1, 12), wait_ms=20)
        await settle(consumer, Verb.REJECT, [each for each in taken if dice.random() < 0.8])


async def redrive_some(machine: Machine, dice: random.Random) -> None:
    with suppress(SparrowError):
        await machine.broker.queues.redrive("jobs", max_records=dice.choice([0, 3]))


async def started(machine: Machine, dice: random.Random) -> None:
    """Start the broker, which may stop at once once more."""
    if dice.random() < 0.4:
        machine.fs.calls_left = dice.randint(0, 12)
        with suppress(SparrowError):
            await machine.start()
            await some_turns()
            await machine.kill(power_fails=dice.random() < 0.5)
        machine.fs.calls_left = None
        machine.fs.kill()
    await machine.start()


@pytest.mark.parametrize("seed", range(6))
async def test_each_record_is_in_one_place_after_many_crashes(seed: int) -> None:
    dice = random.Random(seed)
    machine = Machine(seed)
    await machine.start()
    await machine.broker.topics.create("jobs", 2)
    await machine.create("jobs", lease_ms=1000, delivery_limit=0)
    for partition in range(2):
        await machine.publish("jobs", VALUES[6 * partition : 6 * partition + 6], partition=partition)
    for _ in range(ROUNDS):
        machine.fs.calls_left = dice.randint(0, 40)
        for act in dice.sample([reject_some, redrive_some, reject_some], dice.randint(1, 3)):
            await act(machine, dice)
            await some_turns()
        await machine.kill(power_fails=dice.random() < 0.5)
        await started(machine, dice)
        machine.pass_time(1.1)
    for name in ("jobs", "jobs.dead"):
        if machine.broker.parts.queue_registry.find(name) is not None:
            await until(lambda: not machine.statistics(name).moving)  # noqa: B023
    dead = []
    if machine.broker.parts.queue_registry.find("jobs.dead") is not None:
        undertaker = await machine.consumer("jobs.dead")
        dead = values_of(await take_all(undertaker, machine.statistics("jobs.dead").unfinished))
    alive = values_of(await take_all(await machine.consumer("jobs"), len(VALUES) - len(dead)))
    assert Counter(alive + dead) == Counter(VALUES)
    await machine.stop()
