"""The interface of a coordinator, as the registry sees it. Module `registry` describes how both
work together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.broker.groups.classic.protocol import (
        JoinRequest,
        JoinResponse,
        Leaver,
        SyncRequest,
        SyncResponse,
    )
    from sparrow.broker.groups.description import GroupType
    from sparrow.broker.groups.offsets import Committer
    from sparrow.meta.store import Write
    from sparrow.model.groups import GroupDescription, GroupListing
    from sparrow.records.topic_partition import TopicPartition


GROUPS_PER_YIELD: Final = 500
"""Groups that a tick visits before it yields to the loop's other work."""


class GroupCoordinator(Protocol):
    """The groups of one kind. Module `registry` says when each method is called."""

    type: GroupType

    async def load(self) -> None:
        """Read the groups of earlier runs."""
        ...

    def names(self) -> Collection[str]:
        """Return the groups that this coordinator owns, with or without members."""
        ...

    def owns(self, group: str) -> bool: ...

    def member_count(self, group: str) -> int: ...

    def info(self, group: str) -> GroupListing: ...

    def describe(self, group: str) -> GroupDescription: ...

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[TopicPartition]) -> None:
        """Raise an error unless the committer may commit offsets now. The default committer may
        while the group is empty.
        """
        ...

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Raise an error if the member that fetches offsets is not what it says (KIP-848). (None,
        -1) names no member.
        """
        ...

    def subscribed(self, group: str) -> Collection[str] | None:
        """Return the topics that members read, or None if they are not known.

        Raises:
            GroupNotEmpty: the members do something else than reading topics.
        """
        ...

    async def delete_data(self, group: str) -> None:
        """Delete what an empty group has beside its entries, before it is dropped.

        Raises:
            GroupNotEmpty, DiskFull, StorageFailed
        """
        ...

    def drop(self, group: str) -> Sequence[Write]:
        """Forget an empty group in memory and return the writes that delete its entries."""
        ...

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Note that topics were created, got more partitions, or (0) were deleted."""
        ...

    async def tick(self) -> None:
        """Do what the clock asks for; called about twice a second."""
        ...

    def close(self) -> None:
        """Stop all timers: the broker is closing."""
        ...


@runtime_checkable
class ClassicMembers(Protocol):
    """A coordinator of another kind whose groups may have members that speak the classic protocol.

    The methods have the results and errors of those of `ClassicGroupCoordinator`.
    """

    async def classic_join(self, request: JoinRequest) -> JoinResponse: ...

    async def classic_sync(self, request: SyncRequest) -> SyncResponse: ...

    def classic_heartbeat(
        self, group: str, member_id: str, generation: int, instance_id: str | None
    ) -> None: ...

    def classic_leave(self, group: str, leavers: Sequence[Leaver]) -> list[SparrowError | None]: ...
