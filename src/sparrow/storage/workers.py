"""Threads for blocking work: a few, so that the event loop never waits for a disk.

Without threads the work runs on the loop itself, in the order of the calls. Tests that crash the
storage by seed use that: the same seed then gives the same run.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A bounded pool. Threads start when they are first needed."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sparrow-storage") if threads else None

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread and return its result."""
        if self._pool is None:
            return work(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Wait for running work, and refuse new work."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
