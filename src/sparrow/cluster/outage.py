"""An outage of the object store that only one node sees.

An owner that has not reached the store for a while says so in its row. Standbys that read that try
to write to the store themselves, and say in their rows when they can. Then the outage is the
owner's own, and it hands the shard over. Where nobody reaches the store it stays the owner: another
one could do no more.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from sparrow.cluster.errors import ObjectsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.cluster.ledger import NodeInfo
    from sparrow.cluster.objects import Objects

AWAY: Final = "away"
REACHABLE: Final = "reachable"
GIVE_UP_S: Final = 30.0
PROBE_S: Final = 2.0
PROBE_KEY: Final = "probe"


class OutageWatch:
    """The state of the object store, as one node sees it. Loop thread only.

    Args:
        now: seconds of a clock that never stands still; for tests.
    """

    def __init__(self, objects: Objects, now: Callable[[], float] = time.monotonic) -> None:
        self._objects = objects
        self._now = now
        self.is_failing: Callable[[], bool] = lambda: False
        """Return True while this node owns the shard, and its uploads fail."""
        self._failing_since: float | None = None
        self._reached = False

    def describe(self) -> str:
        """Return the state for the node's row; called with each renewal."""
        if not self.is_failing():
            self._failing_since = None
            return REACHABLE if self._reached else ""
        self._failing_since = self._now() if self._failing_since is None else self._failing_since
        return AWAY

    def gives_up(self, others: Sequence[NodeInfo]) -> bool:
        """Return True if this node should hand over: its uploads have failed for `GIVE_UP_S`, and
        one of the others reaches the store.
        """
        since = self._failing_since
        is_long = since is not None and self._now() - since >= GIVE_UP_S
        return is_long and any(each.objects == REACHABLE for each in others)

    async def watch(self, read_owner: Callable[[], str]) -> None:
        """Try the store while the owner says that it is away; for standbys, until cancelled.

        Args:
            read_owner: returns the state in the owner's row.
        """
        try:
            while True:
                self._reached = read_owner() == AWAY and await self._try()
                await asyncio.sleep(PROBE_S)
        finally:
            self._reached = False

    async def _try(self) -> bool:
        try:
            await self._objects.put(PROBE_KEY, [b"sparrow"])
        except ObjectsUnavailable:
            return False
        return True
