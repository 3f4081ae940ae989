"""Consumers that wait for records of one subscriber, in the order in which they came.

A wake-up goes to as many consumers as there are records, and only to those that may take one: a
hundred idle consumers cost nothing when one record comes. A consumer that was woken takes at once,
or wakes another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Waiters:
    """Waiting consumers of one subscriber. Loop thread only.

    Args:
        passed_on: called when a woken consumer cannot take after all, to wake others.
    """

    def __init__(self, passed_on: Callable[[], None]) -> None:
        self._waiting: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        """For each waiting consumer, the function that says whether it may take."""
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
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting[future] = may_take
        timer = loop.call_later(timeout_s, _resolve, future, False)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._passed_on()
            raise
        finally:
            timer.cancel()
            self._waiting.pop(future, None)

    def wake(self, records: int) -> None:
        """Wake consumers that may take one of this many ready records."""
        woken: list[asyncio.Future[bool]] = []
        for future, may_take in self._waiting.items():
            if len(woken) >= records:
                break
            if not future.done() and may_take():  # else its caller goes away
                woken.append(future)
        for future in woken:
            del self._waiting[future]
            future.set_result(True)

    def wake_all(self) -> None:
        """Wake all: something other than records changed."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            _resolve(future, True)


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
