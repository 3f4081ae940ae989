"""The steps of a consumer group's member from what it has to what it should have (KIP-848,
"Reconciliation").

Three states, one rule: at most one member has a partition at a time.

    STABLE                 has its target; moves on when there is a newer one
    UNREVOKED_PARTITIONS   was asked to give up partitions; stays at its epoch until it
                           reports that it does not own them any more
    UNRELEASED_PARTITIONS  is at the target's epoch with what is free; gets the rest when its
                           holders gave it up

First a member gives up partitions, then it moves to the target's epoch and takes the free ones. So
a member at the target's epoch has nothing that the target gives to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.broker.groups.consumer.member import NOTHING, MemberState

if TYPE_CHECKING:
    from collections.abc import Container

    from sparrow.broker.groups.consumer.member import Assignment, ConsumerMember, TopicIdPartition


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    held: Container[TopicIdPartition],
    owned: Assignment | None,
) -> ConsumerMember:
    """Return the member one step on, or unchanged.

    Args:
        target_epoch: the epoch of the group's target assignment.
        target: the member's part of it.
        held: partitions that any member has, this one included.
        owned: what the member reports to have; None if it does not report.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, owned):
            return member
        # One epoch on, so that the member sees that its confirmation arrived; commits with the
        # former epoch are over.
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
    held: Container[TopicIdPartition],
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
    """Return True if the member may have some of these; it does if it does not report what it
    has.
    """
    return owned is None or not partitions.isdisjoint(owned)
