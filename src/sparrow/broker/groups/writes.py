"""Writes the changes of groups whose members heartbeat (consumer, share), in order for each group.

A coordinator waits with `flush` before it answers a member, so that no member learns of anything
that a crash could lose. Changes that could not be written are kept, and written with the group's
next change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.coordinator import GROUPS_PER_YIELD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparrow.broker.groups.changes import GroupChanges
    from sparrow.meta.store import MetaStore, Write


class ChangingGroup(Protocol):
    """A group that notes which of its parts are to be written."""

    name: str
    changes: GroupChanges

    def take_changes(self) -> GroupChanges: ...


G = TypeVar("G", bound=ChangingGroup)


class GroupWrites(Generic[G]):
    """The writes of all groups of one kind. Loop thread only.

    Args:
        entries: returns the writes that store some changes of a group.
    """

    def __init__(self, meta: MetaStore, entries: Callable[[G, GroupChanges], list[Write]]) -> None:
        self._meta = meta
        self._entries = entries
        self._last: dict[str, asyncio.Task[None]] = {}
        """The last unfinished write of each group."""
        self._also: dict[str, list[Write]] = {}

    def add_to_next(self, group: str, writes: Sequence[Write]) -> None:
        """Add writes to the batch of the group's next change: entries of the kind that it was, or
        becomes.
        """
        self._also[group] = [*self._also.get(group, ()), *writes]

    def has_any(self, group: G) -> bool:
        """Return True if the group has changes that no write has begun with."""
        return bool(group.changes) or group.name in self._also

    def begin(self, group: G) -> None:
        """Begin to write the changes, in the background."""
        if self.has_any(group):
            task = asyncio.get_running_loop().create_task(
                self._write(group, group.take_changes(), self._also.pop(group.name, []))
            )
            self._last[group.name] = task
            task.add_done_callback(lambda done: self._written(group.name, done))

    async def flush(self, group: G) -> None:
        """Wait until everything that the group is now is durable. A cancelled caller stops waiting;
        the write continues.

        Raises:
            DiskFull, StorageFailed
        """
        await self._begun(group)
        # an earlier write failed, and the response may depend on its changes
        if self.has_any(group):
            await self._begun(group)

    async def sweep(self, groups: Mapping[str, G], look: Callable[[G], None]) -> None:
        """Visit each group and write what that changed; yield to the loop's other work in between.

        Args:
            groups: the live table. A group that leaves it during the sweep is skipped, since its
                entries belong to another kind then.

        Raises:
            DiskFull, StorageFailed: something could not be written; the groups after it were
                visited nevertheless.
        """
        error: SparrowError | None = None
        for number, group in enumerate(list(groups.values()), 1):
            if number % GROUPS_PER_YIELD == 0:
                await asyncio.sleep(0)
            if groups.get(group.name) is not group:
                continue
            look(group)
            if self.has_any(group):
                try:
                    await self.flush(group)
                except SparrowError as failure:
                    error = failure
        if error is not None:
            raise error

    async def _begun(self, group: G) -> None:
        self.begin(group)
        last = self._last.get(group.name)
        if last is not None:
            await asyncio.shield(last)

    async def _write(self, group: G, changes: GroupChanges, also: list[Write]) -> None:
        try:
            await self._meta.write([*also, *self._entries(group, changes)])
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
            task.exception()  # its caller may be gone; then nothing else retrieves the exception
