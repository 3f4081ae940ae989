"""How a member of a consumer group gets from what it has to what it should have (KIP-848, "Reconciliation").

Three states, one rule: a partition is in the hands of one member at a time.

    STABLE                 has its target; moves on when there is a newer one
    UNREVOKED_PARTITIONS   was told what to give up; stays at its epoch until it reports that it does not own it any more
    UNRELEASED_PARTITIONS  is at the target's epoch with what is free; gets the rest when its holders gave it up

First a member gives up, then it moves to the target's epoch and takes what nobody holds. So a member at the target's epoch has
nothing that the target gives to another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparrow.broker.groups.consumer.member import NOTHING, MemberState

if TYPE_CHECKING:
    from collections.abc import Container

    from sparrow.broker.groups.consumer.member import Assignment, ConsumerMember, Partition


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    held: Container[Partition],
    owned: Assignment | None,
) -> ConsumerMember:
    """The member one step on, or the same.

    Args:
        target_epoch: of the group's target assignment.
        target: the member's part of it.
        held: partitions in the hands of any member, this one included.
        owned: what the member says that it has; None when it does not say.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, owned):
            return member
        # One epoch on, as a sign to the member that its confirmation was heard; commits with the epoch before are over.
        return _step(member, member.epoch + 1, target_epoch, target, held=held, owned=owned)
    if member.is_reconciled_to(target_epoch):
        return member
    return _step(member, member.epoch, target_epoch, target, held=held, owned=owned)


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    *,
    held: Container[Partition],
    owned: Assignment | None,
) -> ConsumerMember:
    kept = member.assigned & target
    surplus = member.assigned - kept
    if surplus and _still_owns(surplus, owned):
        return replace(
            member.at_epoch(epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=surplus,
        )
    missing = target - kept
    free = frozenset(partition for partition in missing if partition not in held)
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept | free,
        pending_revocation=NOTHING,
    )


def _still_owns(partitions: Assignment, owned: Assignment | None) -> bool:
    """Whether the member may have some of these; it does when it does not say what it has."""
    return owned is None or not partitions.isdisjoint(owned)
