"""Short work of many queues, shared out over iterations of the event loop.

Each queue scans its sources a few milliseconds at a time. With hundreds of queues on a topic one
iteration of the loop would run all of them, and every other task would wait for it. So they run one
after the other: an iteration takes about as long as the work of one queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_ITERATION_S: Final = 0.002
"""Short pieces of work share an iteration up to about this time."""


class CooperativeScheduler:
    """Scheduler for all queues of a broker. Loop thread only."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_called = False
        self._has_run = False
        """True if work was run at once in this iteration."""

    def at_once(self, work: Callable[[], None]) -> None:
        """Call `work`, which must be short, now if it is the first of this iteration; else as
        `soon`.
        """
        if self._has_run or self._waiting:
            self.soon(work)
            return
        self._has_run = True
        asyncio.get_running_loop().call_soon(self._end_iteration)
        work()

    def _end_iteration(self) -> None:
        self._has_run = False

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` in one of the next iterations, once. Work that has more to do asks again. It
        must not raise.
        """
        self._waiting.append(work)
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_called = False
        loop = asyncio.get_running_loop()
        until = loop.time() + _ITERATION_S
        try:
            for _ in range(len(self._waiting)):  # work that asks again waits for the next iteration
                self._waiting.popleft()()
                if loop.time() >= until:
                    break
        finally:
            self._call()
