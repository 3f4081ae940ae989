"""The coordinator of classic groups: runs the pure groups (module `group`) with a loop, a clock and
a store.

A waiting request is a future, the ticket of the state machine. A connection that is lost while it
waits only cancels that future; it does not leave the group: the member lives until its session
ends. The end of a rebalance is a timer of the loop; `tick` looks at the sessions.

A group is written when a rebalance completes, before its members receive their assignment. So the
broker knows after a restart every generation that a member may know, and members continue with a
heartbeat.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import Struct

from sparrow.base.errors import (
    GroupNotEmpty,
    InvalidGroupId,
    InvalidSessionTimeout,
    SparrowError,
    UnknownGroup,
    UnknownMember,
)
from sparrow.broker.groups.classic.description import ClassicDescription, ClassicMemberDescription
from sparrow.broker.groups.classic.group import ClassicGroup, ClassicLimits, Respond, Store
from sparrow.broker.groups.classic.persistence import KIND, entry_of, group_of
from sparrow.broker.groups.classic.protocol import JoinResponse, SyncResponse
from sparrow.broker.groups.consumer.protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    subscribed_topics,
)
from sparrow.broker.groups.coordinator import GROUPS_PER_YIELD, ClassicMembers
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.offsets import encode_key
from sparrow.broker.groups.table import GroupTable
from sparrow.meta.checks import MAX_NAME_BYTES
from sparrow.meta.store import Delete
from sparrow.model.groups import GroupDescription, GroupListing, MemberDescription

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from sparrow.broker.groups.classic.group import Effect, StoreAssignment
    from sparrow.broker.groups.classic.member import ClassicMember
    from sparrow.broker.groups.classic.protocol import JoinRequest, Leaver, SyncRequest
    from sparrow.broker.groups.offsets import Committer
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.meta.store import Put, Write
    from sparrow.records.topic_partition import TopicPartition

Result = TypeVar("Result", JoinResponse, SyncResponse)
_SHORT_ENOUGH: Final = 255
"""A name of up to this many characters can be stored, whatever the characters are."""
_LONGEST_PARTITION: Final = ("x" * 249, 0x7FFF_FFFF)
"""A topic and a partition with the longest possible names."""


class SessionLimits(Struct, frozen=True):
    """The range of session timeouts that members may choose (Kafka: group.min and
    group.max.session.timeout.ms).
    """

    min_ms: int = 6_000
    max_ms: int = 1_800_000


class ClassicGroupCoordinator(GroupTable[ClassicGroup]):
    """All classic groups of a broker. Loop thread only."""

    type = GroupType.CLASSIC

    def __init__(
        self,
        registry: GroupRegistry,
        limits: ClassicLimits | None = None,
        sessions: SessionLimits | None = None,
    ) -> None:
        super().__init__(registry)
        self._limits = limits or ClassicLimits()
        self._sessions = sessions or SessionLimits()
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def load(self) -> None:
        """Read the groups of earlier runs. Sessions of their members begin now.

        Raises:
            DirectoryUnreadable: an entry is no group.
        """
        now = self._clock.monotonic()
        for entry in await self._registry.meta.scan(KIND):
            group = group_of(entry, self._limits, now)
            self._groups[group.name] = group
            self._after(group)

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────

    async def join(self, request: JoinRequest) -> JoinResponse:
        """Add a member, or let one join again. Return when the rebalance has all its members.

        Raises:
            InvalidGroupId, InvalidSessionTimeout, GroupFull, InconsistentGroupProtocol,
            UnknownMember, FencedInstance
            GroupTypeMismatch: a group of another kind has the name, and has members.
            MemberIdRequired: join again with the id in the error.
            RebalanceInProgress: join again.
        """
        _check_group_id(request.group)
        if not self._sessions.min_ms <= request.session_timeout_ms <= self._sessions.max_ms:
            raise InvalidSessionTimeout(
                f"A session timeout of {request.session_timeout_ms} ms is not between "
                f"{self._sessions.min_ms} and "
                f"{self._sessions.max_ms} ms, which this broker allows."
            )
        foreign = self._foreign_owner(request.group)
        if foreign is not None:
            return await foreign.classic_join(request)
        group = self._groups.get(request.group) or self._new_group(request)
        ticket: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
        self._apply(group, group.join(request, ticket, self._clock.monotonic(), str(uuid.uuid4())))
        return await ticket

    async def sync(self, request: SyncRequest) -> SyncResponse:
        """Return the member's assignment when the leader has sent it and it is durable.

        Raises:
            InvalidGroupId, UnknownMember, FencedInstance, StaleMember, InconsistentGroupProtocol,
            RebalanceInProgress
            DiskFull, StorageFailed: the assignment could not be stored; join again.
        """
        _check_group_id(request.group)
        foreign = self._foreign_owner(request.group)
        if foreign is not None:
            return await foreign.classic_sync(request)
        group = self._group_of(request.group, request.member_id)
        ticket: asyncio.Future[SyncResponse] = asyncio.get_running_loop().create_future()
        self._apply(group, group.sync(request, ticket, self._clock.monotonic()))
        return await ticket

    def heartbeat(self, group: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Renew a member's session.

        Raises:
            InvalidGroupId, UnknownMember, FencedInstance, StaleMember
            RebalanceInProgress: join again.
        """
        _check_group_id(group)
        foreign = self._foreign_owner(group)
        if foreign is not None:
            foreign.classic_heartbeat(group, member_id, generation, instance_id)
            return
        self._group_of(group, member_id).heartbeat(
            member_id, generation, instance_id, self._clock.monotonic()
        )

    def leave(self, group: str, leavers: Sequence[Leaver]) -> list[SparrowError | None]:
        """Remove members. Return an error or None for each.

        Raises:
            InvalidGroupId
        """
        _check_group_id(group)
        foreign = self._foreign_owner(group)
        if foreign is not None:
            return foreign.classic_leave(group, leavers)
        state = self._groups.get(group)
        if state is None:
            return [_unknown_member(group, leaver.member_id) for leaver in leavers]
        results, effects = state.leave(leavers, self._clock.monotonic())
        self._apply(state, effects)
        return results

    def describe_classic(self, group: str) -> ClassicDescription:
        """Return a group as Kafka describes it; one that only has offsets is empty.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
        """
        state = self._groups.get(group)
        if state is not None:
            return _describe_classic(state)
        kind = self._registry.type_of(group)
        if kind is GroupType.CLASSIC:
            return ClassicDescription(group, GroupState.EMPTY, "", "", ())
        raise UnknownGroup(
            f"Group {group} not found." if kind is None else f"Group {group} is not a classic group."
        )

    # ── conversion ────────────────────────────────────────────────────────────────────────────────

    def release(self, group: str) -> ClassicGroup | None:
        """Release a group with its members to another kind. Return None if there is none.

        Its entry stays until the new owner deletes it (`forget`), in one batch with its own.
        """
        state = self._groups.get(group)
        if state is not None:
            self._apply(state, state.interrupt())
            self._forget(group)
        return state

    @staticmethod
    def forget(group: str) -> Delete:
        """Return the write that deletes the entry of a released group."""
        return Delete(KIND, group)

    def adopt(self, group: ClassicGroup) -> None:
        """Take a group over from another kind; its members join again.

        Its entry is written when they have joined; until then a restart finds what the former owner
        has written.
        """
        self._groups[group.name] = group
        self._apply(group, group.begin_rebalance(self._clock.monotonic()))

    # ── called by the registry ────────────────────────────────────────────────────────────────────

    def info(self, group: str) -> GroupListing:
        state = self._groups[group]
        return GroupListing(group, state.state, len(state.members), self.type, state.protocol_type)

    def describe(self, group: str) -> GroupDescription:
        state = self._groups[group]
        members = [_describe(state, state.members[m]) for m in sorted(state.members)]
        return GroupDescription(group, state.state, state.generation, members, type=self.type)

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """Raise an error unless a member may commit. Members may commit any partition: only they
        know who reads what.

        Raises:
            UnknownMember, FencedInstance, StaleMember, RebalanceInProgress
        """
        self._groups[group].check_commit(
            committer.member_id,
            committer.epoch,
            committer.instance_id,
            self._clock.monotonic(),
            is_transactional=committer.is_transactional,
        )

    def subscribed(self, group: str) -> Collection[str] | None:
        state = self._groups[group]
        if state.protocol_type != PROTOCOL_TYPE:
            raise GroupNotEmpty(
                f"Group {group!r} has {len(state.members)} members of type "
                f"{state.protocol_type!r}, which do not say what "
                "they read; stop them first."
            )
        return state.subscribed

    def drop(self, group: str) -> Sequence[Write]:
        self._forget(group)
        return [Delete(KIND, group)]

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Do nothing: the leader watches the topics."""

    async def tick(self) -> None:
        """Remove members whose session is over."""
        now = self._clock.monotonic()
        for number, group in enumerate(list(self._groups.values()), 1):
            # it may have gone while other tasks ran
            if self._groups.get(group.name) is group:
                self._apply(group, group.expire(now))
            if number % GROUPS_PER_YIELD == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Cancel all timers and reject waiting requests."""
        self._is_closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _new_group(self, request: JoinRequest) -> ClassicGroup:
        if request.member_id:
            raise _unknown_member(request.group, request.member_id)
        self._registry.claim(request.group, self.type)
        group = ClassicGroup(request.group, self._limits)
        self._groups[request.group] = group
        return group

    def _foreign_owner(self, group: str) -> ClassicMembers | None:
        """Return the coordinator of another kind that serves members of the classic protocol in
        this group, or None.
        """
        if group in self._groups:
            return None
        owner = self._registry.owner(group)
        if owner is None or not owner.member_count(group):
            return None
        coordinator: object = owner
        return coordinator if isinstance(coordinator, ClassicMembers) else None

    def _group_of(self, group: str, member_id: str) -> ClassicGroup:
        state = self._groups.get(group)
        if state is None:
            raise _unknown_member(group, member_id)
        return state

    def _apply(self, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                _settle(effect)
            elif isinstance(effect, Store):
                self._spawn(self._store(entry_of(group), effect.responses))
            else:
                self._spawn(self._store_assignment(group, effect, entry_of(group, effect.assignments)))
        self._after(group)

    def _after(self, group: ClassicGroup) -> None:
        """Note for the retention whether there are members, set the timer, and forget a group that
        was never completed.
        """
        if self._groups.get(group.name) is not group:
            return
        if group.is_unused:
            self._forget(group.name)
            return
        self._note_population(group)
        self._arm(group)

    def _arm(self, group: ClassicGroup) -> None:
        """Call `_on_deadline` when the group has to continue its rebalance, or a session may be
        over.

        A heartbeat does not move the timer: `_on_deadline` then finds nothing and sets it again.
        So sessions end on time, which the deletion of a group of static members waits for, with one
        timer for each group.
        """
        deadlines = (group.next_deadline, group.next_session_end)
        deadline = min((at for at in deadlines if at is not None), default=None)
        armed = self._timers.get(group.name)
        if armed is not None and armed[0] == deadline:
            return
        self._disarm(group.name)
        if deadline is not None and not self._is_closed:
            delay_s = max(0.0, deadline - self._clock.monotonic())
            timer = asyncio.get_running_loop().call_later(delay_s, self._on_deadline, group)
            self._timers[group.name] = (deadline, timer)

    def _disarm(self, group: str) -> None:
        armed = self._timers.pop(group, None)
        if armed is not None:
            armed[1].cancel()

    def _on_deadline(self, group: ClassicGroup) -> None:
        if self._groups.get(group.name) is group:
            self._disarm(group.name)
            self._apply(group, group.expire(self._clock.monotonic()))

    def _forget(self, group: str) -> None:
        self._groups.pop(group, None)
        self._populated.discard(group)
        self._disarm(group)

    async def _store(self, entry: Put, responses: Iterable[Respond]) -> None:
        error = await self._write(entry)
        for response in responses:
            _settle(response if error is None else Respond(response.ticket, error))

    async def _store_assignment(self, group: ClassicGroup, effect: StoreAssignment, entry: Put) -> None:
        error = await self._write(entry)
        now = self._clock.monotonic()
        if error is None:
            effects = group.assignment_stored(effect.generation, effect.assignments, now)
        else:
            effects = group.assignment_failed(effect.generation, error, now)
        self._apply(group, effects)

    async def _write(self, entry: Put) -> SparrowError | None:
        try:
            await self._registry.meta.write([entry])
        except SparrowError as error:
            return error
        return None

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settle(response: Respond) -> None:
    """Answer a request, unless its connection is gone."""
    ticket = cast("asyncio.Future[JoinResponse | SyncResponse]", response.ticket)
    if ticket.done():
        return
    if isinstance(response.result, SparrowError):
        ticket.set_exception(response.result)
    else:
        ticket.set_result(response.result)


def _check_group_id(group: str) -> None:
    """Raise InvalidGroupId for a name that is empty, or so long that the store could keep nothing
    of the group.
    """
    if not group:
        raise InvalidGroupId("A group must have a name; set group.id.")
    if len(group) > _SHORT_ENOUGH and len(encode_key(group, _LONGEST_PARTITION).encode()) > MAX_NAME_BYTES:
        raise InvalidGroupId(f"The name of group {group[:40]!r}... is too long; set a shorter group.id.")


def _unknown_member(group: str, member_id: str) -> UnknownMember:
    return UnknownMember(f"{member_id!r} is no member of group {group!r} (any more); join again.")


def _describe(group: ClassicGroup, member: ClassicMember) -> MemberDescription:
    topics = subscribed_topics(member.metadata(group.protocol)) or frozenset()
    return MemberDescription(
        member.member_id,
        member.client_id,
        sorted(topics),
        group.generation,
        partitions=[*assigned_partitions(member.assignment)],
        instance_id=member.instance_id,
        client_host=member.client_host,
    )


def _describe_classic(group: ClassicGroup) -> ClassicDescription:
    is_stable = group.state is GroupState.STABLE
    members = tuple(
        ClassicMemberDescription(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.metadata(group.protocol) if is_stable else b"",
            m.assignment if is_stable else b"",
        )
        for m in group.members.values()
    )
    protocol = group.protocol if is_stable else ""
    return ClassicDescription(group.name, group.state, group.protocol_type, protocol, members)
