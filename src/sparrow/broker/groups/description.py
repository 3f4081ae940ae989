"""Public descriptions of groups of all kinds: states, members, summaries for lists."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.records.topic_partition import TopicPartition


class GroupType(StrEnum):
    """The way in which members of a group agree on who reads which partition. The values are
    Kafka's where Kafka has the kind.
    """

    SPARROW = "sparrow"
    """The native protocol: the broker assigns and notifies members; a member lives as long as its
    connection.
    """
    CLASSIC = "classic"
    """Kafka's first protocol: the members' leader assigns. Also groups that only commit offsets."""
    CONSUMER = "consumer"
    """KIP-848: the broker assigns; members learn their assignment by heartbeat."""
    SHARE = "share"
    """KIP-932."""


class GroupState(StrEnum):
    """The states of groups of all kinds; each kind has some of them."""

    EMPTY = "empty"
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"
    STABLE = "stable"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group in a list. `protocol_type` is the name that a classic group's members gave their
    protocol, usually "consumer".
    """

    group: str
    state: GroupState
    members: int
    type: GroupType = GroupType.SPARROW
    protocol_type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as seen from outside. It holds `partitions`, and was asked to release
    `releasing`.
    """

    member_id: str
    client_name: str
    topics: tuple[str, ...]
    epoch: int
    is_attached: bool
    partitions: tuple[TopicPartition, ...]
    releasing: tuple[TopicPartition, ...]
    instance_id: str | None = None
    client_host: str = ""

    def only(self, shows: Callable[[str], bool]) -> MemberDescription:
        """Return the description without topics that are not to be shown."""
        return replace(
            self,
            topics=tuple(topic for topic in self.topics if shows(topic)),
            partitions=tuple(each for each in self.partitions if shows(each[0])),
            releasing=tuple(each for each in self.releasing if shows(each[0])),
        )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members, ordered by member id. `epoch` of a classic group is its
    generation.
    """

    group: str
    state: GroupState
    epoch: int
    members: tuple[MemberDescription, ...]
    type: GroupType = GroupType.SPARROW
