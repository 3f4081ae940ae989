"""Changes of what is stored: one after the other, and each to its end.

A caller that is cancelled (its connection was lost) stops waiting, but the store writes all the same; so the change goes on, and
memory and store do not part.
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
    """The changes of one kind of facts. Loop thread only."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._turn = asyncio.Lock()
        self._running = Detached()

    async def write(self, writes: Sequence[Write], then: Callable[[], object]) -> None:
        """Write facts, durably, then let memory follow.

        Raises:
            DiskFull, StorageFailed: nothing was written; `then` was not called.
        """
        if writes:
            await self._meta.write(writes)
            then()

    async def carry_out(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change in its turn. It may look at memory: no other change runs meanwhile."""

        async def in_turn() -> T:
            async with self._turn:
                return await change()

        return await self._running.run(in_turn())

    async def settle(self) -> None:
        """Wait for changes whose callers went away."""
        await self._running.settle()
