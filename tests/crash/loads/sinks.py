"""A query that writes batches into a sink as Spark's tasks and driver do: staged by two tasks,
committed by one call, restarted by later runs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from sparrow.base.errors import SparrowError
from sparrow.client import connect
from sparrow.records.builder import build_batch
from sparrow.spark.wire import Session, Target
from sparrow.spark.wire import connect as connect_session
from sparrow.spark.wire.staged import SinkStage, StagedWriter, commit, stage
from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import kept
from tests.crash.histories.transactions import broken
from tests.crash.loads.kafka import Threaded
from tests.crash.loads.patience import AGAIN_S
from tests.crash.loads.topic import PAUSE_S
from tests.crash.publisher import PARTITIONS, number_of, read_all

_TASKS = 2
_RECORDS = 6
_LOSER = 1_000_000
"""First number of records that no driver commits."""


class SinkQuery(Threaded):
    """A query with a sink: each batch whose commit returned is there once and whole; nothing of
    losing attempts is visible.
    """

    name = "sink"

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._committed: list[int] = []
        self._runs = 0

    async def prepare(self, broker: RunningBroker) -> None:
        self._url = broker.url
        async with connect(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    def work(self, servers: str, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._runs += 1
            try:
                with connect_session(Target(self._url, retries=0)) as session:
                    while not is_over():
                        self._batch(session, len(self._committed))
                        time.sleep(PAUSE_S)
                        if self._dice.random() < 0.1:
                            break  # a later run takes the query over
            except (SparrowError, OSError):  # what the run has begun the next one begins again
                time.sleep(AGAIN_S)

    def _batch(self, session: Session, number: int) -> None:
        run = f"r-{self._runs}"
        stages = []
        for task in range(_TASKS + 1):
            made = stage(
                session, sink=self.name, query="q", run=run, batch=number, task=task, timeout_ms=60_000
            )
            if made is None:  # the run before has committed it, and received no response
                self._committed.append(number)
                return
            is_loser = task == _TASKS
            self._write(session, made, _LOSER + number if is_loser else number)
            if not is_loser:
                stages.append(made.id)
        commit(session, sink=self.name, query="q", run=run, batch=number, stages=stages)
        self._committed.append(number)

    def _write(self, session: Session, made: SinkStage, number: int) -> None:
        writer = StagedWriter(session, made, self.name)
        try:
            for partition in range(PARTITIONS):
                data = build_batch(
                    [b"%d" % number] * (_RECORDS // PARTITIONS),
                    timestamps=time.time_ns() // 1_000_000,
                    producer_id=made.producer_id,
                    producer_epoch=made.producer_epoch,
                    base_sequence=0,
                    transactional=True,
                )
                writer.publish(partition, data)
            writer.finish()
        finally:
            writer.close()

    async def check(self, broker: RunningBroker) -> None:
        # Open stages are dropped by the run that commits the next batch.
        await asyncio.to_thread(self._last_batch)
        found = [
            number_of(each) for each in await read_all(broker.url, self.name, isolation="read_committed")
        ]
        losers = {number for number in found if number >= _LOSER}
        kept(broken(found, committed=self._committed, aborted=losers, size=_RECORDS * _TASKS))
        assert sorted(set(found)) == self._committed

    def _last_batch(self) -> None:
        self._runs += 1
        with connect_session(Target(self._url, retries=0)) as session:
            self._batch(session, len(self._committed))

    @property
    def progress(self) -> int:
        return len(self._committed)
