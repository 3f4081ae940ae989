"""How many requests are under way at a time, over all endpoints, and whose turn is next.

Endpoints that answer slowly hold their requests for long. So that a few of those do not keep everybody else out, the last quarter is for endpoints that have nothing
under way: each of them gets a turn as long as there is one, and the others wait in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

_KEPT_SHARE: Final = 4
_Waiting = deque[tuple[asyncio.Future[None], "Hashable"]]


class Turns:
    """Loop thread only.

    Args:
        most: requests at a time.
    """

    def __init__(self, most: int) -> None:
        self.free = most
        self._kept = most // _KEPT_SHARE
        self._held: dict[Hashable, int] = {}
        self._first: _Waiting = deque()
        """Those who had nothing under way when they came."""
        self._more: _Waiting = deque()

    async def take(self, who: Hashable) -> None:
        """Wait for a turn; call `give_back` in any case after it."""
        is_first = who not in self._held
        waiting = self._first if is_first else self._more
        if not waiting and self._has_room(is_first=is_first):
            self._grant(who)
            return
        turn = asyncio.get_running_loop().create_future()
        waiting.append((turn, who))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(who)
            raise

    def give_back(self, who: Hashable) -> None:
        """What it had a turn for is over."""
        self.free += 1
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]
        self._go_on(self._first, is_first=True)
        self._go_on(self._more, is_first=False)

    def _has_room(self, *, is_first: bool) -> bool:
        return self.free > (0 if is_first else self._kept)

    def _grant(self, who: Hashable) -> None:
        self.free -= 1
        self._held[who] = self._held.get(who, 0) + 1

    def _go_on(self, waiting: _Waiting, *, is_first: bool) -> None:
        while waiting and self._has_room(is_first=is_first):
            turn, who = waiting.popleft()
            if not turn.done():
                self._grant(who)
                turn.set_result(None)
