"""Groups whose members heartbeat (consumer, share): members, targets, and changes that are not
written yet.

Pure: the rules of each kind are in its module `group`. Changes are collected in `changes`, and a
member may only be answered when they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from sparrow.base.errors import UnknownMember
from sparrow.broker.groups.changes import GroupChanges
from sparrow.broker.groups.consumer.member import NOTHING

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.consumer.topics import TopicCatalog

M = TypeVar("M")


class MemberGroup(Generic[M]):
    """One group with members of type `M`."""

    def __init__(self, name: str, topics: TopicCatalog) -> None:
        self.name = name
        self.epoch = 0
        """The group epoch: rises with each change of members, subscriptions or topics."""
        self.assignment_epoch = 0
        """The epoch for which the targets were made."""
        self.digest = b""
        """Digest of the subscribed topics when the group epoch last rose or they were last
        compared.
        """
        self.members: dict[str, M] = {}
        self.targets: dict[str, Assignment] = {}
        self.needs_refresh = True
        """True if topics may have changed since they were last compared."""
        self.changes = GroupChanges()
        self._topics = topics

    def get(self, member_id: str) -> M:
        """Return a member.

        Raises:
            UnknownMember
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is no member of group {self.name!r} (any more); join again.")
        return member

    def take_changes(self) -> GroupChanges:
        """Return what is to be written, and count it as written from now on."""
        changes, self.changes = self.changes, GroupChanges()
        return changes

    def _take_targets(self, targets: dict[str, Assignment]) -> None:
        """Set targets that were made for the group as it is now."""
        self.changes.members.update(m for m in targets if targets[m] != self.targets.get(m, NOTHING))
        self.targets = targets
        self.assignment_epoch = self.epoch
        self.changes.group = True
