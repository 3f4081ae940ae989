"""A broker under load through its doors is killed, paused and restarted at seeded moments; then the promises of docs/guarantees.md are checked.

`make crash` runs more rounds (SPARROW_CRASH_ROUNDS), and SPARROW_CRASH_SEED repeats a run: the same faults in the same order, at about the same moments.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

import sparrow.testing
from tests.crash.faults import torment
from tests.crash.loads import Load
from tests.crash.loads.http import HttpPublisher
from tests.crash.loads.kafka import KafkaProducer, KafkaTransactions
from tests.crash.loads.native import NativeProducer
from tests.crash.loads.pushed import Webhook
from tests.crash.loads.queues import ParentedWorkers, QueueWorkers

ROUNDS = int(os.environ.get("SPARROW_CRASH_ROUNDS", "10"))
SEED = int(os.environ.get("SPARROW_CRASH_SEED", "1"))


async def run(loads: Sequence[Load]) -> None:
    with sparrow.testing.broker(process=True, webhooks_allow="private") as broker:
        done = await torment(broker, loads, ROUNDS, SEED)
        print(f"seed {SEED}: {' '.join(done)}; promised: { ({load.name: load.progress for load in loads}) }")
        for load in loads:
            await load.check(broker)


@pytest.mark.slow
async def test_publishers_of_every_door_find_what_they_were_promised():
    await run([NativeProducer(), KafkaProducer(), KafkaTransactions(SEED), HttpPublisher()])


@pytest.mark.slow
async def test_workers_and_endpoints_get_what_they_were_promised():
    await run([QueueWorkers(), ParentedWorkers(SEED), Webhook()])
