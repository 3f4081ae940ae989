"""The coordinator of native groups.

It owns the groups (module `group`) and notifies their members. Members receive the effects of an
operation in one later iteration of the loop, in the order in which they were decided: a frontend
has confirmed the membership before it sends partitions, and a listener may call any method.

Membership is not kept over a restart: members come back with their id. Epochs of a group begin at
the wall time in seconds since 2020, so that those of an earlier run are older than all of a later
one. They fit into 31 bits, as Kafka requires.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import (
    InvalidArgument,
    Overloaded,
    SparrowError,
    StaleMember,
    UnknownMember,
)
from sparrow.base.ids import uuid7
from sparrow.broker.groups.description import GroupType
from sparrow.broker.groups.native.group import Assign, Fence, FenceReason, NativeGroup
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.broker.groups.registry import check_start_offsets, unknown_member
from sparrow.broker.groups.table import GroupTable
from sparrow.model.groups import GroupDescription, MemberDescription

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparrow.broker.groups.native.group import Effect, NativeMember
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.meta.store import Write
    from sparrow.records.topic_partition import TopicPartition

MAX_NAME_CHARACTERS: Final = 255
MAX_TIMEOUT_MS: Final = 3_600_000
_EPOCH_ORIGIN_S: Final = 1_577_836_800  # 2020-01-01

log = logging.getLogger(__name__)


class GroupListener(Protocol):
    """The connection of a member. Called on the loop; must not block."""

    def on_assign(self, epoch: int, added: Sequence[TopicPartition]) -> None:
        """Add partitions to those that the member holds."""
        ...

    def on_revoke(self, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        """Finish with these partitions, then call `confirm_revoked` with this epoch."""
        ...

    def on_fenced(self, error: SparrowError) -> None:
        """End the membership: StaleMember (another connection continues, or the release took too
        long) or UnknownMember (the session is over).
        """
        ...


class Membership:
    """The membership of one connection in a group; created by `NativeGroupCoordinator.join`. Loop
    thread only.

    After `leave`, `detach` or a fence it is void: `commit` raises UnknownMember, the other methods
    do nothing.
    """

    def __init__(
        self,
        coordinator: NativeGroupCoordinator,
        group: str,
        member_id: str,
        listener: GroupListener,
        epoch: int,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.epoch = epoch
        """The newest epoch that this member has received."""
        self.is_void = False
        self._coordinator = coordinator
        self._listener = listener

    def update(self, topics: Iterable[str]) -> None:
        """Subscribe to other topics. The caller resolves patterns."""
        if not self.is_void:
            self._coordinator.update_subscription(self.group, self.member_id, self.epoch, topics)

    def heartbeat(self) -> None:
        """Renew the session; only members without a connection of their own need it."""
        if not self.is_void:
            self._coordinator.heartbeat(self.group, self.member_id, self.epoch)

    def confirm_revoked(self, epoch: int, partitions: Iterable[TopicPartition]) -> None:
        """Confirm that the member has finished with partitions that `on_revoke` named at `epoch`.

        Raises:
            StaleMember: the member never received that epoch.
        """
        if not self.is_void:
            self._coordinator.confirm_revoked(self.group, self.member_id, epoch, partitions)

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit (offset, metadata) by partition, durably.

        Raises:
            InvalidArgument: an offset is negative. And what `GroupRegistry.commit` raises.
        """
        if self.is_void:
            raise unknown_member(self.group, self.member_id)
        values = {partition: OffsetAndMetadata(*value) for partition, value in offsets.items()}
        check_start_offsets(values)
        await self._coordinator.commit(self.group, values, member_id=self.member_id, epoch=self.epoch)

    async def leave(self) -> None:
        """Leave the group; the partitions are free at once. Repeated, or after a fence: no
        effect.
        """
        if not self.is_void:
            self._coordinator.leave(self.group, self.member_id, self.epoch)

    def detach(self) -> None:
        """Note that the connection is lost; the member stays until its session ends."""
        if not self.is_void:
            self._coordinator.detach(self.group, self.member_id, self.epoch)

    def notify(self, effect: Effect) -> None:
        """Pass an effect to the listener. Only the coordinator calls this."""
        if isinstance(effect, Fence):
            self._listener.on_fenced(_error_of(effect, self.group))
        elif not self.is_void:
            self.epoch = effect.epoch
            callback = self._listener.on_assign if isinstance(effect, Assign) else self._listener.on_revoke
            callback(effect.epoch, effect.partitions)


