"""The unwritten changes of a group whose members heartbeat (consumer, share)."""

from __future__ import annotations

from msgspec import Struct, field


class GroupChanges(Struct):
    """True for `group` if the group itself changed; ids of the members that changed or left."""

    group: bool = False
    members: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.group or bool(self.members)
