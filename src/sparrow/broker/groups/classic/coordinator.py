"""The coordinator of classic groups: gives the pure groups (`classic`) a loop, a clock and a store.

A request that has to wait is a future, the ticket of the state machine. A connection that is lost while it waits only cancels that
future: it is not a leave, the member lives until its session ends. The end of a rebalance is a timer of the loop; sessions
are looked at by `tick`.

A group is written when a rebalance completes, before its members hear of their assignment; so after a restart the broker knows every
generation that a member has heard of, and members go on with a heartbeat.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

from sparrow.base.errors import (
    GroupNotEmpty,
    InvalidGroupId,
    InvalidSessionTimeout,
    SparrowError,
    UnknownGroup,
    UnknownMember,
)
from sparrow.broker.groups.classic.facts import KIND, fact_of, group_of
from sparrow.broker.groups.classic.group import Answer, ClassicGroup, ClassicLimits, Store
from sparrow.broker.groups.classic.protocol import JoinAnswer, SyncAnswer
from sparrow.broker.groups.consumer.protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    subscribed_topics,
)
from sparrow.broker.groups.description import (
    GroupDescription,
    GroupInfo,
    GroupState,
    GroupType,
    MemberDescription,
)
from sparrow.broker.groups.family import GROUPS_PER_TURN, ClassicMembers
from sparrow.broker.groups.offsets import encode_key
from sparrow.meta.checks import MAX_NAME_BYTES
from sparrow.meta.store import Delete

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from sparrow.broker.groups.classic.group import Effect, StoreAssignment
    from sparrow.broker.groups.classic.member import ClassicMember
    from sparrow.broker.groups.classic.protocol import JoinRequest, Leaver, SyncRequest
    from sparrow.broker.groups.family import Committer
    from sparrow.broker.groups.groups import Groups
    from sparrow.broker.groups.native.assignor import Partition
    from sparrow.meta.store import Put, Write

Result = TypeVar("Result", JoinAnswer, SyncAnswer)
_SHORT_ENOUGH: Final = 255
"""A name of so many characters can be kept, whatever they are."""
_LONGEST_PLACE: Final = ("x" * 249, 0x7FFF_FFFF)
"""A topic and a partition with the longest names that there are."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Between which session timeouts members may choose (Kafka: group.min and group.max.session.timeout.ms)."""

    min_ms: int = 6_000
    max_ms: int = 1_800_000


