"""Writes what changed of groups whose members heartbeat (consumer, share), each group's changes in their order.

Whoever answers a member waits with `flush` for all that the group has become until then, so that no member is told what a
crash could undo. What could not be written is kept, and written with the group's next change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.family import GROUPS_PER_TURN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparrow.broker.groups.changes import Changes
    from sparrow.meta.store import MetaStore, Write


class Changing(Protocol):
    """A group that notes what of it is to be written."""

    name: str
    changes: Changes

    def take_changes(self) -> Changes: ...


G = TypeVar("G", bound=Changing)


class GroupWrites(Generic[G]):
    """Loop thread only.

    Args:
        facts: what makes the store know these changes of a group.
    """

    def __init__(self, meta: MetaStore, facts: Callable[[G, Changes], list[Write]]) -> None:
        self._meta = meta
        self._facts = facts
        self._last: dict[str, asyncio.Task[None]] = {}
        """The last write of each group that is not over."""
        self._also: dict[str, list[Write]] = {}

    def also(self, group: str, writes: Sequence[Write]) -> None:
        """Have facts written in one batch with the next change of a group: those of what it was or becomes."""
        self._also[group] = [*self._also.get(group, ()), *writes]

    def has_any(self, group: G) -> bool:
        """Whether something of a group is not even on its way."""
        return bool(group.changes) or group.name in self._also

    def begin(self, group: G) -> None:
        """Write what changed; nobody waits."""
        if self.has_any(group):
            task = asyncio.get_running_loop().create_task(
                self._write(group, group.take_changes(), self._also.pop(group.name, []))
            )
            self._last[group.name] = task
            task.add_done_callback(lambda done: self._written(group.name, done))

    async def flush(self, group: G) -> None:
        """Return when all that the group is now is durable. A caller that is cancelled stops waiting, the write goes on.

        Raises:
            DiskFull, StorageFailed
        """
        await self._begun(group)
        if self.has_any(group):  # an earlier write failed, whose changes the answer may tell of
            await self._begun(group)

    async def sweep(self, groups: Mapping[str, G], look: Callable[[G], None]) -> None:
        """Look at each group and write what that changed of it, with turns for the loop's other work.

        Args:
            groups: as it is from turn to turn: a group that goes meanwhile is left alone, since its facts are not ours any more.

        Raises:
            DiskFull, StorageFailed: something could not be written; the groups after it were looked at all the same.
        """
        error: SparrowError | None = None
        for number, group in enumerate(list(groups.values()), 1):
            if number % GROUPS_PER_TURN == 0:
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

    async def _write(self, group: G, changes: Changes, also: list[Write]) -> None:
        try:
            await self._meta.write([*also, *self._facts(group, changes)])
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
