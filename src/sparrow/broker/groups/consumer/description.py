"""Descriptions of consumer groups: for ConsumerGroupDescribe, and in the form common to all kinds
of groups.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.broker.groups.consumer.member import NOTHING, Assignment, ConsumerMember, by_topic
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.model.groups import GroupDescription, MemberDescription

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.group import ConsumerGroup
    from sparrow.broker.groups.consumer.topics import TopicCatalog
    from sparrow.records.topic_partition import TopicPartition


class TopicPartitions(Struct, frozen=True):
    """Partitions of a topic that exists."""

    topic_id: uuid.UUID
    name: str
    partitions: tuple[int, ...]


class ConsumerMemberDescription(Struct, frozen=True):
    """A member with its current and its target assignment."""

    member: ConsumerMember
    assigned: tuple[TopicPartitions, ...]
    target: tuple[TopicPartitions, ...]


class ConsumerDescription(Struct, frozen=True):
    """A consumer group as Kafka describes it. `topics`: names that its members subscribed to or
    have partitions of.
    """

    group: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
    topics: frozenset[str]


def describe_consumer(group: ConsumerGroup, topics: TopicCatalog) -> ConsumerDescription:
    """Return the description for ConsumerGroupDescribe."""
    members = tuple(
        ConsumerMemberDescription(
            member,
            named(member.assigned, topics),
            named(group.targets.get(member.member_id, NOTHING), topics),
        )
        for _, member in sorted(group.members.items())
    )
    shown = {part.name for each in members for part in (*each.assigned, *each.target)}
    subscribed = {name for each in members for name in each.member.topics}
    return ConsumerDescription(
        group.name,
        group.state,
        group.epoch,
        group.assignment_epoch,
        group.assignor,
        members,
        frozenset(shown | subscribed),
    )


def describe(group: ConsumerGroup, topics: TopicCatalog) -> GroupDescription:
    """Return the description in the common form."""
    members = [_describe_member(group, member, topics) for _, member in sorted(group.members.items())]
    return GroupDescription(group.name, group.state, group.epoch, members, type=GroupType.CONSUMER)


def _describe_member(group: ConsumerGroup, member: ConsumerMember, topics: TopicCatalog) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        sorted(group.topics_of(member)),
        member.epoch,
        not member.is_away,
        flat(member.assigned, topics),
        flat(member.pending_revocation, topics),
        member.instance_id,
        member.client_host,
    )


def named(partitions: Assignment, topics: TopicCatalog) -> tuple[TopicPartitions, ...]:
    """Return partitions by topic, with names, without those of deleted topics."""
    found = ((topics.find_id(topic_id), numbers) for topic_id, numbers in by_topic(partitions).items())
    return tuple(
        TopicPartitions(topic.topic_id, topic.name, tuple(numbers))
        for topic, numbers in found
        if topic is not None
    )


def flat(partitions: Assignment, topics: TopicCatalog) -> list[TopicPartition]:
    """Return partitions by name, without those of deleted topics."""
    return [(part.name, number) for part in named(partitions, topics) for number in part.partitions]