@dataclass(frozen=True, slots=True)
class ClassicMemberDescription:
    """A member with the bytes that only members understand; both empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicDescription:
    """A classic group as Kafka describes it. `protocol` is "" unless the group is stable."""

    group: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[ClassicMemberDescription, ...]


class ClassicGroups:
    """All classic groups of a broker. Loop thread only."""

    type = GroupType.CLASSIC

    def __init__(
        self, roof: Groups, limits: ClassicLimits | None = None, sessions: SessionLimits | None = None
    ) -> None:
        self._roof = roof
        self._clock = roof.clock
        self._limits = limits or ClassicLimits()
        self._sessions = sessions or SessionLimits()
        self._groups: dict[str, ClassicGroup] = {}
        self._populated: set[str] = set()
        """Groups of which the roof knows that they have members."""
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def load(self) -> None:
        """Read the groups of earlier runs. Sessions of their members begin now.

        Raises:
            DirectoryUnreadable: a fact is no group.
        """
        now = self._clock.monotonic()
        for fact in await self._roof.meta.scan(KIND):
            group = group_of(fact, self._limits, now)
            self._groups[group.name] = group
            self._after(group)

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Become a member, or join again; returns when the rebalance has all its members.

        Raises:
            InvalidGroupId, InvalidSessionTimeout, GroupFull, InconsistentGroupProtocol, UnknownMember, FencedInstance
            GroupTypeMismatch: a group of another kind has the name, and has members.
            MemberIdRequired: join again with the id in the error.
            RebalanceInProgress: join again.
        """
        _check_group_id(request.group)
        if not self._sessions.min_ms <= request.session_timeout_ms <= self._sessions.max_ms:
            raise InvalidSessionTimeout(
                f"A session timeout of {request.session_timeout_ms} ms is not between {self._sessions.min_ms} and "
                f"{self._sessions.max_ms} ms, which this broker allows."
            )
        elsewhere = self._elsewhere(request.group)
        if elsewhere is not None:
            return await elsewhere.classic_join(request)
        group = self._groups.get(request.group) or self._new_group(request)
        ticket: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.join(request, ticket, self._clock.monotonic(), str(uuid.uuid4())))
        return await ticket

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """One's assignment, when the leader has brought it and it is durable.

        Raises:
            InvalidGroupId, UnknownMember, FencedInstance, StaleMember, InconsistentGroupProtocol, RebalanceInProgress
            DiskFull, StorageFailed: the assignment could not be kept; join again.
        """
        _check_group_id(request.group)
        elsewhere = self._elsewhere(request.group)
        if elsewhere is not None:
            return await elsewhere.classic_sync(request)
        group = self._group_of(request.group, request.member_id)
        ticket: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.sync(request, ticket, self._clock.monotonic()))
        return await ticket

    def heartbeat(self, group: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """A sign of life.

        Raises:
            InvalidGroupId, UnknownMember, FencedInstance, StaleMember
            RebalanceInProgress: join again.
        """
        _check_group_id(group)
        elsewhere = self._elsewhere(group)
        if elsewhere is not None:
            elsewhere.classic_heartbeat(group, member_id, generation, instance_id)
            return
        self._group_of(group, member_id).heartbeat(
            member_id, generation, instance_id, self._clock.monotonic()
        )

    def leave(self, group: str, leavers: Sequence[Leaver]) -> list[SparrowError | None]:
        """Members go for good; an error or None for each.

        Raises:
            InvalidGroupId
        """
        _check_group_id(group)
        elsewhere = self._elsewhere(group)
        if elsewhere is not None:
            return elsewhere.classic_leave(group, leavers)
        state = self._groups.get(group)
        if state is None:
            return [_unknown_member(group, leaver.member_id) for leaver in leavers]
        results, effects = state.leave(leavers, self._clock.monotonic())
        self._carry_out(state, effects)
        return results

    def describe_classic(self, group: str) -> ClassicDescription:
        """A group as Kafka describes it; one that only has offsets is empty.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
        """
        state = self._groups.get(group)
        if state is not None:
            return _describe_classic(state)
        kind = self._roof.type_of(group)
        if kind is GroupType.CLASSIC:
            return ClassicDescription(group, GroupState.EMPTY, "", "", ())
        raise UnknownGroup(
            f"Group {group} not found." if kind is None else f"Group {group} is not a classic group."
        )

    # ── conversion ────────────────────────────────────────────────────────────────────────────────

    def release(self, group: str) -> ClassicGroup | None:
        """Give a group away to another kind, with its members; None: there is none.

        Its fact stays until the new owner deletes it (`forget`), in one batch with its own.
        """
        state = self._groups.get(group)
        if state is not None:
            self._carry_out(state, state.interrupt())
            self._forget(group)
        return state

    @staticmethod
    def forget(group: str) -> Delete:
        """What deletes the fact of a group that was released."""
        return Delete(KIND, group)

    def adopt(self, group: ClassicGroup) -> None:
        """Take a group over from another kind; its members join again.

        Its fact is written when they have; until then a restart finds what the former owner has written.
        """
        self._groups[group.name] = group
        self._carry_out(group, group.begin_rebalance(self._clock.monotonic()))

    # ── what the roof asks ────────────────────────────────────────────────────────────────────────

    def names(self) -> Collection[str]:
        return self._groups.keys()

    def owns(self, group: str) -> bool:
        return group in self._groups

    def member_count(self, group: str) -> int:
        return len(self._groups[group].members)

    def info(self, group: str) -> GroupInfo:
        state = self._groups[group]
        return GroupInfo(group, state.state, len(state.members), self.type, state.protocol_type)

    def describe(self, group: str) -> GroupDescription:
        state = self._groups[group]
        members = tuple(_describe(state, state.members[m]) for m in sorted(state.members))
        return GroupDescription(group, state.state, state.generation, members, self.type)

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[Partition]) -> None:  # noqa: ARG002
        """Members commit whatever they want: only they know who reads what.

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

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Whoever may see the group may see its offsets."""

    def subscribed(self, group: str) -> Collection[str] | None:
        state = self._groups[group]
        if state.protocol_type != PROTOCOL_TYPE:
            raise GroupNotEmpty(
                f"Group {group!r} has {len(state.members)} members of type {state.protocol_type!r}, which do not say what "
                "they read; stop them first."
            )
        return state.subscribed

    def drop(self, group: str) -> Sequence[Write]:
        self._forget(group)
        return [Delete(KIND, group)]

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        """The leader looks for itself."""

    async def tick(self) -> None:
        """Remove members whose session is over."""
        now = self._clock.monotonic()
        for number, group in enumerate(list(self._groups.values()), 1):
            if self._groups.get(group.name) is group:  # it may have gone while others had their turn
                self._carry_out(group, group.expire(now))
            if number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """No timer fires any more; requests that wait are given up."""
        self._is_closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _new_group(self, request: JoinRequest) -> ClassicGroup:
        if request.member_id:
            raise _unknown_member(request.group, request.member_id)
        self._roof.claim(request.group, self.type)
        group = ClassicGroup(request.group, self._limits)
        self._groups[request.group] = group
        return group

    def _elsewhere(self, group: str) -> ClassicMembers | None:
        """The family of another kind that serves members of the classic protocol in this group."""
        if group in self._groups:
            return None
        owner = self._roof.owner(group)
        if owner is None or not owner.member_count(group):
            return None
        family: object = owner
        return family if isinstance(family, ClassicMembers) else None

    def _group_of(self, group: str, member_id: str) -> ClassicGroup:
        state = self._groups.get(group)
        if state is None:
            raise _unknown_member(group, member_id)
        return state

    def _carry_out(self, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                _settle(effect)
            elif isinstance(effect, Store):
                self._spawn(self._store(fact_of(group), effect.answers))
            else:
                self._spawn(self._store_assignment(group, effect, fact_of(group, effect.assignments)))
        self._after(group)

    def _after(self, group: ClassicGroup) -> None:
        """Note for the retention whether there are members, arm the timer, forget a group that never came to be."""
        if self._groups.get(group.name) is not group:
            return
        if group.is_unused:
            self._forget(group.name)
            return
        if bool(group.members) != (group.name in self._populated):
            self._note_population(group)
        self._arm(group)

    def _note_population(self, group: ClassicGroup) -> None:
        if group.members:
            self._populated.add(group.name)
            self._roof.has_members(group.name, self.type)
        else:
            self._populated.discard(group.name)
            self._roof.became_empty(group.name, self.type)

    def _arm(self, group: ClassicGroup) -> None:
        """Have `_deadline_came` called when the group has to look at its rebalance, or a session may be over.

        A heartbeat does not move the timer: it finds nothing then, and is armed again. So sessions end on time (who deletes a group
        of static members waits for just that), at one timer for each group.
        """
        deadlines = (group.next_deadline, group.next_session_end)
        deadline = min((at for at in deadlines if at is not None), default=None)
        armed = self._timers.get(group.name)
        if armed is not None and armed[0] == deadline:
            return
        self._disarm(group.name)
        if deadline is not None and not self._is_closed:
            delay_s = max(0.0, deadline - self._clock.monotonic())
            timer = asyncio.get_running_loop().call_later(delay_s, self._deadline_came, group)
            self._timers[group.name] = (deadline, timer)

    def _disarm(self, group: str) -> None:
        armed = self._timers.pop(group, None)
        if armed is not None:
            armed[1].cancel()

    def _deadline_came(self, group: ClassicGroup) -> None:
        if self._groups.get(group.name) is group:
            self._disarm(group.name)
            self._carry_out(group, group.expire(self._clock.monotonic()))

    def _forget(self, group: str) -> None:
        self._groups.pop(group, None)
        self._populated.discard(group)
        self._disarm(group)

    async def _store(self, fact: Put, answers: Iterable[Answer]) -> None:
        error = await self._write(fact)
        for answer in answers:
            _settle(answer if error is None else Answer(answer.ticket, error))

    async def _store_assignment(self, group: ClassicGroup, effect: StoreAssignment, fact: Put) -> None:
        error = await self._write(fact)
        now = self._clock.monotonic()
        if error is None:
            effects = group.assignment_stored(effect.generation, effect.assignments, now)
        else:
            effects = group.assignment_failed(effect.generation, error, now)
        self._carry_out(group, effects)

    async def _write(self, fact: Put) -> SparrowError | None:
        try:
            await self._roof.meta.write([fact])
        except SparrowError as error:
            return error
        return None

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settle(answer: Answer) -> None:
    """Answer a request, unless its connection is gone."""
    ticket = cast("asyncio.Future[JoinAnswer | SyncAnswer]", answer.ticket)
    if ticket.done():
        return
    if isinstance(answer.result, SparrowError):
        ticket.set_exception(answer.result)
    else:
        ticket.set_result(answer.result)


def _check_group_id(group: str) -> None:
    """Raise InvalidGroupId for a name that is empty, or so long that the store could keep nothing of the group."""
    if not group:
        raise InvalidGroupId("A group must have a name; set group.id.")
    if len(group) > _SHORT_ENOUGH and len(encode_key(group, _LONGEST_PLACE).encode()) > MAX_NAME_BYTES:
        raise InvalidGroupId(f"The name of group {group[:40]!r}... is too long; set a shorter group.id.")


def _unknown_member(group: str, member_id: str) -> UnknownMember:
    return UnknownMember(f"{member_id!r} is no member of group {group!r} (any more); join again.")


def _describe(group: ClassicGroup, member: ClassicMember) -> MemberDescription:
    topics = subscribed_topics(member.metadata(group.protocol)) or frozenset()
    return MemberDescription(
        member.member_id,
        member.client_id,
        tuple(sorted(topics)),
        group.generation,
        is_attached=True,
        partitions=assigned_partitions(member.assignment),
        releasing=(),
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
