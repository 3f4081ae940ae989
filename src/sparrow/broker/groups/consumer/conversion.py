"""Conversion of a classic group with its members to a consumer group, and back (KIP-848, "Online
Migration"). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import UnknownGroup
from sparrow.broker.groups.classic.group import ClassicGroup, ClassicLimits
from sparrow.broker.groups.classic.member import ClassicMember, elect_protocol
from sparrow.broker.groups.consumer.classic_members import assignment_bytes, owned_ids
from sparrow.broker.groups.consumer.member import Assignment, ClassicMetadata, ConsumerMember
from sparrow.broker.groups.consumer.protocol import PROTOCOL_TYPE, read_assignment, read_subscription

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.group import ConsumerGroup
    from sparrow.broker.groups.consumer.topics import TopicCatalog


def upgrade(classic: ClassicGroup, group: ConsumerGroup, topics: TopicCatalog) -> None:
    """Fill an empty consumer group with the members of a classic one; each keeps what it had.

    Raises:
        UnknownGroup: the broker does not understand the subscriptions of its members.
    """
    members = [_upgraded(classic, member, topics) for member in classic.members.values()]
    held = [partition for member in members for partition in member.assigned]
    if len(held) != len(set(held)):
        raise _not_convertible(classic, "some partitions are assigned to several members")
    group.epoch = group.assignment_epoch = classic.generation
    group.restore((member, member.assigned) for member in members)
    group.changes.group = True


def downgrade(group: ConsumerGroup, topics: TopicCatalog, limits: ClassicLimits, now: float) -> ClassicGroup:
    """Return the classic group of a consumer group whose members all speak the classic protocol.

    Its generation is the epoch that its members have reached, so that they learn of a rebalance
    instead of losing their generation, and commit what they have read. (Kafka takes the group
    epoch; then members lose their partitions first.)
    """
    members = [_downgraded(member, topics) for member in group.members.values()]
    return ClassicGroup.restored(
        group.name,
        members,
        now,
        generation=max(member.epoch for member in group.members.values()),
        protocol_type=PROTOCOL_TYPE,
        protocol=elect_protocol(members, members[0]),
        leader=members[0].member_id,
        limits=limits,
    )


def _upgraded(classic: ClassicGroup, member: ClassicMember, topics: TopicCatalog) -> ConsumerMember:
    subscription = read_subscription(member.protocols[0][1]) if member.protocols else None
    if classic.protocol_type != PROTOCOL_TYPE or subscription is None:
        raise _not_convertible(classic, f"member {member.member_id} does not say which topics it reads")
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=_assigned(classic, member, topics),
    )


def _assigned(classic: ClassicGroup, member: ClassicMember, topics: TopicCatalog) -> Assignment:
    partitions = read_assignment(member.assignment)
    if partitions is None:
        raise _not_convertible(
            classic, f"the assignment of member {member.member_id} has the user data of a custom assignor"
        )
    return owned_ids(partitions, topics)


def _downgraded(member: ConsumerMember, topics: TopicCatalog) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        assignment_bytes(member.assigned, topics, member.classic.protocols[0][1]),
    )


def _not_convertible(classic: ClassicGroup, why: str) -> UnknownGroup:
    return UnknownGroup(f"Classic group {classic.name!r} cannot become a consumer group: {why}.")
