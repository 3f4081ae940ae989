"""Consumers that wait for records of one subscriber, in the order in which they came.

A wake-up goes to as many consumers as there are records, and only to those that may take one: a
hundred idle consumers cost nothing when one record comes. A consumer that was woken takes at once,
or wakes another.
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
    """Waiting consumers of one subscriber. Loop thread only.

    Args:
        passed_on: called when a woken consumer cannot take after all, to wake others.
    """

    def __init__(self, passed_on: Callable[[], None]) -> None:
        self._waiting: deque[_Waiter] = deque()
        self._passed_on = passed_on

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, may_take: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until there may be something. Return False at the timeout.

        Args:
            may_take: returns True if the consumer could take a record now; called at each wake-up.
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
        """Wake consumers that may take one of this many ready records."""
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
        """Wake all: something other than records changed."""
        while self._waiting:
            _resolve(self._waiting.popleft().future, True)


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
