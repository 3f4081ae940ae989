"""A crash alone never leads to a report of damage: kill -9 and power failures at seeded calls, in
recoveries too.

`make crash` has more seeds (SPARROW_CRASH_ROUNDS).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from dataclasses import dataclass, field

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull
from sparrow.storage.local import LocalLogStore
from sparrow.storage.log import LocalLog
from sparrow.storage.recovery import examine_all
from sparrow.storage.store import LogConfig, LogId
from tests.crash.machine.disk import Disk
from tests.repetitions import CRASH_ROUNDS, repetitions
from tests.storage.batches import NOW_MS, batch, keyed
from tests.storage.test_local_log_store import ON_THE_LOOP

SEEDS = max(repetitions(50), CRASH_ROUNDS * 2)
LIVES = 6
MOST_RECORDS = 3
"""Largest number of records in a batch."""
CONFIGS = (
    LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1, retention_bytes=4000),
    LogConfig(
        segment_bytes=900,
        index_interval_bytes=150,
        retention_ms=-1,
        compact=True,
        delete=False,
        min_cleanable_dirty_ratio=0.1,
    ),
)


class GoneError(BaseException):
    """The process has ended."""


class OneDisk(Disk):
    """A disk that ends the process, or the machine's power, at the chosen call."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kills_only = False
        self.is_off = False
        self.at_power_off = self._end

    def crash(self) -> None:
        if self.kills_only:
            self.kill()
        else:
            super().crash()

    def _end(self) -> None:
        self.is_off = True
        raise GoneError

    def _count_call(self, path: str) -> None:
        if self.is_off:
            raise GoneError
        super()._count_call(path)

    def switch_on(self) -> None:
        self.stay_on()
        self.kill()
        self.taken_bytes = 0
        self.is_off = False


@dataclass
class Story:
    """Two logs on one disk: one loses old segments, the other is compacted; topics are deleted and
    created again.
    """

    disk: OneDisk
    dice: random.Random
    ids: list[LogId] = field(
        default_factory=lambda: [LogId("a", uuid.UUID(int=1), 0), LogId("b", uuid.UUID(int=2), 0)]
    )
    made: int = 2
    durable: dict[LogId, int] = field(default_factory=dict)
    """Offsets before which everything is promised."""

    def open(self) -> None:
        self.store = LocalLogStore("/data", self.disk, ManualClock(NOW_MS), ON_THE_LOOP)
        self.logs: list[LocalLog] = []
        for log_id, config in zip(self.ids, CONFIGS, strict=True):
            log = self.store.open(log_id, config)
            assert isinstance(log, LocalLog)
            self.logs.append(log)

    async def step(self) -> None:
        number = self.dice.randrange(2)
        log, act = self.logs[number], self.dice.random()
        if act < 0.6:
            values = [b"x" * self.dice.randint(10, 200) for _ in range(self.dice.randint(1, MOST_RECORDS))]
            log.append([keyed([(b"%d" % self.dice.randrange(6), each) for each in values])])
        elif act < 0.7:
            await self._promise(log)
        elif act < 0.77:
            await log.checkpoint(b"fold" if self.dice.random() < 0.5 else b"")
            self._promised(log, log.durable_offset)
        elif act < 0.84:
            await log.enforce_retention(NOW_MS)
        elif act < 0.91:
            await log.compact(NOW_MS)
        elif act < 0.94:
            await log.delete_records(self.dice.randint(log.start_offset, log.end_offset))
        elif act < 0.98:
            await self._delete(number)
        else:
            await self._fill()

    def _promised(self, log: LocalLog, offset: int) -> None:
        self.durable[log.id] = max(self.durable.get(log.id, 0), offset)

    async def _promise(self, log: LocalLog) -> None:
        end = log.end_offset
        await log.durable(end)
        self._promised(log, end)

    async def _delete(self, number: int) -> None:
        """Delete the topic and create it again, under the same name."""
        old = self.ids[number]
        self.made += 1
        self.ids[number] = LogId(old.topic, uuid.UUID(int=self.made), 0)
        await self.store.delete(self.logs[number])
        log = self.store.open(self.ids[number], CONFIGS[number])
        assert isinstance(log, LocalLog)
        self.logs[number] = log

    async def _fill(self) -> None:
        self.disk.fill(self.dice.choice((0, 300, 2000)))
        with contextlib.suppress(DiskFull):
            for _ in range(6):
                log = self.dice.choice(self.logs)
                log.append([batch(b"x" * 300)])
                await log.enforce_retention(NOW_MS)
        self.disk.taken_bytes = 0

    async def live(self) -> None:
        """Run until the end comes; a call that waits for the disk then waits for ever."""
        self.disk.power_off_after(self.dice.randint(1, 90))
        with contextlib.suppress(GoneError):
            self.open()
        while not self.disk.is_off:
            step = asyncio.ensure_future(self.step())
            while not step.done() and not self.disk.is_off:
                await asyncio.sleep(0)
            if self.disk.is_off:
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            else:
                await step
        self.disk.switch_on()

    def check(self) -> None:
        assert [
            each for found in examine_all(self.disk, "/data") for each in found.damages + found.unreadable
        ] == []
        self.open()
        assert self.store.damages.known() == []
        for log in self.logs:
            assert log.end_offset >= self.durable.get(log.id, 0)
        self.disk.kill()


@pytest.mark.parametrize("group", range(5))
async def test_no_crash_is_taken_for_damage(group: int) -> None:
    # the flusher dies with the disk
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for seed in range(group, SEEDS, 5):
        disk, dice = OneDisk(seed), random.Random(seed)
        story = Story(disk, dice)
        for _ in range(LIVES):
            disk.kills_only = dice.random() < 0.4
            try:
                await story.live()
                story.check()
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
