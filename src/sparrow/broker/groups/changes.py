"""What of a group whose members heartbeat (consumer, share) is not in the store yet."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    """The group itself, and members by id (those that are gone, too)."""

    group: bool = False
    members: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.group or bool(self.members)
