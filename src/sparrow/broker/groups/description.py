"""What is told of a group, whatever its kind: states, members, one line in a list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.native.assignor import Partition


class GroupType(StrEnum):
    """How the members of a group agree on who reads what. The values are Kafka's, where Kafka has the kind."""

    SPARROW = "sparrow"
    """The native protocol: the broker assigns, tells its members, connections vouch for them."""
    CLASSIC = "classic"
    """Kafka's first protocol: the members' leader assigns. Also groups that only commit offsets."""
    CONSUMER = "consumer"
    """KIP-848: the broker assigns, members learn it by heartbeat."""
    SHARE = "share"
    """KIP-932."""


class GroupState(StrEnum):
    """States of groups of all kinds; a kind has some of them."""

    EMPTY = "empty"
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"
    STABLE = "stable"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group in a list. `protocol_type`: what a classic group's members called their protocol, "consumer" as a rule."""

    group: str
    state: GroupState
    members: int
    type: GroupType = GroupType.SPARROW
    protocol_type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as seen from outside. `partitions` it holds; `releasing` it was told to release."""

    member_id: str
    client_name: str
    topics: tuple[str, ...]
    epoch: int
    is_attached: bool
    partitions: tuple[Partition, ...]
    releasing: tuple[Partition, ...]
    instance_id: str | None = None
    client_host: str = ""

    def only(self, shows: Callable[[str], bool]) -> MemberDescription:
        """The same without topics that are not to be shown."""
        return replace(
            self,
            topics=tuple(topic for topic in self.topics if shows(topic)),
            partitions=tuple(each for each in self.partitions if shows(each[0])),
            releasing=tuple(each for each in self.releasing if shows(each[0])),
        )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members, by member id. `epoch` of a classic group is its generation."""

    group: str
    state: GroupState
    epoch: int
    members: tuple[MemberDescription, ...]
    type: GroupType = GroupType.SPARROW
