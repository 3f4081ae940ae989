"""Expiry of a group's offsets, and the last kind of groups without members.

After KIP-211: a group's offsets are kept while it has members and `offsets_retention_ms` longer,
counted from the later of its last member's end and its last commit. A partition of a group that
never had members, or that its members do not read any more, counts from its own last commit. A
commit may set its own retention (OffsetCommit 2 to 4).

The time since which a group is empty is an entry of kind "group" (key: its name, value: the msgpack
array [empty since (wall ms), or -1 while it has members; kind of the group]), so that a restart
does not reset it. `flush` writes it, a moment after it changed. For `GRACE_MS` after the start
nothing expires, so that members that come back after a crash find their offsets.
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
    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.meta.store import Entry, MetaStore
    from sparrow.records.topic_partition import TopicPartition

KIND: Final = "group"
GRACE_MS: Final = 600_000
_LIVE: Final = -1


class _Emptiness(msgspec.Struct, array_like=True, frozen=True):
    empty_since_ms: int
    type: GroupType = GroupType.SPARROW


class GroupRetention:
    """The time since which each group is empty. Loop thread only."""

    def __init__(self, meta: MetaStore, clock: Clock, retention_ms: int) -> None:
        self._meta = meta
        self._clock = clock
        self._retention_ms = retention_ms
        self._known: dict[str, _Emptiness] = {}
        self._changed: dict[str, None] = {}
        self._started_at = clock.monotonic()

    async def load(self) -> None:
        """Read the entries of earlier runs. Call `empty_absent_groups` afterwards."""
        for entry in await self._meta.scan(KIND):
            self._known[entry.key] = _decode(entry)

    def empty_absent_groups(self, groups: Collection[str]) -> None:
        """Mark groups whose members did not come back after a restart as empty."""
        for group, known in list(self._known.items()):
            if known.empty_since_ms == _LIVE and group not in groups:
                self.became_empty(group, known.type)

    def has_members(self, group: str, kind: GroupType) -> None:
        """Note that a group has members."""
        self._set(group, _Emptiness(_LIVE, kind))

    def became_empty(self, group: str, kind: GroupType) -> None:
        """Note that a group lost its last member."""
        self._set(group, _Emptiness(self._clock.wall_ms(), kind))

    def forget(self, group: str) -> None:
        """Delete the note of a group that does not exist any more."""
        if self._known.pop(group, None) is not None:
            self._changed[group] = None

    def type_of(self, group: str) -> GroupType | None:
        """Return the kind of the group's present or last members, or None if it never had any."""
        known = self._known.get(group)
        return None if known is None else known.type

    def is_due(self) -> bool:
        """Return True when the grace time after the start is over."""
        return (self._clock.monotonic() - self._started_at) * 1000 >= GRACE_MS

    def expired(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, has_members: bool
    ) -> Iterator[TopicPartition]:
        """Return the partitions whose offsets expired. With `has_members`, the caller leaves out
        those that members read.
        """
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
        """Write what changed. After a failure the next call tries again."""
        changed, self._changed = self._changed, {}
        try:
            await self._meta.write([self._entry_of(group) for group in changed])
        except BaseException:
            self._changed = changed | self._changed
            raise

    def _is_old(self, since_ms: int) -> bool:
        return self._clock.wall_ms() - since_ms >= self._retention_ms

    def _set(self, group: str, emptiness: _Emptiness) -> None:
        if self._known.get(group) != emptiness:
            self._known[group] = emptiness
            self._changed[group] = None

    def _entry_of(self, group: str) -> Put | Delete:
        known = self._known.get(group)
        if known is None:
            return Delete(KIND, group)
        return Put(KIND, group, msgspec.msgpack.encode(known))


def _decode(entry: Entry) -> _Emptiness:
    try:
        return msgspec.msgpack.decode(entry.value, type=_Emptiness)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a group that cannot be read, {entry.key!r}: {exc}. Restore a "
            "backup of the data directory, "
            "or delete this entry."
        ) from exc
