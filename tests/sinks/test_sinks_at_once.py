"""Queries that write at once: they share slots, run again, lose attempts, ask twice for commits,
are aborted and expire, in random orders of the loop.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from sparrow.base.errors import SinkFenced, StageExpired
from sparrow.broker.broker import Broker
from sparrow.broker.sinks.stage import Stage
from sparrow.broker.sinks.state import Caller
from sparrow.meta.store import Write
from tests.sinks.staging import TIMEOUT_MS, put
from tests.transactions.machine import CuttableMetaStore, Machine, read_committed

TOPICS = ("a", "b")
QUERIES, BATCHES = 6, 12

Row = tuple[str, bytes]


class SlowMetaStore(CuttableMetaStore):
    """A meta store that lets other tasks run between a write and its end."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    async def write(self, writes: Sequence[Write]) -> None:  # type: ignore[override]
        await pause(self._dice, 4)
        await super().write(list(writes))


async def pause(dice: random.Random, below: int) -> None:
    for _ in range(dice.randrange(below)):
        await asyncio.sleep(0)


class Query:
    def __init__(self, name: str, machine: Machine, broker: Broker, dice: random.Random) -> None:
        self.name, self.machine, self.broker, self.dice = name, machine, broker, dice
        self.committed: Counter[Row] = Counter()
        self.runs = self.tries = 0

    async def work(self) -> None:
        for batch in range(BATCHES):
            while not await self._is_written(batch):
                pass

    async def _is_written(self, batch: int) -> bool:
        """Return True if one try succeeded, as Spark makes it: some attempts of tasks lose, or
        still run when the batch is committed.
        """
        self.tries += 1
        if not self.runs or self.dice.random() < 0.3:
            self.runs += 1
        caller = Caller(self.name, f"{self.name}-{self.runs}", batch)
        attempts = [
            asyncio.ensure_future(self._attempt(caller, number)) for number in range(self.dice.randint(1, 3))
        ]
        try:
            await self._commit(caller, [await each for each in attempts[: self.dice.randint(1, 3)]])
        except (StageExpired, SinkFenced):
            return False
        finally:
            ended = asyncio.gather(*attempts, return_exceptions=True)
            if self.dice.random() < 0.5:
                await ended
        return True

    async def _attempt(self, caller: Caller, number: int) -> tuple[Stage, list[Row]]:
        await pause(self.dice, 6)
        stage = await self.broker.sinks.stage(
            self.name, caller, task=number, attempt=0, timeout_ms=TIMEOUT_MS
        )
        if stage is None:  # a late attempt of a finished batch
            raise StageExpired
        rows = [
            (topic, f"{self.name} {caller.batch} {self.tries} {number}".encode())
            for topic in self.dice.sample(TOPICS, self.dice.randint(1, 2))
        ]
        for topic, value in rows:
            await put(self.machine, self.broker, stage, topic, value)
            await pause(self.dice, 6)
        return stage, rows

    async def _commit(self, caller: Caller, winners: Sequence[tuple[Stage, list[Row]]]) -> None:
        if self.dice.random() < 0.1:
            await self.broker.sinks.abort(self.name, caller)
        asked = [
            self.broker.sinks.commit(self.name, caller, [stage.stage_id for stage, _ in winners])
            for _ in range(self.dice.randint(1, 2))
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for each in answers:
            if isinstance(each, BaseException):
                raise each
        assert answers.count(False) == 1
        for _, rows in winners:
            self.committed.update(rows)


async def keep_house(machine: Machine, broker: Broker, dice: random.Random) -> None:
    while True:
        for _ in range(50):
            await asyncio.sleep(0)
        machine.clock.advance(dice.choice((1, 1, 1, 5, TIMEOUT_MS / 1000 + 1)))
        await broker.parts.sink_coordinator.tick()
        await broker.parts.transaction_coordinator.tick()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_queries_side_by_side_lose_nothing_and_repeat_nothing(seed: int) -> None:
    dice, machine = random.Random(seed), Machine()
    machine.meta = SlowMetaStore(dice)
    machine.meta.fs = machine.fs
    broker = await machine.start()
    for topic in TOPICS:
        await broker.topics.create(topic, 1)
    queries = [Query(f"q{number}", machine, broker, dice) for number in range(QUERIES)]
    house = asyncio.ensure_future(keep_house(machine, broker, dice))
    async with asyncio.timeout(60):
        await asyncio.gather(*(each.work() for each in queries))
    house.cancel()
    with suppress(asyncio.CancelledError):
        await house
    machine.clock.advance(2 * TIMEOUT_MS / 1000)
    await broker.parts.sink_coordinator.tick()

    committed = sum((each.committed for each in queries), Counter[Row]())
    for topic in TOPICS:
        seen = Counter((topic, value) for value in await read_committed(broker, topic))
        assert seen == Counter({row: count for row, count in committed.items() if row[0] == topic})
        partition = broker.parts.topic_registry.get(topic).partition(0)
        assert partition.last_stable_offset == partition.visible_end
    assert list(broker.parts.sink_coordinator.stages) == []
    assert await machine.meta.scan("sink-stage") == []
    await broker.close()
