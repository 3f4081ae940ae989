"""Checks of a share group's heartbeat: by itself, and against what the group knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import FencedMemberEpoch, InvalidArgument
from sparrow.broker.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH

if TYPE_CHECKING:
    from sparrow.broker.groups.share.member import ShareHeartbeat, ShareMember

MAX_MEMBER_ID_CHARACTERS: Final = 36
"""Members create their ids themselves: a UUID as text (KIP-932)."""


def check_member_id(member_id: str | None) -> str:
    """Return the member id, if it is a valid one.

    Raises:
        InvalidArgument
    """
    if not member_id or not member_id.strip() or len(member_id) > MAX_MEMBER_ID_CHARACTERS:
        raise InvalidArgument(
            f"A member id of a share group has 1 to {MAX_MEMBER_ID_CHARACTERS} characters, as a "
            "UUID has; it was"
            f" {(member_id or '')[:50]!r}."
        )
    return member_id


def check_heartbeat(heartbeat: ShareHeartbeat) -> None:
    """Raise an error if a heartbeat is wrong by itself.

    Raises:
        InvalidArgument
    """
    check_member_id(heartbeat.member_id)
    if heartbeat.rack_id is not None and not heartbeat.rack_id.strip():
        raise InvalidArgument("The rack id is empty; leave it out, or give one.")
    if heartbeat.member_epoch < LEAVE_EPOCH:
        raise InvalidArgument(f"{heartbeat.member_epoch} is no member epoch; 0 joins, -1 leaves.")
    if heartbeat.member_epoch == JOIN_EPOCH and not heartbeat.topics:
        raise InvalidArgument(
            "A heartbeat that joins a share group must name the topics that it subscribes to."
        )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise an error unless a member joins, is at the epoch that it sends, or missed the response
    that moved it on.

    Raises:
        FencedMemberEpoch
    """
    if epoch not in {JOIN_EPOCH, member.epoch, member.previous_epoch}:
        raise FencedMemberEpoch(
            f"Member {member.member_id} is at epoch {member.epoch}, not {epoch}; it must give up "
            "its partitions and join again."
        )
