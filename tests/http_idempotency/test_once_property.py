"""Publishes with keys on a machine that loses its power, or only the process, at any moment, and
whose meta store is full now and then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.base.errors import SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.idempotent_publisher import IdempotentPublisher
from sparrow.frontends.publisher import Message, Publisher, Stored
from sparrow.meta.memory import MemoryMetaStore, MetaFaults
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.http_idempotency.keyed import Keyed, stored
from tests.repetitions import repetitions

NEVER_MS = 1 << 40
QUIET = BrokerConfig(tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS)
ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0)
SMALL_BATCHES = {"max.message.bytes": "300"}
PUBLISHES = 4


def messages_of(number: int) -> list[Message]:
    """Return the messages of one publish; their values occur nowhere else."""
    return [
        Message(b"%d-%d" % (number, n) + b"." * 40, b"k%d" % n if n % 2 else None)
        for n in range(1 + 2 * number)
    ]


class Machine(Keyed):
    """A disk, a meta store and a clock that outlive the brokers on them."""

    def __init__(self, seed: int, disk_full: float) -> None:
        super().__init__("/data", ManualClock(), QUIET)
        self.fs = FaultyFileSystem(seed)
        self.meta = MemoryMetaStore()
        self._seed = seed
        self._disk_full = disk_full

    async def start(self, *, until_counted: bool = True) -> None:
        faults = MetaFaults(self._seed, self._disk_full)
        # writes of the last broker are lost from now on
        self.meta = MemoryMetaStore(dict(self.meta.entries))
        logs = LocalLogStore("/data", self.fs, self.clock, ON_THE_LOOP)
        self.broker = Broker(config=QUIET, clock=self.clock, log_store=logs, meta_store=self.meta)
        await self.broker.start()
        if self.broker.parts.topic_registry.find("t") is None:
            await self.broker.topics.create("t", 3, SMALL_BATCHES)
        self.meta._faults = faults
        self.publisher = Publisher(self.broker)
        self.once = IdempotentPublisher(self.broker, self.publisher)

    async def end(self, *, loses_power: bool) -> None:
        entries = dict(self.meta.entries)
        if loses_power:
            self.fs.crash()
        else:
            self.fs.kill()
        self.meta._failed = SparrowError("the process is dead")  # type: ignore[assignment]
        await self.broker._maintenance.stop()
        for task in list(self.broker.idempotency._tasks):
            task.cancel()
        await asyncio.gather(*self.broker.idempotency._tasks, return_exceptions=True)
        self.meta.entries = entries


CRASHES = st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=repetitions(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 16), crashes=CRASHES, disk_full=st.sampled_from([0.0, 0.1]))
def test_no_message_is_stored_twice_and_every_answer_holds(
    seed: int, crashes: list[tuple[int, bool]], disk_full: float
) -> None:
    asyncio.run(_live(Machine(seed, disk_full), crashes))


async def _live(machine: Machine, crashes: list[tuple[int, bool]]) -> None:
    told: dict[int, list[Stored]] = {}

    async def publish(number: int) -> None:
        with suppress(SparrowError):
            answers = await machine.publish(f"{number}", messages_of(number))
            if not any(isinstance(each, SparrowError) for each in answers.results):
                assert told.setdefault(number, stored(answers)) == stored(answers)

    for steps, loses_power in crashes:
        await machine.start()
        clients = [asyncio.create_task(publish(number)) for number in range(PUBLISHES)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await machine.end(loses_power=loses_power)
    machine._disk_full = 0.0
    await machine.start()
    for number in range(PUBLISHES):
        await publish(number)
    assert told.keys() == set(range(PUBLISHES))
    assert await machine.counts() == Counter(
        message.value for number in range(PUBLISHES) for message in messages_of(number)
    )
    await machine.broker.close()
