"""A lock for each name: work on one name runs one after the other, and to its end.

Work on several names takes their locks in the order of the names, so that no deadlock is possible.

Work that has begun continues even if its caller is cancelled (its connection was lost), because the
store writes nevertheless, and memory must agree with the store.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.broker.detached import Detached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

T = TypeVar("T")


class _Lock:
    """The lock of one name, and the number of tasks that hold it or wait for it."""

    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class KeyedLock:
    """One task at a time for each name. Loop thread only."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}
        self._running = Detached()

    def is_busy(self, name: str) -> bool:
        """Return True if a task works on the name or waits for it."""
        return name in self._locks

    def __len__(self) -> int:
        """Return the number of names on which tasks work or for which they wait."""
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of a name for work that ends with its caller."""
        holder = self._want(name)
        try:
            async with holder.lock:
                yield
        finally:
            self._leave(name, holder)

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do work while no other work runs on the name, in the order of the calls."""
        holder = self._want(name)

        async def hold() -> T:
            try:
                async with holder.lock:
                    return await work()
            finally:
                self._leave(name, holder)

        return await self._running.run(hold())

    async def run_all(self, names: Iterable[str], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do work while no other work runs on any of the names. Must not be called from within work
        on one of them.
        """
        entries = [(name, self._want(name)) for name in sorted(set(names))]

        async def hold_all() -> T:
            try:
                async with AsyncExitStack() as stack:
                    for _, holder in entries:
                        await stack.enter_async_context(holder.lock)
                    return await work()
            finally:
                for name, holder in entries:
                    self._leave(name, holder)

        return await self._running.run(hold_all())

    def _want(self, name: str) -> _Lock:
        holder = self._locks.setdefault(name, _Lock())
        holder.wanted += 1
        return holder

    def _leave(self, name: str, holder: _Lock) -> None:
        holder.wanted -= 1
        if not holder.wanted:
            del self._locks[name]

    async def settle(self) -> None:
        """Wait for all work that has begun."""
        await self._running.settle()
