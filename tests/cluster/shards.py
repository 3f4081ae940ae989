"""Shards over the fakes, for tests: one ledger and one object store that outlive the stores."""

from __future__ import annotations

import asyncio
import copy
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.cluster.committer import CommitOptions
from sparrow.cluster.errors import LedgerUnavailable, NotOwner
from sparrow.cluster.ledger_model import LedgerFaults, LedgerState, MemoryLedger
from sparrow.cluster.objects_model import MemoryObjects, ObjectFaults
from sparrow.cluster.shard import OwnedShard

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sparrow.base.clock import Clock
    from sparrow.cluster.ledger import ShardContent, Taken

T = TypeVar("T")
ALL_OBJECTS = CommitOptions(inline_bytes=0, linger_s=0.0)
"""Every payload becomes an object."""


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own, from code that runs on a loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class ShardBench:
    """The engines of a cluster in memory, and nodes that take its shard one after the other."""

    def __init__(
        self,
        ledger_faults: LedgerFaults | None = None,
        object_faults: ObjectFaults | None = None,
        options: CommitOptions | None = None,
        cache_bytes: int = 64 << 20,
    ) -> None:
        self.state = LedgerState()
        self.content: dict[str, bytes] = {}
        self.options = options
        self.cache_bytes = cache_bytes
        self._ledger_faults = ledger_faults or LedgerFaults()
        self._object_faults = object_faults or ObjectFaults()
        self.lost: list[str] = []
        self.is_trusted = True

    def open(self, clock: Clock | None = None) -> OwnedShard:
        """Take the shard from whom has it, and open it. Call it on a loop."""
        node, taken, content = run_in_thread(self._take())
        self.ledger = MemoryLedger(self.state, self._ledger_faults)
        self.objects = MemoryObjects(self.content, self._object_faults)
        return OwnedShard(
            content,
            taken,
            self.ledger,
            self.objects,
            connect=lambda: MemoryLedger(self.state),
            retake=lambda: self._retake(node),
            is_trusted=lambda: self.is_trusted,
            when_lost=lambda error: self.lost.append(error.text),
            clock=clock,
            options=self.options,
            cache_bytes=self.cache_bytes,
        )

    def copy(self) -> ShardBench:
        """Return engines with what is committed now."""
        copied = ShardBench(self._ledger_faults, self._object_faults, self.options, self.cache_bytes)
        copied.state = copy.deepcopy(self.state)
        copied.content = dict(self.content)
        return copied

    async def _take(self) -> tuple[int, Taken, ShardContent]:
        ledger = MemoryLedger(self.state)
        node = await ledger.join(uuid.uuid4(), {}, 60_000)
        taken = await ledger.take(0, node, self.state.shards[0].owner)
        assert taken is not None
        return node, taken, await ledger.load(0)

    async def _retake(self, node: int) -> Taken:
        while True:
            try:
                taken = await self.ledger.retake(0, node)
            except LedgerUnavailable:
                continue
            if taken is None:
                raise NotOwner("another node has the shard")
            return taken
