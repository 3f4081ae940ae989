"""Work that is completed even if its caller is cancelled.

A caller whose connection was lost stops waiting, but the store still writes: work that has begun is
completed, so that memory and store agree.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Detached:
    """Work of one owner. Loop thread only."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; a caller that is cancelled stops waiting, the work continues."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    async def settle_begun(self) -> None:
        """Wait for the work that has begun by now."""
        if self._running:
            await asyncio.wait(set(self._running))

    async def settle(self) -> None:
        """Wait until no work runs any more, including work that begins meanwhile."""
        while self._running:
            await asyncio.wait(set(self._running))

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieves the exception: its caller may be gone
