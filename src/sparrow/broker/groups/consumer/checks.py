"""Checks of a heartbeat: by itself, and against what the group knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import (
    FencedInstance,
    FencedMemberEpoch,
    InvalidArgument,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from sparrow.broker.groups.consumer.assignors import ASSIGNORS
from sparrow.broker.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.member import Assignment, ConsumerMember, Heartbeat


def check_heartbeat(heartbeat: Heartbeat) -> None:
    """Raise an error if a heartbeat is wrong by itself.

    Raises:
        InvalidArgument, UnsupportedAssignor
    """
    for what, value in (
        ("instance id", heartbeat.instance_id),
        ("rack id", heartbeat.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidArgument(f"The {what} is empty; leave it out, or give one.")
    epoch = heartbeat.member_epoch
    if not heartbeat.member_id.strip() and (heartbeat.must_have_id or epoch != JOIN_EPOCH):
        raise InvalidArgument("A heartbeat must name its member id.")
    if epoch < LEAVE_STATIC_EPOCH:
        raise InvalidArgument(f"{epoch} is no member epoch; 0 joins, -1 and -2 leave.")
    if epoch == LEAVE_STATIC_EPOCH and heartbeat.instance_id is None:
        raise InvalidArgument("Only a member with an instance id can leave for a while (member epoch -2).")
    if epoch == JOIN_EPOCH:
        _check_join(heartbeat)
    name = heartbeat.server_assignor
    if epoch >= JOIN_EPOCH and name is not None and name not in ASSIGNORS:
        raise UnsupportedAssignor(f"There is no assignor {name!r}; there are {', '.join(ASSIGNORS)}.")


def _check_join(heartbeat: Heartbeat) -> None:
    says_subscription_alone = heartbeat.rebalance_timeout_ms == -1 and heartbeat.owned is None
    if says_subscription_alone and (heartbeat.topics is not None or heartbeat.regex is not None):
        # librdkafka (2.16) joins this way when it subscribes in the moment in which it leaves.
        # Kafka refuses, which the client takes as fatal. It is harmless: only a client that is no
        # member gets in this way (`check_epoch`), and nothing is kept for it.
        return
    if heartbeat.rebalance_timeout_ms == -1:
        raise InvalidArgument("A heartbeat that joins must have a rebalance timeout.")
    if heartbeat.owned is None or heartbeat.owned:
        raise InvalidArgument("A heartbeat that joins must have an empty list of owned partitions.")
    if heartbeat.topics is None and heartbeat.regex is None:
        raise InvalidArgument("A heartbeat that joins must name topics or a regular expression.")


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Raise an error unless a member is at the epoch that it sends, or missed the response that
    moved it on.

    Raises:
        FencedMemberEpoch
    """
    if epoch == member.epoch:
        return
    has_missed_response = (
        JOIN_EPOCH <= epoch < member.epoch
        and epoch == member.previous_epoch
        and owned is not None
        and owned <= member.assigned
    )
    if not has_missed_response:
        raise FencedMemberEpoch(
            f"Member {member.member_id} is at epoch {member.epoch}, not {epoch}; it must give up "
            "its partitions and join again."
        )


def check_instance(
    member: ConsumerMember | None, member_id: str, instance_id: str, group: str
) -> ConsumerMember:
    """Return the member with an instance id, if it is the one that sends the heartbeat.

    Raises:
        UnknownMember, FencedInstance
    """
    if member is None:
        raise UnknownMember(f"Nobody in group {group!r} has the instance id {instance_id!r}; join again.")
    if member.member_id != member_id:
        raise FencedInstance(
            f"Member {member_id} of group {group!r} was replaced by {member.member_id}, which has "
            "the same instance id"
            f" {instance_id!r}; stop one of them."
        )
    return member


def check_released(member: ConsumerMember, member_id: str, group: str) -> None:
    """Raise an error unless a static member went away, so that another may replace it.

    Raises:
        UnreleasedInstanceId
    """
    if not member.is_away:
        raise UnreleasedInstanceId(
            f"Member {member_id} cannot join group {group!r} with the instance id "
            f"{member.instance_id!r}: member"
            f" {member.member_id} has it and has not left."
        )


def is_leave(epoch: int) -> bool:
    """Return True if the member epoch of a heartbeat means that the member leaves."""
    return epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}
