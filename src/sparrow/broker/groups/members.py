"""Groups whose members heartbeat (consumer, share): the members, what each is to have, and how far group and store know of it.

Pure: the rules of each kind are in its `group`. What changed is collected in `changes`, and nothing may be answered before it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from sparrow.base.errors import UnknownMember
from sparrow.broker.groups.changes import Changes
from sparrow.broker.groups.consumer.member import NOTHING

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.consumer.topics import TopicCatalog

M = TypeVar("M")


class MemberGroup(Generic[M]):
    """One group of members `M`."""

    def __init__(self, name: str, topics: TopicCatalog) -> None:
        self.name = name
        self.epoch = 0
        """Rises with each change of members, subscriptions or topics."""
        self.assignment_epoch = 0
        """The epoch that the targets were made for."""
        self.digest = b""
        """Of the subscribed topics, when the group epoch last rose or they were last looked at."""
        self.members: dict[str, M] = {}
        self.targets: dict[str, Assignment] = {}
        self.needs_refresh = True
        """Whether topics may have changed since anybody looked."""
        self.changes = Changes()
        self._topics = topics

    def get(self, member_id: str) -> M:
        """A member.

        Raises:
            UnknownMember
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is no member of group {self.name!r} (any more); join again.")
        return member

    def take_changes(self) -> Changes:
        """What is to be written; from now on it counts as written."""
        changes, self.changes = self.changes, Changes()
        return changes

    def _take_targets(self, targets: dict[str, Assignment]) -> None:
        """Targets were made for the group as it is now."""
        self.changes.members.update(m for m in targets if targets[m] != self.targets.get(m, NOTHING))
        self.targets = targets
        self.assignment_epoch = self.epoch
        self.changes.group = True
