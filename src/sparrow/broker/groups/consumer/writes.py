"""Writes what changed of consumer groups, each group's changes in their order.

Whoever answers a member waits with `flush` for all that the group has become until then, so that no member is told what a
crash could undo. What could not be written is kept, and written with the group's next change.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.consumer import facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.groups.consumer.group import Changes, ConsumerGroup
    from sparrow.meta.store import MetaStore, Write


class ConsumerWrites:
    """Loop thread only."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._last: dict[str, asyncio.Task[None]] = {}
        """The last write of each group that is not over."""
        self._also: dict[str, list[Write]] = {}

    def also(self, group: str, writes: Sequence[Write]) -> None:
        """Have facts written in one batch with the next change of a group: those of what it was or becomes."""
        self._also[group] = [*self._also.get(group, ()), *writes]

    def has_any(self, group: ConsumerGroup) -> bool:
        """Whether something of a group is not even on its way."""
        return bool(group.changes) or group.name in self._also

    def begin(self, group: ConsumerGroup) -> None:
        """Write what changed; nobody waits."""
        if self.has_any(group):
            task = asyncio.get_running_loop().create_task(
                self._write(group, group.take_changes(), self._also.pop(group.name, []))
            )
            self._last[group.name] = task
            task.add_done_callback(lambda done: self._written(group.name, done))

    async def flush(self, group: ConsumerGroup) -> None:
        """Return when all that the group is now is durable. A caller that is cancelled stops waiting, the write goes on.

        Raises:
            DiskFull, StorageFailed
        """
        await self._begun(group)
        if self.has_any(group):  # an earlier write failed, whose changes the answer may tell of
            await self._begun(group)

    async def _begun(self, group: ConsumerGroup) -> None:
        self.begin(group)
        last = self._last.get(group.name)
        if last is not None:
            await asyncio.shield(last)

    async def _write(self, group: ConsumerGroup, changes: Changes, also: list[Write]) -> None:
        try:
            await self._meta.write([*also, *facts.writes(group, changes)])
        except SparrowError:
            group.changes.group |= changes.group
            group.changes.members |= changes.members
            if also:
                self._also[group.name] = [*also, *self._also.get(group.name, ())]
            raise

    def _written(self, group: str, task: asyncio.Task[None]) -> None:
        if self._last.get(group) is task:
            del self._last[group]
        if not task.cancelled():
            task.exception()  # its caller may be gone; then nobody else looks at it
