"""What members of classic groups ask and hear (Kafka: JoinGroup, SyncGroup, LeaveGroup), without any version of the wire.

Times in milliseconds. Metadata and assignments are bytes that only members understand (and `consumer_protocol`, for
those who read topics).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Become a member, or join again. `member_id` "": a new one."""

    group: str
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), the member's favourite first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    """A static member's name (KIP-345)."""
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = False
    """A new dynamic member is sent away with an id first (JoinGroup 4, KIP-394)."""
    can_skip_assignment: bool = False
    """A leader that comes back may be told to keep the assignment (JoinGroup 9, KIP-814)."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader learns of each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The generation is complete. `members` is empty for all but the leader."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """Ask for one's assignment; the leader brings everybody's. Protocol type and name None: not said (before SyncGroup 5)."""

    group: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """A member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Leaver:
    """Who leaves; `member_id` "" with an instance id is an administrator's removal."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""
