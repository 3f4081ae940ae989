"""The groups of one kind by name, and the operations that all coordinators implement in the same
way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from sparrow.base.errors import UnknownGroup
from sparrow.model.groups import GroupListing

if TYPE_CHECKING:
    from collections.abc import Collection, Sized

    from sparrow.broker.groups.description import GroupState, GroupType
    from sparrow.broker.groups.registry import GroupRegistry


class NamedGroup(Protocol):
    """A group of any kind, as the table sees it."""

    name: str

    @property
    def state(self) -> GroupState: ...

    @property
    def members(self) -> Sized: ...


G = TypeVar("G", bound=NamedGroup)


class GroupTable(Generic[G]):
    """Base class of the coordinators: their groups, and the part of `GroupCoordinator` that needs
    no protocol. Loop thread only.
    """

    type: GroupType
    protocol_type: ClassVar[str]
    """The name of the members' protocol in lists."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._groups: dict[str, G] = {}
        self._populated: set[str] = set()
        """Groups that the registry knows to have members."""

    def get(self, name: str) -> G:
        """Return a group.

        Raises:
            UnknownGroup
        """
        group = self._groups.get(name)
        if group is None:
            raise UnknownGroup(f"There is no {self.type} group {name!r}.")
        return group

    def names(self) -> Collection[str]:
        return self._groups.keys()

    def owns(self, group: str) -> bool:
        return group in self._groups

    def member_count(self, group: str) -> int:
        return len(self._groups[group].members)

    def info(self, group: str) -> GroupListing:
        state = self._groups[group]
        return GroupListing(group, state.state, len(state.members), self.type, self.protocol_type)

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Do nothing: every principal that may see the group may see its offsets."""

    async def delete_data(self, group: str) -> None:
        """Do nothing: the group has entries only."""

    def close(self) -> None:
        """Do nothing: there are no timers."""

    def _note_population(self, group: G) -> None:
        """Report to the registry when a group got its first member or lost its last."""
        if bool(group.members) == (group.name in self._populated):
            return
        if group.members:
            self._populated.add(group.name)
            self._registry.has_members(group.name, self.type)
        else:
            self._populated.discard(group.name)
            self._registry.became_empty(group.name, self.type)
