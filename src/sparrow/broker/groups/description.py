"""Kinds and states of groups, and the description of a member."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.model.groups import MemberDescription


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


def only_topics(member: MemberDescription, shows: Callable[[str], bool]) -> MemberDescription:
    """Return a member without topics that are not to be shown."""
    return replace(
        member,
        topics=[topic for topic in member.topics if shows(topic)],
        partitions=[each for each in member.partitions if shows(each[0])],
        releasing=[each for each in member.releasing if shows(each[0])],
    )
