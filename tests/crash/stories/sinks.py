"""A streaming query that writes batches into a sink: batch n writes n from each task to each topic,
beside a task attempt that loses.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

from sparrow.broker.broker import Broker
from sparrow.broker.sinks.stage import Stage
from sparrow.broker.sinks.state import Caller
from tests.crash.stories import Notes, batch
from tests.transactions.machine import read_committed

_SINK, _QUERY, _TOPICS, _TASKS = "copy", "query", ("north", "south"), 2
_TIMEOUT_MS = 60_000
_runs = itertools.count(1)


class Sinks:
    """Batches of a sink: a committed batch is there once and whole, in every topic; a batch that is
    written again after a crash is not there twice.
    """

    name = "sinks"

    def __init__(self) -> None:
        self.notes = Notes()

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        for topic in _TOPICS:
            await broker.topics.create(topic, 1)
        run = f"run-{next(_runs)}"
        await self._commit(broker, run, 0, await self._staged(broker, run, 0), self.notes)
        staged = await self._staged(broker, run, 1)
        broker = yield
        await self._commit(broker, run, 1, staged, self.notes)
        await self._commit(broker, run, 2, await self._staged(broker, run, 2), self.notes)

    async def _staged(self, broker: Broker, run: str, number: int) -> list[str]:
        """Write the stages of a batch; a batch that is committed already has none."""
        stages = []
        for task in range(_TASKS + 1):
            stage = await broker.sinks.stage(
                _SINK, Caller(_QUERY, run, number, False), task=task, attempt=0, timeout_ms=_TIMEOUT_MS
            )
            if stage is not None:
                for topic in _TOPICS if task < _TASKS else _TOPICS[:1]:
                    value = b"%d" % number if task < _TASKS else b"-1"
                    await _put(broker, stage, topic, value)
                stages.append(stage)
        return [stage.stage_id for stage in stages[:_TASKS]]

    async def _commit(self, broker: Broker, run: str, number: int, staged: list[str], notes: Notes) -> None:
        notes.add("asked", number)
        await broker.sinks.commit(_SINK, Caller(_QUERY, run, number, False), staged)
        notes.add("done", number)

    async def check(self, broker: Broker, notes: Notes) -> None:
        await self._compare(broker, notes)
        again = Notes(list(notes.entries))
        for number in set(notes.all("asked")) - set(notes.all("done")):
            run = f"run-{next(_runs)}"
            await self._commit(broker, run, number, await self._staged(broker, run, number), again)
        await self._compare(broker, again)

    async def _compare(self, broker: Broker, notes: Notes) -> None:
        seen = [
            sorted(int(value) for value in await read_committed(broker, topic))
            for topic in _TOPICS
            if broker.parts.topic_registry.find(topic) is not None
        ]
        if not notes.all("asked"):
            assert not any(seen)
            return
        north, south = seen
        assert north == south == sorted(list(set(north)) * _TASKS)
        assert set(notes.all("done")) <= set(north) <= set(notes.all("asked"))


async def _put(broker: Broker, stage: Stage, topic: str, value: bytes) -> None:
    publishing = broker.sinks.publisher(stage.stage_id)
    publishing.check((topic, 0))
    await publishing.join([(topic, 0)])
    data = batch(
        value,
        producer_id=stage.producer.producer_id,
        epoch=stage.producer.epoch,
        sequence=0,
        transactional=True,
    )
    await publishing.publish((topic, 0), data)
    publishing.end(is_complete=True)
