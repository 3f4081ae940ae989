"""Changes of stored entries: one after the other, each until it is complete.

A caller that is cancelled (its connection was lost) stops waiting, but the store still writes; so
the change is completed, and memory and store agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.broker.detached import Detached

if TYPE_CHECKING:
    from sparrow.meta.store import MetaStore, Write

T = TypeVar("T")


class Changes:
    """The changes of one kind of entries. Loop thread only."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._lock = asyncio.Lock()
        self._running = Detached()

    async def write(self, writes: Sequence[Write], then: Callable[[], object]) -> None:
        """Write entries, durably, then call `then` to update memory.

        Raises:
            DiskFull, StorageFailed: nothing was written; `then` was not called.
        """
        if writes:
            await self._meta.write(writes)
            then()

    async def carry_out(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change when the changes before it are done. It may read memory: no other change
        runs meanwhile.
        """

        async def locked() -> T:
            async with self._lock:
                return await change()

        return await self._running.run(locked())

    async def settle(self) -> None:
        """Wait for changes whose callers have gone away."""
        await self._running.settle()
