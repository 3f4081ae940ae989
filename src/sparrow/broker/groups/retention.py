"""When the offsets of a group are forgotten, and of which kind a group without members was.

After KIP-211: a group's offsets are kept while it has members and `offsets_retention_ms` longer, counted from the later of its last
member's end and its last commit. A partition of a group that never had members, or that its members do not read any
more, counts from its own last commit. A commit may say itself how long it wants to be kept (OffsetCommit 2 to 4).

Since when a group is empty is a fact of kind "group" (key: its name, value: the msgpack array [empty since (wall ms), or -1 while it
has members; kind of the group]), so that restarts do not begin the time anew. It is written by `flush`, a moment later than it
happens; for `GRACE_MS` after the start nothing is forgotten, so that members that come back after a crash find their offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable
from sparrow.broker.groups.description import GroupType
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparrow.base.clock import Clock
    from sparrow.broker.groups.native.assignor import Partition
    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.meta.store import Fact, MetaStore

KIND: Final = "group"
GRACE_MS: Final = 600_000
_LIVE: Final = -1


class _Emptiness(msgspec.Struct, array_like=True, frozen=True):
    empty_since_ms: int
    type: GroupType = GroupType.SPARROW


class GroupRetention:
    """Since when which group is empty. Loop thread only."""

    def __init__(self, meta: MetaStore, clock: Clock, retention_ms: int) -> None:
        self._meta = meta
        self._clock = clock
        self._retention_ms = retention_ms
        self._known: dict[str, _Emptiness] = {}
        self._changed: dict[str, None] = {}
        self._started_at = clock.monotonic()

    async def load(self) -> None:
        """Read what earlier runs knew. Then `nobody_else_has_members`."""
        for fact in await self._meta.scan(KIND):
            self._known[fact.key] = _decode(fact)

    def nobody_else_has_members(self, groups: Collection[str]) -> None:
        """After a start: a group that had members when the broker stopped, and has none now, is empty from now on."""
        for group, known in list(self._known.items()):
            if known.empty_since_ms == _LIVE and group not in groups:
                self.became_empty(group, known.type)

    def has_members(self, group: str, kind: GroupType) -> None:
        """A member joined."""
        self._set(group, _Emptiness(_LIVE, kind))

    def became_empty(self, group: str, kind: GroupType) -> None:
        """The last member is gone."""
        self._set(group, _Emptiness(self._clock.wall_ms(), kind))

    def forget(self, group: str) -> None:
        """The group does not exist any more."""
        if self._known.pop(group, None) is not None:
            self._changed[group] = None

    def type_of(self, group: str) -> GroupType | None:
        """Of which kind the group's members are or were; None: it never had any."""
        known = self._known.get(group)
        return None if known is None else known.type

    def is_due(self) -> bool:
        """Whether anything may be forgotten at all."""
        return (self._clock.monotonic() - self._started_at) * 1000 >= GRACE_MS

    def expired(
        self, group: str, offsets: Mapping[Partition, OffsetAndMetadata], *, has_members: bool
    ) -> Iterator[Partition]:
        """Partitions whose offsets may be forgotten; where there are members, provided that they do not read them."""
        floor_ms = -1
        known = self._known.get(group)
        if known is not None and not has_members:
            last_commit_ms = max((value.committed_at_ms for value in offsets.values()), default=-1)
            floor_ms = max(known.empty_since_ms, last_commit_ms)
        now_ms = self._clock.wall_ms()
        for partition, value in offsets.items():
            if value.kept_until_ms != -1:
                is_over = now_ms >= value.kept_until_ms
            else:
                is_over = self._is_old(max(value.committed_at_ms, floor_ms))
            if is_over:
                yield partition

    async def flush(self) -> None:
        """Write what changed; on failure it is tried again at the next call."""
        changed, self._changed = self._changed, {}
        try:
            await self._meta.write([self._fact_of(group) for group in changed])
        except BaseException:
            self._changed = changed | self._changed
            raise

    def _is_old(self, since_ms: int) -> bool:
        return self._clock.wall_ms() - since_ms >= self._retention_ms

    def _set(self, group: str, emptiness: _Emptiness) -> None:
        if self._known.get(group) != emptiness:
            self._known[group] = emptiness
            self._changed[group] = None

    def _fact_of(self, group: str) -> Put | Delete:
        known = self._known.get(group)
        if known is None:
            return Delete(KIND, group)
        return Put(KIND, group, msgspec.msgpack.encode(known))


def _decode(fact: Fact) -> _Emptiness:
    try:
        return msgspec.msgpack.decode(fact.value, type=_Emptiness)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a group that cannot be read, {fact.key!r}: {exc}. Put back a backup of the data directory, "
            "or delete this fact."
        ) from exc
