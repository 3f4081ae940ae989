"""A broker under load through all of its listeners is killed, stopped, paused, and its disk filled,
at seeded moments; then the promises of docs/guarantees.md are checked.

Eight rounds have each kind of fault once; up to ten have one broker and one seed. `make crash` runs
more (SPARROW_CRASH_ROUNDS), each ten with the next seed; SPARROW_CRASH_SEED repeats a run: the same
faults in the same order, at about the same moments.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.crash.disk import NoDisk, SmallDisk, small_disk
from tests.crash.faults import KINDS, ROUNDS, torment
from tests.crash.loads import Load
from tests.crash.loads.failing import FailingJobs
from tests.crash.loads.groups import KafkaGroup
from tests.crash.loads.http import HttpPublisher, HttpWorkers
from tests.crash.loads.kafka import KafkaCopies, KafkaProducer, KafkaTransactions
from tests.crash.loads.native import NativeGroup, NativeProducer
from tests.crash.loads.pushed import Webhook
from tests.crash.loads.queues import AllOfWorkers, ParentedWorkers, QueueWorkers
from tests.crash.loads.seeds.diy import DiyClients
from tests.crash.loads.seeds.mbus import MbusClients
from tests.crash.loads.seeds.messagebroker import MessagebrokerClients
from tests.crash.loads.seeds.msbq import MsbqClients
from tests.crash.loads.seeds.syncbrok import SyncbrokClients
from tests.crash.loads.share import ShareGroup
from tests.crash.loads.sinks import SinkQuery
from tests.crash.loads.streams import Streams
from tests.repetitions import CRASH_ROUNDS

FIRST_SEED = int(os.environ.get("SPARROW_CRASH_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + max(1, CRASH_ROUNDS // ROUNDS))
DISK_BYTES = 256 << 20
OPTIONS = {
    "webhooks_allow": "private",
    "group_min_session_timeout_ms": 1_000,
    "default_partitions": 1,
    **{
        f"seeds_{listener}_port": 0
        for listener in ("diy", "messagebroker", "mbus", "mbus_consumer", "msbq", "syncbrok")
    },
}


def every_load(seed: int) -> Sequence[Load]:
    """Return one load of each kind."""
    return [
        NativeProducer(),
        NativeProducer("leader", acks="1"),
        NativeGroup(),
        KafkaProducer(),
        KafkaTransactions(seed),
        KafkaCopies(seed),
        KafkaGroup("classic"),
        KafkaGroup("consumer"),
        ShareGroup(),
        HttpPublisher(),
        HttpWorkers(seed),
        Streams(),
        QueueWorkers(),
        ParentedWorkers(seed),
        AllOfWorkers(),
        FailingJobs(),
        Webhook(),
        SinkQuery(seed),
        DiyClients(),
        MessagebrokerClients(),
        MbusClients(),
        MsbqClients(),
        SyncbrokClients(seed),
    ]


async def run(loads: Sequence[Load], rounds: int, seed: int, work_dir: Path) -> None:
    """Torment one broker, and check what the loads were promised."""
    with ExitStack() as opened:
        try:
            disk: SmallDisk | None = opened.enter_context(small_disk(work_dir / "disk", DISK_BYTES))
        except NoDisk as reason:
            print(f"the disk is not filled: {reason}")
            disk = None
        data_dir = None if disk is None else str(disk.where / "data")
        broker = opened.enter_context(
            sparrow.testing.broker(process=True, data_dir=data_dir, reserve_bytes="64 MiB", **OPTIONS)
        )
        done = await torment(broker, loads, rounds, seed, disk)
        print(f"seed {seed}: {dict(done)}; promised: { ({load.name: load.progress for load in loads}) }")
        broken = [await broken_promises(load, broker) for load in loads]
        assert [each for each in broken if each] == []


async def broken_promises(load: Load, broker: RunningBroker) -> str:
    """Return the breaches that a load finds, with its name, or "". A failing load does not keep
    others from finishing.
    """
    try:
        await load.check(broker)
    except AssertionError as error:
        return f"{load.name}: {error}"
    return ""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
async def test_promises_to_clients_of_every_frontend_are_kept(seed: int, tmp_path: Path) -> None:
    print(
        f"to repeat it: SPARROW_CRASH_SEED={seed} .venv/bin/pytest -p no:randomly "
        "tests/crash/test_every_frontend.py"
    )
    await run(every_load(seed), min(ROUNDS, max(KINDS, CRASH_ROUNDS)), seed, tmp_path)
