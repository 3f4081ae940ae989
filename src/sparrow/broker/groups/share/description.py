"""Descriptions of share groups: for ShareGroupDescribe, and in the form common to all kinds of
groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.broker.groups.consumer.description import TopicPartitions, flat, named
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.share import balanced_assignor
from sparrow.model.groups import GroupDescription, MemberDescription

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.topics import TopicCatalog
    from sparrow.broker.groups.share.group import ShareGroup
    from sparrow.broker.groups.share.member import ShareMember


class ShareMemberDescription(Struct, frozen=True):
    """A member with its partitions."""

    member: ShareMember
    assigned: tuple[TopicPartitions, ...]


class ShareDescription(Struct, frozen=True):
    """A share group as Kafka describes it. `topics`: names of which its members have partitions."""

    group: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]
    topics: frozenset[str]


def describe_share(group: ShareGroup, topics: TopicCatalog) -> ShareDescription:
    """Return the description for ShareGroupDescribe."""
    members = tuple(
        ShareMemberDescription(member, named(member.assigned, topics))
        for _, member in sorted(group.members.items())
    )
    return ShareDescription(
        group.name,
        group.state,
        group.epoch,
        group.assignment_epoch,
        balanced_assignor.NAME,
        members,
        frozenset(part.name for each in members for part in each.assigned),
    )


def describe(group: ShareGroup, topics: TopicCatalog) -> GroupDescription:
    """Return the description in the common form."""
    members = [
        MemberDescription(
            member.member_id,
            member.client_id,
            [*member.topics],
            member.epoch,
            partitions=flat(member.assigned, topics),
            client_host=member.client_host,
        )
        for _, member in sorted(group.members.items())
    ]
    return GroupDescription(group.name, group.state, group.epoch, members, type=GroupType.SHARE)
