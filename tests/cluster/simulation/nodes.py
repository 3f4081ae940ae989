"""One node: its process, and the broker in it while it owns the shard."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.cluster.clock import LedgerClock
from sparrow.cluster.committer import CommitOptions
from sparrow.cluster.errors import NotOwner
from sparrow.cluster.ledger_model import LedgerFaults, MemoryLedger
from sparrow.cluster.merge import MergeOptions
from sparrow.cluster.objects_model import MemoryObjects, ObjectFaults
from sparrow.cluster.ownership import Ownership
from sparrow.cluster.shard import OwnedShard
from sparrow.cluster.upkeep import ShardUpkeep
from tests.cluster.simulation.loops import SimulatedLoop, SimulatedTime

if TYPE_CHECKING:
    from sparrow.cluster.ledger import Ledger
    from tests.cluster.simulation.world import World

CONFIG = BrokerConfig(default_partitions=1, retention_check_interval_ms=20_000)
OPTIONS = CommitOptions(inline_bytes=300)
MERGING = MergeOptions(small_object_bytes=600, min_bytes=4000, max_rows=10, max_age_ms=10_000)
"""Small enough that runs merge, and that what they merge has larger payloads between."""
"""Small, so that many payloads become objects."""


class NodeClock:
    """The clock of one machine: its wall time jumps."""

    def __init__(self, time: SimulatedTime) -> None:
        self._time = time
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return self._time.wall_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return self._time.monotonic()


class Node:
    """A process of `sparrow serve`, without listeners. `broker` serves while it is there."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self.loop = SimulatedLoop(world.time)
        self.clock = NodeClock(world.time)
        self.ledger = MemoryLedger(world.ledger, LedgerFaults(seed))
        self.objects = MemoryObjects(world.content, ObjectFaults(seed))
        self.broker: Broker | None = None
        self.resumes_at = 0.0
        """Until then the process is stopped."""
        self.is_dead = False
        self._stopping = asyncio.Event()
        self.ended = self.loop.create_task(self._run())

    @property
    def is_running(self) -> bool:
        return not self.is_dead and self.resumes_at <= self._world.time.now

    def stop(self) -> None:
        """End the process as SIGTERM does."""
        self.loop.call_soon(self._stopping.set)

    def kill(self) -> None:
        """End the process as kill -9 does: nothing of it runs any more."""
        self.is_dead = True
        self.ledger.disconnect()

    def clean_up(self) -> None:
        """End the tasks of a killed process, which then reach nobody."""
        self.ledger.with_faults(lost_requests=1.0)
        self.objects.is_down = True
        for _ in range(50):
            left = asyncio.all_tasks(self.loop)
            if not left:
                break
            for task in left:
                self.loop.call_soon(task.cancel)
            for _ in range(20):
                self.loop.run_once()
        for task in asyncio.all_tasks(self.loop):  # a cancelled read of a queue begins the next one
            with suppress(RuntimeError):  # for which there is no loop any more
                task.get_coro().close()  # type: ignore[union-attr]  # a coroutine
        self.loop.close()

    # ── the process ──

    async def _run(self) -> None:
        ownership = Ownership(self.ledger, {}, now=self._world.time.monotonic)
        while True:
            try:
                await ownership.join()
                break
            except SparrowError:
                await asyncio.sleep(0.5)
        while not self._stopping.is_set():
            taking = asyncio.ensure_future(ownership.stand_by())
            stopping = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait([taking, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not taking.done():
                taking.cancel()
                break
            await self._serve(ownership, taking.result())
        await ownership.leave()
        await self.ledger.close()

    async def _serve(self, ownership: Ownership, taken: object) -> None:
        """Serve until the shard is lost, or the process is asked to stop (see `server/cluster`)."""
        lost = asyncio.get_running_loop().create_future()

        def lose(error: SparrowError) -> None:
            if not lost.done():
                lost.set_result(error)

        shard = None
        try:
            clock = LedgerClock(self.clock, self._world.time.monotonic)
            await clock.read(self.ledger)
            content = await self.ledger.load(0)
            shard = OwnedShard(
                content,
                taken,  # type: ignore[arg-type]
                self.ledger,
                self.objects,
                connect=self._connect,
                retake=ownership.retake,
                when_lost=lose,
                is_trusted=lambda: ownership.is_trusted and not lost.done(),
                clock=clock,
                options=OPTIONS,
                cache_bytes=self._world.cache_bytes,
            )
            ownership.when_lost = shard.committer.lose
            broker = Broker(config=CONFIG, clock=clock, log_store=shard.logs, meta_store=shard.meta)
            await broker.start()
        except SparrowError as error:
            self._world.note(f"{self} cannot load the shard: {error.text}")
            ownership.epoch = -1
            if shard is not None:
                await shard.abandon(NotOwner("another broker owns the data by now"))
            return
        upkeep = ShardUpkeep(shard, self.ledger, self.objects, clock, MERGING)
        upkeep.start()
        self.broker = broker
        self._world.note(f"{self} serves, epoch {shard.committer.epoch}")
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([lost, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self.broker = None
        await upkeep.stop()
        if lost.done():
            self._world.note(f"{self} lost the shard: {lost.result().text}")
            ownership.epoch = -1
            await shard.abandon(NotOwner("another broker owns the data by now; connect again"))
            await self._close(broker)
            return
        await ownership.drain()
        await self._close(broker)
        try:
            await ownership.release()
        except SparrowError as error:
            self._world.note(f"{self} could not release the shard: {error.text}")

    async def _close(self, broker: Broker) -> None:
        try:
            await broker.close()
        except SparrowError as error:
            self._world.note(f"{self} closes: {error.text}")

    def _connect(self) -> Ledger:
        return MemoryLedger(self._world.ledger)

    def __str__(self) -> str:
        return f"node {self.ledger._node}"
