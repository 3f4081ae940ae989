"""A semaphore for the requests of all endpoints, with a fair order of waiting.

Slow endpoints keep their permits for long. So that a few of them do not exclude all others, the
last quarter of the permits is reserved for endpoints without a request: each of them gets one
permit while one is free. The others wait in the order of their calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

_RESERVED_SHARE: Final = 4
_Waiting = deque[tuple[asyncio.Future[None], "Hashable"]]


class FairSemaphore:
    """A semaphore whose last quarter is reserved for owners without a permit. Loop thread only.

    Args:
        permits: the number of concurrent requests.
    """

    def __init__(self, permits: int) -> None:
        self.free = permits
        self._reserved = permits // _RESERVED_SHARE
        self._permits: dict[Hashable, int] = {}
        self._first: _Waiting = deque()
        """Waiting owners that had no permit when they called."""
        self._others: _Waiting = deque()

    async def acquire(self, owner: Hashable) -> None:
        """Wait for a permit. The caller must call `release` afterwards."""
        is_first = owner not in self._permits
        waiting = self._first if is_first else self._others
        if not waiting and self._has_room(is_first=is_first):
            self._grant(owner)
            return
        permit = asyncio.get_running_loop().create_future()
        waiting.append((permit, owner))
        try:
            await permit
        except asyncio.CancelledError:
            if permit.done() and not permit.cancelled():
                self.release(owner)
            raise

    def release(self, owner: Hashable) -> None:
        """Give back a permit."""
        self.free += 1
        self._permits[owner] -= 1
        if not self._permits[owner]:
            del self._permits[owner]
        self._wake(self._first, is_first=True)
        self._wake(self._others, is_first=False)

    def _has_room(self, *, is_first: bool) -> bool:
        return self.free > (0 if is_first else self._reserved)

    def _grant(self, owner: Hashable) -> None:
        self.free -= 1
        self._permits[owner] = self._permits.get(owner, 0) + 1

    def _wake(self, waiting: _Waiting, *, is_first: bool) -> None:
        while waiting and self._has_room(is_first=is_first):
            permit, owner = waiting.popleft()
            if not permit.done():
                self._grant(owner)
                permit.set_result(None)
