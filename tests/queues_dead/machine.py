"""A broker on a disk that can be stopped at any step, lose power, be full or fail."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparrow.base.clock import ManualClock
from sparrow.base.errors import SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.queues.work import Work
from tests.transactions.machine import CuttableMetaStore

NEVER_MS = 1 << 40
QUIET = {"tick_interval_ms": NEVER_MS, "retention_check_interval_ms": NEVER_MS, "default_partitions": 1}
ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0)


class Machine(Work):
    """As `Work`, over stores that fail on demand."""

    def __init__(self, seed: int = 0, **config: object) -> None:
        super().__init__("/data", ManualClock(), BrokerConfig(**{**QUIET, **config}))
        self.fs = FaultyFileSystem(seed)
        self.meta = CuttableMetaStore()
        self.meta.fs = self.fs

    async def start(self) -> None:
        before, self.meta = self.meta, CuttableMetaStore(self.meta.entries)
        self.meta.fs = self.fs
        before._closed = True  # tasks of a broker that was killed write nothing more
        logs = LocalLogStore("/data", self.fs, self.clock, ON_THE_LOOP)
        self.broker = Broker(config=self.config, clock=self.clock, log_store=logs, meta_store=self.meta)
        await self.broker.start()

    async def stop(self) -> None:
        with suppress(SparrowError):  # a log that failed stays so
            await self.broker.close()

    async def kill(self, *, power_fails: bool = False) -> None:
        """End the process, or the machine, without a word to the broker."""
        self.fs.calls_left = 0
        await self.broker._maintenance.stop()
        for queue in self.broker.parts.queue_registry:
            queue.stop()
            await queue.writer.drop()
        for _ in range(5):
            await asyncio.sleep(0)
        self.fs.calls_left = None
        if power_fails:
            self.fs.crash()
        else:
            self.fs.kill()

    @property
    def is_cut(self) -> bool:
        """Return True at the step at which everything fails."""
        return self.fs.calls_left is not None and self.fs.calls_left < 0
