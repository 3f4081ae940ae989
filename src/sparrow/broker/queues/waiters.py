"""Who waits for records of a lane, in the order in which they came.

A wake-up goes to as many as there are records, and only to those who may take one: a hundred idle consumers cost nothing when one record
comes. Whoever was woken takes at once, or passes it on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Waiter:
    future: asyncio.Future[bool]
    may_take: Callable[[], bool]


class Waiters:
    """Of one lane. Loop thread only.

    Args:
        passed_on: somebody was woken who cannot take after all; others are to be woken.
    """

    def __init__(self, passed_on: Callable[[], None]) -> None:
        self._waiting: deque[_Waiter] = deque()
        self._passed_on = passed_on

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, may_take: Callable[[], bool], timeout_s: float) -> bool:
        """Until there may be something; False when the time is over.

        Args:
            may_take: whether the one who waits could take a record now; asked at each wake-up.
        """
        if timeout_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), may_take)
        self._waiting.append(waiter)
        timer = loop.call_later(timeout_s, _resolve, waiter.future, False)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled():
                self._passed_on()
            raise
        finally:
            timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def wake(self, records: int) -> None:
        """So many records are ready: wake as many of those who may take one."""
        passed: deque[_Waiter] = deque()
        while self._waiting and records > 0:
            waiter = self._waiting.popleft()
            if waiter.may_take():
                _resolve(waiter.future, True)
                records -= 1
            else:
                passed.append(waiter)
        passed.extend(self._waiting)
        self._waiting = passed

    def wake_all(self) -> None:
        """Something else than records changed: everybody looks again."""
        while self._waiting:
            _resolve(self._waiting.popleft().future, True)


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
