"""Members of a consumer group that speak the classic protocol. Pure: time is an argument.

While a group changes from one protocol to the other, it has members of both. The broker assigns for
all of them. A member of the classic protocol learns of a new target by RebalanceInProgress, joins
again (and reports what it still owns), receives the epoch it reached as its generation, and asks
for its assignment by SyncGroup. It never leads.

Each of these steps has a time limit, the member's rebalance timeout, as in classic groups.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.base.errors import (
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    SparrowError,
    StaleMember,
    UnknownMember,
)
from sparrow.broker.groups.classic.protocol import JoinResponse, SyncResponse
from sparrow.broker.groups.consumer.checks import check_instance
from sparrow.broker.groups.consumer.group import ConsumerGroup, Fenced
from sparrow.broker.groups.consumer.member import (
    Assignment,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    by_topic,
)
from sparrow.broker.groups.consumer.protocol import (
    PROTOCOL_TYPE,
    ConsumerSubscription,
    read_subscription,
    write_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.broker.groups.classic.protocol import JoinRequest, Leaver, SyncRequest
    from sparrow.broker.groups.consumer.topics import TopicCatalog
    from sparrow.records.topic_partition import TopicPartition


def join(
    group: ConsumerGroup,
    topics: TopicCatalog,
    request: JoinRequest,
    now: float,
    member_id: str,
) -> JoinResponse:
    """Handle a JoinGroup. It is answered at once, because members do not wait for each other.

    Args:
        member_id: the request's, or one for a new member.

    Raises:
        GroupFull, InconsistentGroupProtocol, UnknownMember, FencedInstance
        MemberIdRequired: join again with the id in the error.
    """
    group.check_room(member_id)
    subscription = _check_protocols(group, request)
    if not request.member_id and request.instance_id is None and request.requires_member_id:
        raise MemberIdRequired(
            f"Group {group.name!r} has a member id for you; join again with it.", member_id
        )
    known = _joining(group, request, member_id)
    member = group.admit(known, _updated(known, request, subscription), resolve=None)
    after = group.advance(member, owned_ids(subscription.owned, topics), now)
    deadlines = group.deadlines
    deadlines[Fenced.NOT_JOINED].pop(after.member_id, None)
    deadlines[Fenced.SESSION_OVER][after.member_id] = now + request.session_timeout_ms / 1000
    deadlines[Fenced.NOT_SYNCED][after.member_id] = now + request.rebalance_timeout_ms / 1000
    return JoinResponse(after.member_id, after.epoch, PROTOCOL_TYPE, request.protocols[0][0], leader="")


def sync(group: ConsumerGroup, topics: TopicCatalog, request: SyncRequest, now: float) -> SyncResponse:
    """Handle a SyncGroup. Return the member's assignment as the group has it now.

    Raises:
        UnknownMember, FencedInstance, StaleMember, InconsistentGroupProtocol, RebalanceInProgress
    """
    member, classic = _speaker(group, request.member_id, request.instance_id)
    _check_generation(group, member, request.generation)
    protocol, metadata = classic.protocols[0]
    if request.protocol_type not in {None, PROTOCOL_TYPE} or request.protocol not in {None, protocol}:
        raise InconsistentGroupProtocol(
            f"Member {member.member_id} of group {group.name!r} has {PROTOCOL_TYPE!r}/{protocol!r}, not "
            f"{request.protocol_type!r}/{request.protocol!r}; join again."
        )
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise _rebalancing(group, member, now)
    group.deadlines[Fenced.NOT_SYNCED].pop(member.member_id, None)
    _renew(group, member, classic, now)
    return SyncResponse(PROTOCOL_TYPE, protocol, assignment_bytes(member.assigned, topics, metadata))


def heartbeat(
    group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None, now: float
) -> None:
    """Renew a member's session.

    Raises:
        UnknownMember, FencedInstance, StaleMember
        RebalanceInProgress: join again: there is a new target, something to give up, or something
            to take.
    """
    member, classic = _speaker(group, member_id, instance_id)
    _check_generation(group, member, generation)
    _renew(group, member, classic, now)
    can_go_on = member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member)
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS or can_go_on:
        raise _rebalancing(group, member, now)


def leave(group: ConsumerGroup, leavers: Sequence[Leaver]) -> list[SparrowError | None]:
    """Remove members. Return an error or None for each."""
    results: list[SparrowError | None] = []
    leaving: list[str] = []
    for leaver in leavers:
        try:
            member = _leaving(group, leaver)
        except SparrowError as error:
            results.append(error)
        else:
            results.append(None)
            if member.member_id not in leaving:
                leaving.append(member.member_id)
    if leaving:
        group.remove(leaving)
    return results


def is_all_classic(group: ConsumerGroup) -> bool:
    """Return True if there are members and all of them speak the classic protocol."""
    return bool(group.members) and all(member.classic is not None for member in group.members.values())


def owned_ids(partitions: Iterable[TopicPartition], topics: TopicCatalog) -> Assignment:
    """Return partitions by topic id, without those of missing topics."""
    found = ((topics.find(name), number) for name, number in partitions)
    return frozenset((topic.topic_id, number) for topic, number in found if topic is not None)


def assignment_bytes(partitions: Assignment, topics: TopicCatalog, metadata: bytes) -> bytes:
    """Encode an assignment in the version in which the member wrote its subscription."""
    subscription = read_subscription(metadata)
    named = ((topics.find_id(topic_id), numbers) for topic_id, numbers in by_topic(partitions).items())
    return write_assignment(
        0 if subscription is None else subscription.version,
        [(topic.name, numbers) for topic, numbers in named if topic is not None],
    )


# ── inside ────────────────────────────────────────────────────────────────────────────────────────


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> ConsumerSubscription:
    """Check the protocols of a join. All assignors carry the same subscription: the first one
    counts.
    """
    subscription = read_subscription(request.protocols[0][1]) if request.protocols else None
    others = [m.classic for m in group.members.values() if m.classic and m.member_id != request.member_id]
    known = Counter(name for classic in others for name in {name for name, _ in classic.protocols})
    is_common = not others or any(known[name] == len(others) for name, _ in request.protocols)
    if request.protocol_type != PROTOCOL_TYPE or subscription is None or not is_common:
        raise InconsistentGroupProtocol(
            f"Group {group.name!r} is a consumer group; a member with protocol type "
            f"{request.protocol_type!r} and protocols"
            f" {[name for name, _ in request.protocols]} cannot join it."
        )
    return subscription


def _joining(group: ConsumerGroup, request: JoinRequest, member_id: str) -> ConsumerMember:
    holder = group.with_instance(request.instance_id)
    if request.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id:
        return check_instance(holder, member_id, request.instance_id, group.name)
    if holder is None:
        return ConsumerMember(member_id)
    return replace(holder, member_id=member_id, epoch=0, previous_epoch=0)


def _updated(
    member: ConsumerMember, request: JoinRequest, subscription: ConsumerSubscription
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        regex=None,
        server_assignor=None,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _speaker(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = (
        group.get(member_id)
        if instance_id is None
        else check_instance(group.with_instance(instance_id), member_id, instance_id, group.name)
    )
    return member, _classic(group, member)


def _leaving(group: ConsumerGroup, leaver: Leaver) -> ConsumerMember:
    if leaver.instance_id is None:
        member = group.get(leaver.member_id)
    else:
        holder = group.with_instance(leaver.instance_id)
        # An administrator who removes a static member does not know its id.
        named = leaver.member_id or (holder.member_id if holder is not None else "")
        member = check_instance(holder, named, leaver.instance_id, group.name)
    _classic(group, member)
    return member


def _classic(group: ConsumerGroup, member: ConsumerMember) -> ClassicMetadata:
    if member.classic is None:
        raise UnknownMember(
            f"Member {member.member_id} of group {group.name!r} does not speak the classic protocol."
        )
    return member.classic


def _check_generation(group: ConsumerGroup, member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise StaleMember(
            f"Member {member.member_id} of group {group.name!r} is at generation {member.epoch}, "
            f"not {generation}; join again."
        )


def _renew(group: ConsumerGroup, member: ConsumerMember, classic: ClassicMetadata, now: float) -> None:
    group.deadlines[Fenced.SESSION_OVER][member.member_id] = now + classic.session_timeout_ms / 1000


def _rebalancing(group: ConsumerGroup, member: ConsumerMember, now: float) -> RebalanceInProgress:
    by = now + member.rebalance_timeout_ms / 1000
    group.deadlines[Fenced.NOT_JOINED].setdefault(member.member_id, by)
    return RebalanceInProgress(f"Partitions of group {group.name!r} are assigned again; join again.")