class NativeGroupCoordinator(GroupTable[NativeGroup]):
    """All native groups of a broker. Loop thread only.

    Args:
        max_members: the limit of one group.
    """

    type = GroupType.SPARROW
    protocol_type = "sparrow"

    def __init__(self, registry: GroupRegistry, *, max_members: int = 5_000) -> None:
        super().__init__(registry)
        self._max_members = max_members
        self._memberships: dict[tuple[str, str], Membership] = {}
        self._last_epoch = 0
        self._undelivered: deque[tuple[Membership, Effect]] = deque()

    async def load(self) -> None:
        """Do nothing: native members are not kept over a restart."""

    # ── members ───────────────────────────────────────────────────────────────────────────────────

    def join(
        self,
        group: str,
        topics: Iterable[str],
        listener: GroupListener,
        *,
        member_id: str = "",
        client_name: str = "",
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        attached: bool = True,
    ) -> Membership:
        """Add a member, or let one come back that continues with its partitions. The listener is
        called after this has returned.

        Args:
            member_id: "" asks for a new one. A connection that has the id already is fenced and
                replaced.
            session_timeout_ms: how long the member may be detached.
            rebalance_timeout_ms: how long it may take to release partitions.
            attached: the member lives as long as its connection, until `detach`; otherwise it lives
                by `heartbeat`.

        Raises:
            InvalidArgument: a name or timeout out of its limits.
            GroupTypeMismatch: a group of another kind has the name, and has members.
            Overloaded: the group has too many members.
        """
        _check_name("group", group)
        _check_timeout("session", session_timeout_ms)
        _check_timeout("rebalance", rebalance_timeout_ms)
        member_id = member_id or str(uuid7(self._clock.wall_ms()))
        _check_name("member id", member_id)
        self._registry.claim(group, self.type)
        state = self._groups.get(group) or self._new_group(group)
        if len(state.members) >= self._max_members and member_id not in state.members:
            raise Overloaded(f"Group {group!r} has {self._max_members} members already; use another group.")
        effects = state.join(
            member_id,
            topics,
            self._clock.monotonic(),
            session_timeout_s=session_timeout_ms / 1000,
            rebalance_timeout_s=rebalance_timeout_ms / 1000,
            client_name=client_name,
            attached=attached,
        )
        membership = Membership(self, group, member_id, listener, state.epoch)
        self._replace_connection(membership, effects)
        return membership

    def update_subscription(self, group: str, member_id: str, epoch: int, topics: Iterable[str]) -> None:
        """Subscribe a member to other topics.

        Raises:
            UnknownMember, StaleMember
        """
        state = self._group_of(group, member_id)
        self._post(state, state.update_subscription(member_id, epoch, topics, self._clock.monotonic()))

    def heartbeat(self, group: str, member_id: str, epoch: int) -> int:
        """Renew a member's session. Return the member's epoch.

        Raises:
            UnknownMember, StaleMember
        """
        return self._group_of(group, member_id).heartbeat(member_id, epoch, self._clock.monotonic())

    def confirm_revoked(
        self, group: str, member_id: str, epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Confirm that a member has released partitions; they go to their next holders.

        Raises:
            UnknownMember, StaleMember
        """
        state = self._group_of(group, member_id)
        self._post(state, state.confirm_revoked(member_id, epoch, partitions))

    def leave(self, group: str, member_id: str, epoch: int) -> None:
        """Remove a member; its partitions are free at once.

        Raises:
            UnknownMember, StaleMember
        """
        state = self._group_of(group, member_id)
        effects = state.leave(member_id, epoch, self._clock.monotonic())
        self._void(group, member_id)
        self._post(state, effects)

    def detach(self, group: str, member_id: str, epoch: int) -> None:
        """Note that a member's connection is lost; the member stays until its session ends. Unknown
        or replaced members are ignored.
        """
        state = self._groups.get(group)
        membership = self._memberships.get((group, member_id))
        if state is None or membership is None or epoch < state.members[member_id].joined_epoch:
            return
        state.detach(member_id, epoch, self._clock.monotonic())
        self._void(group, member_id)

    # ── called by the registry ────────────────────────────────────────────────────────────────────

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, member_id: str, epoch: int
    ) -> None:
        """Commit offsets of a member, durably. Raises what `GroupRegistry.commit` raises."""
        if group not in self._groups:
            raise unknown_member(group, member_id)
        await self._registry.commit(group, offsets, Committer(member_id, epoch))

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[TopicPartition]) -> None:
        """Raise an error unless a member commits partitions that it holds.

        Raises:
            UnknownMember, StaleMember: the member is out, or does not hold a partition.
            GroupNotEmpty: the committer is no member, but the group has members.
        """
        if committer.is_no_member:
            self._registry.require_empty(group, "commit offsets without being a member")
        else:
            self._groups[group].check_commit(committer.member_id, committer.epoch, partitions)

    def describe(self, group: str) -> GroupDescription:
        state = self._groups[group]
        members = [_describe(state.members[member_id]) for member_id in sorted(state.members)]
        return GroupDescription(group, state.state, state.epoch, members, type=self.type)

    def subscribed(self, group: str) -> Collection[str] | None:
        return {topic for member in self._groups[group].members.values() for topic in member.topics}

    def drop(self, group: str) -> Sequence[Write]:
        """Forget the group; the meta store has no entries of it."""
        self._last_epoch = max(self._last_epoch, self._groups.pop(group).epoch)
        return ()

    # ── topics and time ───────────────────────────────────────────────────────────────────────────

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        now = self._clock.monotonic()
        for state in self._groups.values():
            self._post(state, state.topics_changed(partition_counts.keys(), now))

    async def tick(self) -> None:
        """Fence members whose session or time to release is over."""
        now = self._clock.monotonic()
        for state in list(self._groups.values()):
            self._post(state, state.expire(now))
            self._drop_unused(state.name)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _new_group(self, name: str) -> NativeGroup:
        self._last_epoch = max(self._last_epoch, self._clock.wall_ms() // 1000 - _EPOCH_ORIGIN_S)
        group = NativeGroup(name, self._registry.partition_counts, self._last_epoch)
        self._groups[name] = group
        return group

    def _replace_connection(self, membership: Membership, effects: list[Effect]) -> None:
        """Fence the member's former connection, if any, and send the effects to the new one."""
        key = (membership.group, membership.member_id)
        before = self._memberships.get(key)
        if before is not None:
            self._void(*key)
            self._send(before, Fence(membership.member_id, FenceReason.TAKEN_OVER))
        self._memberships[key] = membership
        self._registry.has_members(membership.group, self.type)
        self._post(self._groups[membership.group], effects)

    def _post(self, state: NativeGroup, effects: Iterable[Effect]) -> None:
        for effect in effects:
            membership = self._memberships.get((state.name, effect.member_id))
            if isinstance(effect, Fence):
                self._void(state.name, effect.member_id)
            if membership is not None:
                self._send(membership, effect)

    def _send(self, membership: Membership, effect: Effect) -> None:
        if not self._undelivered:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._undelivered.append((membership, effect))

    def _deliver(self) -> None:
        undelivered, self._undelivered = self._undelivered, deque()
        for membership, effect in undelivered:
            try:
                membership.notify(effect)
            except Exception:  # a bug in one frontend must not stop the others
                log.exception("a member of group %s could not be notified of %r", membership.group, effect)

    def _void(self, group: str, member_id: str) -> None:
        membership = self._memberships.pop((group, member_id), None)
        if membership is not None:
            membership.is_void = True

    def _group_of(self, group: str, member_id: str) -> NativeGroup:
        state = self._groups.get(group)
        if state is None:
            raise unknown_member(group, member_id)
        return state

    def _drop_unused(self, name: str) -> None:
        """Drop a group without members; only its offsets remain."""
        state = self._groups.get(name)
        if state is not None and not state.members:
            self.drop(name)
            self._registry.became_empty(name, self.type)


def _error_of(fence: Fence, group: str) -> SparrowError:
    kind: Callable[[str], SparrowError] = (
        UnknownMember if fence.reason is FenceReason.SESSION_OVER else StaleMember
    )
    return kind(f"Member {fence.member_id} of group {group!r} was removed: {fence.reason.value}. Join again.")


def _describe(member: NativeMember) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_name,
        sorted(member.topics),
        member.epoch,
        member.session_ends_at is None,
        [*member.held()],
        [*member.releasing()],
    )


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise InvalidArgument(
            f"{name[:40]!r} is no {what}: it must have 1 to {MAX_NAME_CHARACTERS} printable characters."
        )


def _check_timeout(what: str, timeout_ms: int) -> None:
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidArgument(
            f"A {what} timeout of {timeout_ms} ms is not between 1 and {MAX_TIMEOUT_MS} ms."
        )
