"""What a kind of groups has to be for the roof: the interface of the seam that `groups` describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.broker.groups.classic.protocol import (
        JoinAnswer,
        JoinRequest,
        Leaver,
        SyncAnswer,
        SyncRequest,
    )
    from sparrow.broker.groups.description import GroupDescription, GroupInfo, GroupType
    from sparrow.broker.groups.native.assignor import Partition
    from sparrow.meta.store import Write


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits or fetches offsets. The default is nobody: an administrator, or a consumer that assigns itself.

    `epoch` is a generation (classic), a member epoch (KIP-848) or a group epoch (native).
    """

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None
    is_transactional: bool = False
    knows_member_epochs: bool = True
    """Whether the client understands StaleMemberEpoch (OffsetCommit 9)."""

    @property
    def is_nobody(self) -> bool:
        return self.epoch < 0 and not self.member_id and self.instance_id is None


NOBODY: Final = Committer()
GROUPS_PER_TURN: Final = 500
"""How many groups are looked at, at a tick, before the loop's other work has its turn."""


class GroupFamily(Protocol):
    """The groups of one kind. See the seam above."""

    type: GroupType

    async def load(self) -> None:
        """Read what earlier runs wrote."""
        ...

    def names(self) -> Collection[str]:
        """The groups that this family owns, with or without members."""
        ...

    def owns(self, group: str) -> bool: ...

    def member_count(self, group: str) -> int: ...

    def info(self, group: str) -> GroupInfo: ...

    def describe(self, group: str) -> GroupDescription: ...

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[Partition]) -> None:
        """Raise unless the committer may commit offsets now; nobody may while the group is empty."""
        ...

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Raise if the member that asks for offsets is not what it says (KIP-848); (None, -1) is nobody in particular."""
        ...

    def subscribed(self, group: str) -> Collection[str] | None:
        """Topics that members read; None: not known.

        Raises:
            GroupNotEmpty: the members do something else than reading topics.
        """
        ...

    def drop(self, group: str) -> Sequence[Write]:
        """Forget an empty group, at once in memory; returns what deletes its facts."""
        ...

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Topics came, grew or (0) went."""
        ...

    async def tick(self) -> None:
        """Look at the clock; called about twice a second."""
        ...

    def close(self) -> None:
        """The broker ends: no timer may fire any more."""
        ...


@runtime_checkable
class ClassicMembers(Protocol):
    """A family of another kind whose groups may have members that speak the classic protocol.

    Same results and errors as the verbs of `ClassicGroups`.
    """

    async def classic_join(self, request: JoinRequest) -> JoinAnswer: ...

    async def classic_sync(self, request: SyncRequest) -> SyncAnswer: ...

    def classic_heartbeat(
        self, group: str, member_id: str, generation: int, instance_id: str | None
    ) -> None: ...

    def classic_leave(self, group: str, leavers: Sequence[Leaver]) -> list[SparrowError | None]: ...
