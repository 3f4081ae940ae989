"""The owner's background work on a shard: merging, the collection of garbage, and the time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.cluster.collect import collect_dead, collect_orphans
from sparrow.cluster.merge import merge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.cluster.clock import LedgerClock
    from sparrow.cluster.ledger import Ledger
    from sparrow.cluster.merge import MergeOptions
    from sparrow.cluster.objects import Objects
    from sparrow.cluster.shard import OwnedShard

_LOG = logging.getLogger(__name__)
CLOCK_S: Final = 30.0
MERGE_S: Final = 5.0
COLLECT_S: Final = 300.0
ORPHANS_S: Final = 3600.0
FIRST_ORPHANS_S: Final = 600.0


class ShardUpkeep:
    """The tasks, between `start` and `stop`."""

    def __init__(
        self,
        shard: OwnedShard,
        ledger: Ledger,
        objects: Objects,
        clock: LedgerClock,
        merging: MergeOptions | None = None,
    ) -> None:
        self._shard = shard
        self._ledger = ledger
        self._objects = objects
        self._clock = clock
        self._merging = merging
        self._tasks: list[asyncio.Task[None]] = []
        self.deleted = 0
        """Number of objects that were deleted because nothing names them any more."""
        self.orphans = 0
        """The same, of those that no commit ever named."""

    def start(self) -> None:
        """Start the tasks."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(_every(MERGE_S, self._merge)),
            loop.create_task(_every(CLOCK_S, lambda: self._clock.read(self._ledger))),
            loop.create_task(_every(COLLECT_S, self._collect)),
            loop.create_task(self._collect_orphans()),
        ]

    async def stop(self) -> None:
        """Stop, and wait for what runs to end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _merge(self) -> None:
        shard = self._shard
        await merge(shard.logs.contents(), shard.committer, shard.clock.wall_ms(), self._merging)

    async def _collect(self) -> None:
        self.deleted += await collect_dead(self._ledger, self._objects)

    async def _collect_orphans(self) -> None:
        """Look at all objects once, and then at those of the hours that have become old enough."""
        await asyncio.sleep(FIRST_ORPHANS_S)
        await _guarded(lambda: self._delete_orphans(None))
        await _every(ORPHANS_S, lambda: self._delete_orphans(3))

    async def _delete_orphans(self, hours: int | None) -> None:
        self.orphans += await collect_orphans(self._ledger, self._objects, hours=hours)


async def _every(interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await _guarded(work)


async def _guarded(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except SparrowError as error:
        _LOG.warning("housekeeping of the cluster: %s", error.text)
    except Exception:  # noqa: BLE001 - housekeeping must outlive any one failure; the next round tries again
        _LOG.exception("housekeeping of the cluster failed")
