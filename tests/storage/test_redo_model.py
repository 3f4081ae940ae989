"""Several logs and the state of queues share one journal: lives by seed, with power failures, kills
and clean ends between them. What was confirmed is there, nothing that was removed comes back, and
no wait is forgotten.

SPARROW_REDO_SEEDS is the number of lives of each test, SPARROW_REDO_SEED the first one.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import OffsetOutOfRange, Overloaded, SparrowError
from sparrow.meta.store import Put
from sparrow.records.batch import parse_header
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.store import LogConfig, LogId
from tests.repetitions import repetitions
from tests.storage.batches import NOW_MS, keyed, numbered, payload, read_batches
from tests.storage.test_redo import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.storage.log import LocalLog

pytestmark = pytest.mark.slow
SEEDS = repetitions(200, "SPARROW_REDO_SEEDS")
FIRST = int(os.environ.get("SPARROW_REDO_SEED", "0"))
GROUPS = 8
LIVES = 4
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=150, retention_ms=-1, retention_bytes=8000)
LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=150, retention_ms=-1)
COMPACTED = LogConfig(
    segment_bytes=900, index_interval_bytes=150, compact=True, delete=False, min_cleanable_dirty_ratio=0
)
_ITERATIONS = 3000
"""Iterations of the loop within which every wait ends while the device works."""


@dataclass
class Topic:
    """A log, and what is known of it."""

    name: str
    config: LogConfig
    number: int
    batches: dict[int, tuple[int, bytes, bytes]] = field(default_factory=dict)
    """Last offset, payload and key of the batches, by base offset."""
    end: int = 0
    durable: int = 0
    start: int = 0
    emptied: set[int] = field(default_factory=set)
    """Base offsets of batches that were removed, or may be."""
    superseded: set[int] = field(default_factory=set)
    """Base offsets of batches behind which there was a newer one of their key."""
    is_going: bool = False
    """True while it is deleted."""

    @property
    def id(self) -> LogId:
        return LogId(self.name, uuid.UUID(int=self.number), 0)

    def forget_behind(self, end: int) -> None:
        """Forget what a power failure took."""
        self.batches = {base: each for base, each in self.batches.items() if base < end}
        self.emptied = {base for base in self.emptied if base < end}
        self.superseded = {base for base in self.superseded if base < end}
        self.end, self.durable, self.start = end, min(self.durable, end), min(self.start, end)


class World:
    """A machine with three topics, under one seed."""

    def __init__(self, seed: int, **faults: float) -> None:
        self.rng = random.Random(seed)
        self.machine = Machine(seed, journal_bytes=self.rng.choice((16 << 10, 64 << 10, 256 << 10)))
        self.machine.fs = self.fs = FaultyFileSystem(seed, short_writes=0.1, would_block=0.2, **faults)
        self.topics = [
            Topic(name, config, number)
            for number, (name, config) in enumerate((("a", SMALL), ("b", LARGE), ("c", COMPACTED)), 1)
        ]
        self.logs: dict[str, LocalLog] = {}
        self.number = 0
        self.topic_number = 10
        self.confirmed: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.failures: list[SparrowError] = []

    # ── the life ──

    async def start(self) -> None:
        await self.machine.start()
        for topic in self.topics:
            if topic.is_going:  # as the broker does with logs of deleted topics
                await self.machine.store.purge(topic.id)
                self.renew(topic)
            self.logs[topic.name] = self.machine.open(topic.id, topic.config)

    def renew(self, topic: Topic) -> None:
        self.topic_number += 1
        topic.__init__(topic.name, topic.config, self.topic_number)  # type: ignore[misc]

    def launch(self, work: Coroutine[None, None, None], topic: Topic | None = None) -> None:
        number = topic.number if topic is not None else 0

        async def run() -> None:
            try:
                if topic is None or topic.number == number:
                    await work
            except SparrowError as error:
                if topic is None or (topic.number == number and not topic.is_going):
                    self.failures.append(error)

        task = asyncio.get_running_loop().create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may not have begun

    async def settled(self) -> None:
        """Wait for everything that was begun, for a bounded time."""
        for _ in range(_ITERATIONS):
            if not self.tasks:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{len(self.tasks)} waits were forgotten")

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            for _ in range(self.rng.choice((0, 0, 1, 2, 5, 20))):
                await asyncio.sleep(0)

    def step(self) -> None:
        topic = self.rng.choice(self.topics)
        if topic.is_going:
            return
        log = self.logs[topic.name]
        acts: list[tuple[float, Callable[[], None]]] = [
            (40, lambda: self.append(topic, log)),
            (25, lambda: self.launch(self.wait(topic, log), topic)),
            (15, lambda: self.launch(self.write())),
            (4, lambda: self.launch(self.checkpoint(topic, log), topic)),
            (2, self.machine.states._save_soon),
            (2, lambda: self.launch(self.compact(topic, log), topic)),
            (2, lambda: self.launch(self.retain(topic, log), topic)),
            (2, lambda: self.launch(self.delete_records(topic, log), topic)),
            (1, lambda: self.launch(self.empty(topic, log), topic)),
            (0.7, lambda: self.launch(self.replace(topic, log), topic)),
        ]
        weights, calls = zip(*acts, strict=True)
        self.rng.choices(calls, weights)[0]()

    def append(self, topic: Topic, log: LocalLog) -> None:
        self.number += 1
        key = b"%d" % self.rng.randint(0, 5)
        if topic.config.compact:
            made = keyed([(key, b"%d" % self.number * self.rng.randint(1, 20))])
        else:
            size = 20_000 if self.rng.random() < 0.02 else self.rng.randint(10, 500)
            made = numbered(self.number, self.rng.randint(1, 3), size)
        try:
            appended = log.append([made]).result()
        except SparrowError as error:
            self.failures.append(error)
            return
        topic.superseded |= {base for base, (_, _, its_key) in topic.batches.items() if its_key == key}
        topic.batches[appended.base_offset] = (appended.last_offset, payload(bytes(made[1])), key)
        topic.end = appended.last_offset + 1

    async def wait(self, topic: Topic, log: LocalLog) -> None:
        number, end = topic.number, log.end_offset
        with suppress(OffsetOutOfRange):
            await log.durable(end)
            if topic.number == number:  # it was not deleted meanwhile
                topic.durable = max(topic.durable, end)

    async def write(self) -> None:
        self.number += 1
        key, number = self.rng.choice("xyz"), self.number
        self.written[key] = number
        await self.machine.states.append([Put("page", key, b"%d" % number)])
        self.confirmed[key] = max(self.confirmed.get(key, 0), number)

    async def checkpoint(self, topic: Topic, log: LocalLog) -> None:
        number, end = topic.number, log.end_offset
        with suppress(Overloaded):
            await log.checkpoint(b"")
            if topic.number == number:
                topic.durable = max(topic.durable, end)

    async def compact(self, topic: Topic, log: LocalLog) -> None:
        if topic.config.compact:
            await log.compact(NOW_MS)

    async def retain(self, topic: Topic, log: LocalLog) -> None:
        number = topic.number
        await log.enforce_retention(NOW_MS)
        if topic.number == number:
            topic.start = max(topic.start, log.start_offset)

    async def delete_records(self, topic: Topic, log: LocalLog) -> None:
        number, wanted = topic.number, self.rng.randint(log.start_offset, log.end_offset)
        with suppress(Overloaded):
            start = await log.delete_records(wanted)
            if topic.number == number:
                topic.start = max(topic.start, start)

    async def empty(self, topic: Topic, log: LocalLog) -> None:
        if topic.config.compact:
            return
        there = [base for base in topic.batches if base >= log.start_offset and base not in topic.emptied]
        if there:
            base = self.rng.choice(there)
            topic.emptied.add(base)
            with suppress(OffsetOutOfRange):
                await log.remove_batch(base, force=True)

    async def replace(self, topic: Topic, log: LocalLog) -> None:
        topic.is_going = True
        await self.machine.store.delete(log)
        self.renew(topic)
        self.logs[topic.name] = self.machine.open(topic.id, topic.config)

    # ── its end ──

    async def die(self) -> None:
        for task in self.tasks:
            task.cancel()
        states = self.machine.states
        for saver in (states._saver, states._working):
            if saver is not None:
                saver.cancel()
        for _ in range(50):
            await asyncio.sleep(0)

    async def check(self, *, has_all: bool) -> None:
        """Check all logs and entries. `has_all`: nothing was lost, only the process ended."""
        for topic in self.topics:
            log = self.logs[topic.name]
            await self.check_topic(topic, log, has_all=has_all)
            assert not log.failure
        assert not self.machine.store.damages.known()
        for key, confirmed in self.confirmed.items():
            entry = await self.machine.states.get("page", key)
            assert entry is not None
            assert confirmed <= int(entry.value) <= self.written[key], key
            self.confirmed[key] = int(entry.value)

    async def check_topic(self, topic: Topic, log: LocalLog, *, has_all: bool) -> None:
        least = topic.end if has_all else topic.durable
        assert least <= log.end_offset <= topic.end, (topic.name, least, log.end_offset, topic.end)
        if log.start_offset < topic.start:
            assert topic.durable == 0
        found = {parse_header(each).base_offset: each for each in await read_batches(log)}
        for base, data in found.items():
            if payload(data) != topic.batches[base][1]:
                assert base in topic.emptied, (topic.name, base)
                assert parse_header(data).record_count == 0
        for base, (last, _, _) in topic.batches.items():
            if last < log.start_offset or base >= log.end_offset or base in found:
                continue
            assert topic.config.compact, (topic.name, base)
            assert base in topic.superseded, (topic.name, base)
        topic.forget_behind(log.end_offset)
        topic.start = log.start_offset


def lives(group: int) -> range:
    return range(FIRST + group, FIRST + SEEDS, GROUPS)


@pytest.mark.parametrize("group", range(GROUPS))
async def test_confirmed_records_and_states_survive_every_end(group: int) -> None:
    for seed in lives(group):
        world = World(seed)
        try:
            for _ in range(LIVES):
                await world.start()
                await world.live(world.rng.randint(0, 150))
                ends = world.rng.random()
                if ends < 0.35:
                    await world.settled()
                assert not world.failures
                if ends < 0.2:
                    await world.machine.states.close()
                    await world.machine.store.close()
                else:
                    await world.die()
                is_kill = ends > 0.8
                world.fs.kill() if is_kill else world.fs.crash()
                await world.start()
                await world.check(has_all=is_kill or ends < 0.2)
                await world.die()
                world.fs.crash()  # replayed twice, and nothing was synced meanwhile
                await world.start()
                await world.check(has_all=ends < 0.2)
                await world.die()
                world.fs.kill()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("group", range(GROUPS))
async def test_confirmed_records_and_states_survive_a_device_that_goes_away(group: int) -> None:
    for seed in lives(group):
        world = World(seed)
        try:
            for _ in range(LIVES):
                await world.start()
                world.fs.calls_left = world.rng.randrange(400)
                await world.live(world.rng.randint(0, 150))
                await world.settled()
                await world.die()
                world.failures.clear()
                world.fs.calls_left = None
                world.fs.crash()
                # Power fails while the journal is replayed and the logs are recovered.
                world.fs.calls_left = world.rng.randrange(30)
                with suppress(SparrowError):
                    await world.start()
                await world.die()
                world.fs.calls_left = None
                world.fs.crash()
                await world.start()
                await world.check(has_all=False)
                await world.die()
                world.fs.kill()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
