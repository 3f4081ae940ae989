"""The machine loses its power under load, again and again, in the middle of a call that changes the
disk; then the promises of docs/guarantees.md are checked.

The server is the real one with its frontends and sockets, its logs and its meta store lie on one
simulated disk (`tests/crash/machine`), which keeps what was synced, and of the rest parts, in no
order. Seeds say after how many changes the power goes, from the very next one to thousands later;
every third start loses it, too.

Who publishes with acks=1 may lose, and who reads may have read, what was not synced: such loads are
not among these.

`make crash` runs more rounds (SPARROW_CRASH_ROUNDS), each ten with the next seed
(SPARROW_CRASH_SEED).
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Iterator, Sequence

import pytest

from tests.crash.faults import ROUNDS, Endured, Fault, pause, torment
from tests.crash.loads import Load
from tests.crash.loads.failing import FailingJobs
from tests.crash.loads.http import HttpPublisher
from tests.crash.loads.kafka import KafkaProducer, KafkaTransactions
from tests.crash.loads.native import NativeProducer
from tests.crash.loads.pushed import Webhook
from tests.crash.loads.queues import ParentedWorkers, QueueWorkers
from tests.crash.loads.sinks import SinkQuery
from tests.crash.machine import Machine, simulated_machine, why_unavailable
from tests.repetitions import CRASH_ROUNDS

FIRST_SEED = int(os.environ.get("SPARROW_CRASH_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + max(1, CRASH_ROUNDS // ROUNDS))
_MOST_CALLS = 2000
_CALLS_OF_A_START = 100
_PATIENCE_S = 0.7

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "-"),
]


async def lose_power(it: Endured) -> None:
    """Lose power after a seeded number of changes; and in one of three starts again, during
    recovery.
    """
    machine = it.broker
    assert isinstance(machine, Machine)
    machine.power_off_after(round(math.exp(it.dice.uniform(0, math.log(_MOST_CALLS)))))
    await asyncio.to_thread(machine.wait_until_off, _PATIENCE_S)
    if it.dice.random() < 1 / 3:
        machine.power_off_after(it.dice.randint(1, _CALLS_OF_A_START))
    await asyncio.to_thread(machine.restart)


def outages(dice: random.Random) -> Iterator[Fault]:
    """Run rounds of faults, mostly of power."""
    while True:
        yield pause if dice.random() < 0.1 else lose_power


def every_load(seed: int) -> Sequence[Load]:
    """Return the loads whose promises hold through a power failure."""
    return [
        NativeProducer(),
        KafkaProducer(),
        KafkaTransactions(seed),
        HttpPublisher(),
        QueueWorkers(),
        ParentedWorkers(seed),
        FailingJobs(),
        Webhook(),
        SinkQuery(seed),
    ]


@pytest.mark.parametrize("seed", SEEDS)
async def test_promises_to_clients_are_kept_after_power_loss(seed: int) -> None:
    loads = every_load(seed)
    chosen = os.environ.get("SPARROW_CRASH_LOADS", "")
    if chosen:
        loads = [load for load in loads if load.name in chosen.split(",")]
    with simulated_machine(seed, webhooks_allow="private") as machine:
        print(f"to repeat it: SPARROW_CRASH_SEED={seed} .venv/bin/pytest {__file__}")
        done = await torment(machine, loads, min(ROUNDS, CRASH_ROUNDS), seed, chosen=outages)
        progress = {load.name: load.progress for load in loads}
        print(f"seed {seed}: {dict(done)}, {machine.power_failures} power failures; promised: {progress}")
        for load in loads:
            await load.check(machine)
