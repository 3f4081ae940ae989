"""Members of a share group (KIP-932) and their heartbeats.

Frozen, as in consumer groups: a change of a member is a new member.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from sparrow.broker.groups.consumer.member import NOTHING, Assignment


class ShareMember(Struct, frozen=True):
    """A member of a share group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Subscribed names; sorted, each once."""
    epoch: int = 0
    """The epoch of the target assignment that it received."""
    previous_epoch: int = 0
    assigned: Assignment = NOTHING

    def moved_to(self, epoch: int, assigned: Assignment) -> ShareMember:
        """Return the member with another assignment. The former epoch is kept, in case a response
        got lost.
        """
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=assigned)


class ShareHeartbeat(Struct, frozen=True):
    """A ShareGroupHeartbeat. None means: unchanged."""

    member_id: str
    member_epoch: int
    """0 joins, -1 leaves."""
    rack_id: str | None = None
    topics: Iterable[str] | None = None
    client_id: str = ""
    client_host: str = ""

    def applied_to(self, member: ShareMember) -> ShareMember:
        """Return the member with the values of this heartbeat."""
        return replace(
            member,
            rack_id=member.rack_id if self.rack_id is None else self.rack_id,
            topics=member.topics if self.topics is None else tuple(sorted(set(self.topics))),
            client_id=self.client_id,
            client_host=self.client_host,
        )
