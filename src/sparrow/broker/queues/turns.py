"""Work of many queues in short turns of the loop.

Each queue looks at its sources by itself, a few milliseconds at a time. With hundreds of queues on a topic a turn of the loop would be all of these together, and
everybody else would wait for it. So they take their turns one after the other: the loop's turn is about as long as that of one queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_TURN_S: Final = 0.002
"""Those that have little to do share a turn of about this length."""


class Turns:
    """Of all queues of a broker. Loop thread only."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_called = False

    def soon(self, work: Callable[[], None]) -> None:
        """Call this in one of the next turns, once; who has more to do then asks again. It must not raise."""
        self._waiting.append(work)
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_called = False
        loop = asyncio.get_running_loop()
        until = loop.time() + _TURN_S
        try:
            for _ in range(len(self._waiting)):  # who asks again waits for the next turn
                self._waiting.popleft()()
                if loop.time() >= until:
                    break
        finally:
            self._call()
