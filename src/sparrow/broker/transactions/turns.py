"""Turns: what is asked for about one name happens one after the other, and to its end.

Work on several names takes their turns in the order of the names, so that no two wait for each other.

Work that has begun goes on even if who asked for it is cancelled (its connection was lost), because the store writes all the same:
memory and store must not part.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.broker.detached import Detached

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")


class _Turn:
    """Who works on a name, and how many want to."""

    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class Turns:
    """Loop thread only."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self._running = Detached()

    def is_busy(self, name: str) -> bool:
        """Somebody works on the name, or waits for that."""
        return name in self._turns

    async def run(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do work that no other work on the name may run beside, in the order of asking."""
        turn = self._want(name)

        async def in_turn() -> T:
            try:
                async with turn.lock:
                    return await work()
            finally:
                self._leave(name, turn)

        return await self._running.run(in_turn())

    async def run_all(self, names: Iterable[str], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do work that no other work on any of the names may run beside. Not from within a turn on one of them."""
        turns = [(name, self._want(name)) for name in sorted(set(names))]

        async def in_turns() -> T:
            try:
                async with AsyncExitStack() as held:
                    for _, turn in turns:
                        await held.enter_async_context(turn.lock)
                    return await work()
            finally:
                for name, turn in turns:
                    self._leave(name, turn)

        return await self._running.run(in_turns())

    def _want(self, name: str) -> _Turn:
        turn = self._turns.setdefault(name, _Turn())
        turn.wanted += 1
        return turn

    def _leave(self, name: str, turn: _Turn) -> None:
        turn.wanted -= 1
        if not turn.wanted:
            del self._turns[name]

    async def settle(self) -> None:
        """Wait for all that has begun."""
        await self._running.settle()
