"""A shard that this node owns: the stores of a broker over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.clock import SystemClock
from sparrow.cluster.committer import ShardCommitter
from sparrow.cluster.entries import LedgerMetaStore
from sparrow.cluster.loaded_logs import load_logs
from sparrow.cluster.payloads import PayloadCache
from sparrow.cluster.store import ObjectLogStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.base.clock import Clock
    from sparrow.base.errors import SparrowError
    from sparrow.cluster.committer import CommitOptions, Retake
    from sparrow.cluster.ledger import Ledger, ShardContent, Taken
    from sparrow.cluster.objects import Objects

DEFAULT_CACHE_BYTES = 64 << 20


class OwnedShard:
    """The stores `logs` and `meta`, which share one committer. It ends when both are closed."""

    def __init__(
        self,
        content: ShardContent,
        taken: Taken,
        ledger: Ledger,
        objects: Objects,
        *,
        shard: int = 0,
        connect: Callable[[], Ledger],
        retake: Retake,
        when_lost: Callable[[SparrowError], None] = lambda _: None,
        is_trusted: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
        options: CommitOptions | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Build the stores of a shard from its rows, on the loop.

        Args:
            connect: opens one more connection to the ledger.
            retake, when_lost: see `ShardCommitter`.
            is_trusted: see `StoreResources`.

        Raises:
            NewerFormat, LedgerRefused: see `load_logs`.
        """
        loaded = load_logs(content)
        self.clock = clock or SystemClock()
        self.cache = PayloadCache(shard, ledger, objects, connect, cache_bytes)
        self.committer = ShardCommitter(
            ledger,
            objects,
            self.cache,
            self.clock,
            shard=shard,
            epoch=taken.epoch,
            seq=taken.seq,
            retake=retake,
            when_lost=when_lost,
            options=options,
        )
        self._open_stores = 2
        self.logs = ObjectLogStore(
            loaded,
            self.committer,
            self.cache,
            location=objects.location,
            is_trusted=is_trusted,
            when_closed=self._store_closed,
        )
        self.meta = LedgerMetaStore(content.entries, self.committer, when_closed=self._store_closed)

    async def _store_closed(self) -> None:
        self._open_stores -= 1
        if not self._open_stores:
            await self.close()

    async def abandon(self, error: SparrowError) -> None:
        """End at once, without committing what waits: the shard is another node's, or may be."""
        await self.committer.abandon(error)
        await self.cache.close()

    async def close(self) -> None:
        """Commit what waits, and end. Again: no effect."""
        await self.committer.close()
        await self.cache.close()
