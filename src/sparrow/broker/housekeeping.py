"""What happens by itself: retention, compaction, checkpoints, group clocks, forgetting silent producers.

One task ticks often (groups), another walks over the partitions now and then. A partition that was never touched since a
clean start is opened by the walk, a few per round, so that retention reaches idle topics too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.groups.groups import Groups
    from sparrow.broker.idempotency.keys import IdempotencyKeys
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.queues import Queues
    from sparrow.broker.sinks.coordinator import SinkCoordinator
    from sparrow.broker.topics import Topics
    from sparrow.broker.transactions.coordinator import TransactionCoordinator
    from sparrow.storage.store import LogId

_LOG = logging.getLogger(__name__)
_OPENED_PER_ROUND = 100

Work = Callable[[], Awaitable[None]]


class Housekeeping:
    """Runs between `start` and `stop`; tests call `tick` and `walk` themselves."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: Topics,
        groups: Groups,
        *,
        transactions: TransactionCoordinator,
        queues: Queues,
        idempotency: IdempotencyKeys,
        sinks: SinkCoordinator,
        written: frozenset[LogId],
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
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(self._config.tick_interval_ms, self.tick)),
            loop.create_task(self._every(self._config.tick_interval_ms, self._transactions.tick)),
            loop.create_task(self._every(self._config.tick_interval_ms, self._idempotency.tick)),
            loop.create_task(self._every(self._config.tick_interval_ms, self._sinks.tick)),
            loop.create_task(self._every(self._config.retention_check_interval_ms, self.walk)),
        ]

    async def stop(self) -> None:
        """End; a round under way is cancelled."""
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
        """What depends on short times: members whose session is over. (Transactions have a task of their own: theirs may wait.)"""
        self._queues.housekeep()
        await self._groups.tick()

    async def walk(self) -> None:
        """What depends on long times: every partition that has data."""
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
                if partition.is_open:
                    yield partition
                elif partition.id in self._written and unopened < _OPENED_PER_ROUND:
                    unopened += 1
                    yield partition

    async def _keep(self, partition: Partition, now_ms: int) -> None:
        log = partition.log  # opened here if need be: cheap, because only a clean start leaves logs unopened
        partition.forget_silent_producers(now_ms - self._config.producer_expiration_ms)
        await self._transactions.abort_forgotten(partition)
        if log.config.delete:
            await partition.keep_producers()
            await log.enforce_retention(now_ms)
        if log.config.compact:
            await log.compact(now_ms)
        if log.uncheckpointed_bytes > self._config.checkpoint_bytes:
            await partition.checkpoint()
