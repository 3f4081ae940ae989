"""Background work of a broker: retention, compaction, checkpoints, group clocks, forgetting silent
producers.

One task ticks often (groups), another walks over the partitions now and then. A partition that was
not used since a clean start is opened by the walk, a few per round, so that retention reaches idle
topics too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.broker.idempotency.keys import IdempotencyKeys
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.sinks.coordinator import SinkCoordinator
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.broker.transactions.coordinator import TransactionCoordinator
    from sparrow.storage.store import LogId

_LOG = logging.getLogger(__name__)
_OPENED_PER_ROUND = 100
RECORD_INTERVAL_MS = 5_000
_SCRUBBED_AT_ONCE = 256 << 10
"""Bytes that the scrubber reads before it waits."""

Work = Callable[[], Awaitable[None]]


class BrokerMaintenance:
    """The background tasks, between `start` and `stop`; tests call `tick` and `walk` themselves."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: TopicRegistry,
        groups: GroupRegistry,
        *,
        transactions: TransactionCoordinator,
        queues: QueueRegistry,
        idempotency: IdempotencyKeys,
        sinks: SinkCoordinator,
        written: frozenset[LogId],
        survey: Callable[[Iterable[LogId]], Awaitable[None]],
        record: Work | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._transactions = transactions
        self._queues = queues
        self._idempotency = idempotency
        self._sinks = sinks
        self._written = written
        """Logs that had data when the broker started."""
        self._survey = survey
        self._record = record
        """Takes a sample for the history of the broker."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(self._config.tick_interval_ms, self.tick)),
            loop.create_task(self._every(self._config.tick_interval_ms, self._transactions.tick)),
            loop.create_task(self._every(self._config.tick_interval_ms, self._idempotency.tick)),
            loop.create_task(self._every(self._config.tick_interval_ms, self._sinks.tick)),
            loop.create_task(self._every(self._config.retention_check_interval_ms, self.walk)),
        ]
        self._tasks.append(loop.create_task(self.survey()))
        if self._record is not None:
            self._tasks.append(loop.create_task(self._every(RECORD_INTERVAL_MS, self._record)))
        if self._config.scrub_bytes_per_s:
            self._tasks.append(
                loop.create_task(self._every(self._config.retention_check_interval_ms, self.scrub))
            )

    async def survey(self) -> None:
        """Check logs that are not open for lost files: a clean start opens few, and supervisors ask
        soon.
        """
        unopened = [
            partition.id
            for topic in self._topics
            for partition in topic.partitions
            if partition.id in self._written and not partition.is_open and partition.failure is None
        ]
        try:
            await self._survey(unopened)
        except Exception:  # noqa: BLE001 - as in `_every`
            _LOG.exception("looking for lost files failed")

    async def scrub(self) -> None:
        """Check old data on the disk, at a bounded rate: one pass over all open logs."""
        rate = self._config.scrub_bytes_per_s
        for partition in [each for each in self._partitions() if each.is_open]:
            try:
                checked = 1
                while checked:
                    checked = await partition.log.scrub(min(rate, _SCRUBBED_AT_ONCE))
                    await asyncio.sleep(checked / rate)
            except SparrowError as error:
                _LOG.warning("checking %s for damage: %s", partition.id, error.text)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Stop; cancel a round in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @staticmethod
    async def _every(interval_ms: int, work: Work) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except Exception:  # noqa: BLE001 - housekeeping must outlive any one failure; the next round tries again
                _LOG.exception("housekeeping failed")

    async def tick(self) -> None:
        """Do the frequent work: members whose session is over. (Transactions have a task of their
        own: theirs may wait.)
        """
        self._queues.housekeep()
        await self._groups.tick()

    async def walk(self) -> None:
        """Do the rare work for every partition that has data."""
        now_ms = self._clock.wall_ms()
        for partition in list(self._partitions()):
            try:
                await self._keep(partition, now_ms)
            except SparrowError as error:
                _LOG.warning("housekeeping of %s: %s", partition.id, error.text)
            except Exception:  # noqa: BLE001 - a bug with one partition must not end the walk, round after round
                _LOG.exception("housekeeping of %s failed", partition.id)
            await asyncio.sleep(0)

    def _partitions(self) -> Iterator[Partition]:
        unopened = 0
        for topic in list(self._topics):
            for partition in topic.partitions:
                if partition.failure is not None:
                    continue  # it is closed
                if partition.is_open:
                    yield partition
                elif partition.id in self._written and unopened < _OPENED_PER_ROUND:
                    unopened += 1
                    yield partition

    async def _keep(self, partition: Partition, now_ms: int) -> None:
        log = await partition.opened()
        partition.forget_silent_producers(now_ms - self._config.producer_expiration_ms)
        await self._transactions.abort_forgotten(partition)
        if log.config.delete:
            await partition.keep_producers()
            await log.enforce_retention(now_ms)
        if log.config.compact:
            await log.compact(now_ms)
            for error in log.kept_unreadable:
                partition.corrupt_batches.met("compaction", "keep", error)
        if log.uncheckpointed_bytes > self._config.checkpoint_bytes:
            await partition.checkpoint()
