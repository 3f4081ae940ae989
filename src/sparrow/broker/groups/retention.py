"""When a group without members is forgotten.

A group's offsets are kept while it has members and `offsets_retention_ms` longer (after KIP-211), counted from the
later of its last member's end and its last commit. Since when a group is empty is a fact of kind "group" (key: its name,
value: the msgpack array [empty since, wall ms], or [-1] while it has members), so that restarts do not begin the time anew. It is
written by `flush`, a moment later than it happens; for `GRACE_MS` after the start nothing is forgotten, so that members that come
back after a crash find their offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.meta.store import Fact, MetaStore

KIND: Final = "group"
GRACE_MS: Final = 600_000
_LIVE: Final = -1


class _Emptiness(msgspec.Struct, array_like=True, frozen=True):
    empty_since_ms: int


class GroupRetention:
    """Since when which group is empty. Loop thread only."""

    def __init__(self, meta: MetaStore, clock: Clock, retention_ms: int) -> None:
        self._meta = meta
        self._clock = clock
        self._retention_ms = retention_ms
        self._empty_since_ms: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        self._started_at = clock.monotonic()

    async def load(self) -> None:
        """Read what earlier runs knew. A group that had members when the broker stopped is empty from now on."""
        for fact in await self._meta.scan(KIND):
            since = _decode(fact).empty_since_ms
            if since == _LIVE:
                self.became_empty(fact.key)
            else:
                self._empty_since_ms[fact.key] = since

    def has_members(self, group: str) -> None:
        """A member joined."""
        self._set(group, _LIVE)

    def became_empty(self, group: str) -> None:
        """The last member is gone."""
        self._set(group, self._clock.wall_ms())

    def forget(self, group: str) -> None:
        """The group does not exist any more."""
        if self._empty_since_ms.pop(group, None) is not None:
            self._changed[group] = None

    def is_over(self, group: str, last_commit_ms: int) -> bool:
        """Whether a group without members may be forgotten."""
        if (self._clock.monotonic() - self._started_at) * 1000 < GRACE_MS:
            return False
        since = max(self._empty_since_ms.get(group, -1), last_commit_ms)
        return self._clock.wall_ms() - since >= self._retention_ms

    async def flush(self) -> None:
        """Write what changed; on failure it is tried again at the next call."""
        changed, self._changed = self._changed, {}
        try:
            await self._meta.write([self._fact_of(group) for group in changed])
        except BaseException:
            self._changed = changed | self._changed
            raise

    def _set(self, group: str, since_ms: int) -> None:
        if self._empty_since_ms.get(group) != since_ms:
            self._empty_since_ms[group] = since_ms
            self._changed[group] = None

    def _fact_of(self, group: str) -> Put | Delete:
        since = self._empty_since_ms.get(group)
        if since is None:
            return Delete(KIND, group)
        return Put(KIND, group, msgspec.msgpack.encode(_Emptiness(since)))


def _decode(fact: Fact) -> _Emptiness:
    try:
        return msgspec.msgpack.decode(fact.value, type=_Emptiness)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a group that cannot be read, {fact.key!r}: {exc}. Put back a backup of the data directory, "
            "or delete this fact."
        ) from exc
