"""A full disk without a small file system to mount: the disk of the simulated machine, whose size
is a number.

The same promises as in `test_disk_full.py`, for log and meta store on one full disk; and with a
power failure while it is full, which no real disk lets a test have.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import sparrow.sync
from tests.crash.faults import Endured, Fault, full, full_and_kill, full_and_restart, torment
from tests.crash.loads.http import HttpPublisher
from tests.crash.loads.native import NativeProducer
from tests.crash.loads.queues import QueueWorkers
from tests.crash.loads.sinks import SinkQuery
from tests.crash.machine import Machine, simulated_machine, why_unavailable
from tests.crash.test_disk_full import _MESSAGE, drain, fill, read_back
from tests.crash.test_power_loss import FIRST_SEED, SEEDS, lose_power

_SMALL_BYTES = 24 << 20
_RESERVE = "64 MiB"
"""At most the twentieth part of the disk."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "-"),
]


def test_full_disk_keeps_all_that_was_acknowledged_over_kill_9_and_power_failure_and_recovers_by_itself() -> (
    None
):
    with ExitStack() as opened:
        machine = opened.enter_context(
            simulated_machine(FIRST_SEED, capacity_bytes=_SMALL_BYTES, reserve_bytes=_RESERVE)
        )
        client = opened.enter_context(sparrow.sync.connect(machine.url))
        client.admin.create_topic("filler", partitions=1)
        client.admin.create_queue("jobs", partitions=1)
        with client.producer() as producer:
            for number in range(150):
                producer.send("jobs", b"%d" % number)
        acknowledged = fill(client, "filler")
        assert acknowledged > 50
        done: list[bytes | None] = []
        for go_down in (lambda: None, machine.kill, lambda: machine.wait_until_off(0)):
            go_down()
            machine.restart()
            # Full: reading, leasing, acknowledging and committing continue.
            assert read_back(client, "filler", acknowledged) == [_MESSAGE] * acknowledged
            done += drain(client, "jobs", 50)
            client.admin.commit("readers", {("filler", 0): len(done)})
            assert [each.offset for each in client.admin.group_offsets("readers")] == [len(done)]
        assert done == [b"%d" % number for number in range(150)]

        # Space again: nobody has to restart anything.
        client.admin.delete_topic("filler")
        with client.producer(delivery_timeout_s=30) as producer:
            assert producer.send("jobs", b"after").result().offset == 150


async def full_and_lose_power(it: Endured) -> None:
    """Lose power while the disk is full, and start on the full disk."""
    machine = it.broker
    assert isinstance(machine, Machine)
    machine.fill(it.dice.choice((1 << 20, 1 << 19, 0)))
    await asyncio.sleep(it.dice.uniform(0, 0.3))
    try:
        await lose_power(it)
    finally:
        machine.free()


def shortages(dice: random.Random) -> Iterator[Fault]:
    """Yield each kind of shortage once in four."""
    while True:
        four: list[Fault] = [full, full_and_kill, full_and_restart, full_and_lose_power]
        dice.shuffle(four)
        yield from four


@pytest.mark.parametrize("seed", SEEDS)
async def test_promises_to_clients_are_kept_after_a_full_disk(seed: int) -> None:
    loads = [NativeProducer(), HttpPublisher(), QueueWorkers(), SinkQuery(seed)]
    with simulated_machine(seed, capacity_bytes=256 << 20, reserve_bytes=_RESERVE) as machine:
        print(f"to repeat it: SPARROW_CRASH_SEED={seed} .venv/bin/pytest {__file__}")
        print(dict(await torment(machine, loads, 4, seed, machine, chosen=shortages)))
        for load in loads:
            await load.check(machine)
