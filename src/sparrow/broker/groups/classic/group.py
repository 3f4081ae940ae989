"""The state of one classic group (Kafka's first group protocol). Pure: time comes in, effects go out.

    EMPTY ──join──▶ PREPARING_REBALANCE ──all have joined, or time is up──▶ COMPLETING_REBALANCE ──leader's sync is stored──▶ STABLE
                            ▲                                                        │                                      │
                            └──────── join, leave, session over, sync time is up ────┴──────────────────────────────────────┘
    PREPARING_REBALANCE ──nobody is left──▶ EMPTY

A rebalance: members join and wait; when all have, they hear of the new generation, and the leader (the first member)
of all members. It decides who reads what and brings that with its SyncGroup; the others wait for it in theirs.

* Requests that wait are *tickets*: `join` and `sync` take one, an `Answer` effect names it.
* `Store` asks for the group to be written; its answers are given when it is durable, as the caller reports with
  `assignment_stored` or `assignment_failed` where it is the leader's assignment, else by giving the effect's answers.
* A first rebalance waits a little for more members (`initial_delay_ms`), again as long as some come. Kafka waits 3 s, for
  deployments that start slowly; here it is short, because a rebalance of few members is cheap and a consumer that waits is not.
* New dynamic members (JoinGroup 4) are sent away with an id first; until they come back with it they are *pending*, and a rebalance
  waits for them (KIP-394).
* Static members (KIP-345) keep their place while they are away, until their session ends. When one comes back without
  its id it replaces itself under a new id: nobody rebalances while its choice of protocol stays the same.
* A member that waits for an answer is alive; all others need a heartbeat within their session timeout. Those that do not
  join in time (the longest rebalance timeout of all members), or join but never sync, are removed.

Times are monotonic seconds. Not thread-safe.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import (
    FencedInstance,
    GroupFull,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    SparrowError,
    StaleMember,
    UnknownMember,
)
from sparrow.broker.groups.classic.member import ClassicMember, elect_protocol
from sparrow.broker.groups.classic.protocol import JoinAnswer, JoinedMember, SyncAnswer
from sparrow.broker.groups.consumer.protocol import PROTOCOL_TYPE, subscribed_topics
from sparrow.broker.groups.description import GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.broker.groups.classic.protocol import JoinRequest, Leaver, SyncRequest

_EMPTY: Final = GroupState.EMPTY
_PREPARING: Final = GroupState.PREPARING_REBALANCE
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE
_STABLE: Final = GroupState.STABLE


@dataclass(frozen=True, slots=True)
class ClassicLimits:
    """What a broker allows classic groups. Kafka's names in brackets."""

    initial_delay_ms: int = 100
    """How long a first rebalance waits for more members (group.initial.rebalance.delay.ms)."""
    max_members: int = 10_000
    """(group.max.size)"""
    new_member_timeout_ms: int = 300_000
    """How long a rebalance may keep a new member waiting before it is forgotten."""


# ── effects ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Answer:
    """The request behind a ticket is answered."""

    ticket: object
    result: JoinAnswer | SyncAnswer | SparrowError


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group as it is now; then give the answers (or, to their tickets, the error)."""

    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """Write the group with these assignments; then report `assignment_stored` or `assignment_failed`."""

    generation: int
    assignments: Mapping[str, bytes]


Effect = Answer | Store | StoreAssignment


class ClassicGroup:
    """One classic group. Verbs that change it return effects, in the order in which they happened."""

    def __init__(self, name: str, limits: ClassicLimits | None = None) -> None:
        self.name = name
        self.state = _EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        """Of the current generation; "" before the first and while empty."""
        self.leader = ""
        self.members: dict[str, ClassicMember] = {}
        self.subscribed: frozenset[str] | None = frozenset()
        """Topics that consumers of this generation read; None: not known."""
        self._limits = limits or ClassicLimits()
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        """How many members know each protocol."""
        self._pending: dict[str, float] = {}
        """Ids handed out to members that have not come back with them, and until when that may take."""
        self._unsynced: set[str] = set()
        """Members of this generation whose SyncGroup has not come."""
        self._join_by: float | None = None
        self._sync_by: float | None = None
        self._initial_until: float | None = None
        """While a first rebalance waits for more members: until when it may."""
        self._has_new_members = False
        self._out: list[Effect] = []

    @classmethod
    def restored(
        cls,
        name: str,
        members: Iterable[ClassicMember],
        now: float,
        *,
        generation: int,
        protocol_type: str,
        protocol: str,
        leader: str,
        limits: ClassicLimits | None = None,
    ) -> ClassicGroup:
        """A group as a store or another kind of group knew it; stable, unless it has no members. Sessions begin now."""
        group = cls(name, limits)
        group.generation = generation
        group.protocol_type, group.protocol, group.leader = protocol_type, protocol, leader
        for member in members:
            group._insert(member)
            member.renew_session(now)
        if group.members:
            group.state = _STABLE
            if group.leader not in group.members:
                group.leader = next(iter(group.members))
            group.subscribed = group._subscribed_topics()
        return group

    @property
    def is_unused(self) -> bool:
        """Whether nobody has ever completed a rebalance here, and nobody is about to."""
        return not (self.generation or self.members or self._pending)

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has to look at the rebalance again."""
        return min((at for at in (self._join_by, self._sync_by) if at is not None), default=None)

    @property
    def next_session_end(self) -> float | None:
        """When a session may be over. It is later if the member is heard of until then."""
        return min(
            (at for each in self.members.values() if (at := each.overdue_at) is not None), default=None
        )

    # ── joining ───────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, ticket: object, now: float, unique: str) -> list[Effect]:
        """A JoinGroup; its answer is an effect, now or later.

        Args:
            unique: what makes the id of a new member unique.

        Answered with:
            GroupFull, InconsistentGroupProtocol, UnknownMember, FencedInstance
            MemberIdRequired: join again with the id in the error.
            RebalanceInProgress: the same member joined again meanwhile, elsewhere.
        """
        try:
            self._check_room(request.member_id)
            self._check_protocols(request)
            if request.member_id:
                self._join_again(request, ticket, now)
            else:
                self._join_new(request, ticket, now, unique)
        except GroupFull as error:
            self._answer(ticket, error)
            before = len(self.members), len(self._pending)
            self._pending.pop(request.member_id, None)
            self._after_loss(before, now)  # it has its answer: a rebalance need not wait for it
        except SparrowError as error:
            self._answer(ticket, error)
        return self._drain()

    def _join_new(self, request: JoinRequest, ticket: object, now: float, unique: str) -> None:
        member_id = f"{request.instance_id or request.client_id}-{unique}"
        if request.instance_id is not None:
            former = self._instances.get(request.instance_id)
            if former is not None:
                self._replace_static(former, member_id, request, ticket, now)
                return
        elif request.requires_member_id:
            if len(self._pending) >= self._limits.max_members:
                raise self._full()
            self._pending[member_id] = now + request.session_timeout_ms / 1000
            raise MemberIdRequired(
                f"Group {self.name!r} has a member id for you; join again with it.", member_id
            )
        self._add(member_id, request, ticket, now)

    def _join_again(self, request: JoinRequest, ticket: object, now: float) -> None:
        if request.member_id in self._pending:
            del self._pending[request.member_id]
            self._add(request.member_id, request, ticket, now)
            return
        member = self.member(request.member_id, request.instance_id)
        if self._needs_rebalance(member, request):
            self._wait(member, request, ticket)
            self._rebalance_or_complete(now)
        else:
            # Its first answer was lost, or it asks whether anything is new: nothing is.
            member.renew_session(now)
            self._answer(ticket, self._joined(member))

    def _needs_rebalance(self, member: ClassicMember, request: JoinRequest) -> bool:
        if self.state is _PREPARING:
            return True
        # A leader joins again to have partitions assigned anew, for instance because topics changed.
        is_leader_of_stable = self.state is _STABLE and member.member_id == self.leader
        return is_leader_of_stable or member.protocols != request.protocols

    def _check_room(self, member_id: str) -> None:
        if len(self.members) < self._limits.max_members:
            return
        if self.state is _PREPARING:
            member = self.members.get(member_id)
            is_counted = member is not None and member.join_ticket is not None
            taken = sum(m.join_ticket is not None for m in self.members.values())
        else:
            is_counted = member_id in self.members or self.state is _EMPTY
            taken = len(self.members)
        if not is_counted and taken >= self._limits.max_members:
            raise self._full()

    def _check_protocols(self, request: JoinRequest) -> None:
        offered = {name for name, _ in request.protocols}
        if not self.members:
            is_fit = bool(request.protocol_type and offered)
        else:
            known = self._support
            is_common = any(known[name] == len(self.members) for name in offered)
            is_fit = request.protocol_type == self.protocol_type and is_common
        if not is_fit:
            raise InconsistentGroupProtocol(
                f"Group {self.name!r} cannot take a member with protocol type {request.protocol_type!r} and protocols "
                f"{sorted(offered)}: its members have {self.protocol_type or 'a'!r} type and must share a protocol."
            )

    def _add(self, member_id: str, request: JoinRequest, ticket: object, now: float) -> None:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
            join_ticket=ticket,
            session_ends_at=now + self._limits.new_member_timeout_ms / 1000,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self._insert(member)
        self._has_new_members = True
        self._rebalance_or_complete(now)

    def _insert(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        self._support.update(member.protocol_names)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def _withdraw_support(self, member: ClassicMember) -> None:
        for name in member.protocol_names:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def _wait(self, member: ClassicMember, request: JoinRequest, ticket: object) -> None:
        """The member waits for the new generation; an older request of its own, on a lost connection perhaps, is over."""
        if member.join_ticket is not None:
            self._answer(member.join_ticket, self._rebalancing())
        self._withdraw_support(member)
        member.take(request)
        self._support.update(member.protocol_names)
        member.join_ticket = ticket

    def _replace_static(
        self, former_id: str, member_id: str, request: JoinRequest, ticket: object, now: float
    ) -> None:
        """A static member came back and has forgotten its id (KIP-345)."""
        was_leader = self.leader
        member = self._rename(former_id, member_id)
        self._wait(member, request, ticket)
        member.renew_session(now)
        is_unmoved = self.state is _STABLE and self.protocol == elect_protocol(
            self.members.values(), self.members[self.leader]
        )
        if not is_unmoved:
            self._rebalance_or_complete(now)
            return
        member.join_ticket = None
        answer = self._joined(member, skip_assignment=True)
        if not request.can_skip_assignment:
            # An old client must not believe that it leads: it would assign partitions, and nobody would ask for them (KIP-814).
            answer = JoinAnswer(member_id, self.generation, self.protocol_type, self.protocol, was_leader)
        self._out.append(Store((Answer(ticket, answer),)))

    def _rename(self, former_id: str, member_id: str) -> ClassicMember:
        """Give a static member's place to its new id; whoever still speaks with the old one is fenced."""
        member = self.members[former_id]
        fenced = _fenced(self.name, former_id, member.instance_id)
        for waiting in (member.join_ticket, member.sync_ticket):
            if waiting is not None:
                self._answer(waiting, fenced)
        member.join_ticket = member.sync_ticket = None
        member.is_new = False
        self.members = {
            (member_id if key == former_id else key): value for key, value in self.members.items()
        }
        member.member_id = member_id
        assert member.instance_id is not None
        self._instances[member.instance_id] = member_id
        if former_id in self._unsynced:
            self._unsynced.remove(former_id)
            self._unsynced.add(member_id)
        if self.leader == former_id:
            self.leader = member_id
        return member

    # ── the rebalance ─────────────────────────────────────────────────────────────────────────────

    def begin_rebalance(self, now: float) -> list[Effect]:
        """Have all members join again, whatever happens."""
        self._rebalance_or_complete(now)
        return self._drain()

    def _rebalance_or_complete(self, now: float) -> None:
        """Something changed: begin a rebalance, or see whether the one under way is complete."""
        if self.state is not _PREPARING:
            self._prepare(now)
        if self._initial_until is None and self._all_joined():
            self._complete_join(now)

    def _prepare(self, now: float) -> None:
        if self.state is _COMPLETING:
            self._give_up_syncs(self._rebalancing())
        timeout_s = self._rebalance_timeout_s()
        if self.state is _EMPTY:
            delay_s = min(self._limits.initial_delay_ms / 1000, timeout_s)
            self._initial_until = now + timeout_s
            self._join_by = now + delay_s
            self._has_new_members = False
        else:
            self._join_by = now + timeout_s
        self._sync_by = None
        self.state = _PREPARING

    def _all_joined(self) -> bool:
        return not self._pending and all(m.join_ticket is not None for m in self.members.values())

    def _join_time_is_up(self, now: float) -> None:
        until = self._initial_until
        if until is not None and self._has_new_members and now < until:
            self._has_new_members = False
            self._join_by = min(now + self._limits.initial_delay_ms / 1000, until)
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """Those who have joined are the new generation; others are out, except for static members."""
        for member in list(self.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self._remove(member)
        if self.members and not self._elect_joined_leader():
            # Only static members, and all are away: wait until they come or their sessions end.
            self._join_by = now + self._rebalance_timeout_s()
            return
        self._join_by = self._initial_until = None
        self._next_generation()
        if self.members:
            self._announce(now)
        else:
            self._out.append(Store())

    def _next_generation(self) -> None:
        self.generation = self.generation + 1 if self.generation < 0x7FFF_FFFF else 1
        self._unsynced = {m.member_id for m in self.members.values() if m.join_ticket is not None}
        if self.members:
            self.state = _COMPLETING
            self.protocol = elect_protocol(self.members.values(), self.members[self.leader])
        else:
            self.state = _EMPTY
            self.protocol = ""
        self.subscribed = self._subscribed_topics()

    def _announce(self, now: float) -> None:
        for member in self.members.values():
            if member.join_ticket is not None:
                self._answer(member.join_ticket, self._joined(member))
                member.join_ticket = None
                member.is_new = False
                member.renew_session(now)
        self._sync_by = now + self._rebalance_timeout_s()

    def _elect_joined_leader(self) -> bool:
        """The leader stays, if it has joined; otherwise the first who has. Whether anybody has."""
        leader = self.members.get(self.leader)
        if leader is not None and leader.join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.member_id
                return True
        return False

    def _joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinAnswer:
        is_leader = member.member_id == self.leader
        members = (
            tuple(
                JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol))
                for m in self.members.values()
            )
            if is_leader
            else ()
        )
        return JoinAnswer(
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            members,
            skip_assignment and is_leader,
        )

    def _rebalance_timeout_s(self) -> float:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0) / 1000

    def _subscribed_topics(self) -> frozenset[str] | None:
        topics: set[str] = set()
        is_known = self.protocol_type == PROTOCOL_TYPE
        for metadata in {member.metadata(self.protocol) for member in self.members.values()}:
            read = subscribed_topics(metadata) if is_known else None
            if read is None:
                return None
            topics |= read
        return frozenset(topics)

    # ── assignments ───────────────────────────────────────────────────────────────────────────────

    def sync(self, request: SyncRequest, ticket: object, now: float) -> list[Effect]:
        """A SyncGroup; its answer is an effect, now or when the leader's has come.

        Answered with:
            UnknownMember, FencedInstance, StaleMember, InconsistentGroupProtocol, RebalanceInProgress
        """
        try:
            member = self.member(request.member_id, request.instance_id)
            self._check_generation(member, request.generation)
            self._check_chosen(request)
            if self.state is _PREPARING:
                raise self._rebalancing()
            self._unsynced.discard(member.member_id)
            if not self._unsynced:
                self._sync_by = None
            if self.state is _STABLE:
                member.renew_session(now)
                self._answer(ticket, self._assigned(member))
            else:
                self._wait_for_assignment(member, request, ticket)
        except SparrowError as error:
            self._answer(ticket, error)
        return self._drain()

    def _wait_for_assignment(self, member: ClassicMember, request: SyncRequest, ticket: object) -> None:
        if member.sync_ticket is not None:
            self._answer(member.sync_ticket, self._rebalancing())
        member.sync_ticket = ticket
        if member.member_id == self.leader:
            known = {m: request.assignments.get(m, b"") for m in self.members}
            self._out.append(StoreAssignment(self.generation, known))

    def assignment_stored(
        self, generation: int, assignments: Mapping[str, bytes], now: float
    ) -> list[Effect]:
        """The leader's assignment is durable: who waits gets it. A rebalance that has begun meanwhile makes it void."""
        if self.state is _COMPLETING and generation == self.generation:
            self.state = _STABLE
            for member in self.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                if member.sync_ticket is not None:
                    self._answer(member.sync_ticket, self._assigned(member))
                    member.sync_ticket = None
                    member.renew_session(now)
        return self._drain()

    def assignment_failed(self, generation: int, error: SparrowError, now: float) -> list[Effect]:
        """The leader's assignment could not be kept: who waits hears why, and all join again."""
        if self.state is _COMPLETING and generation == self.generation:
            self._give_up_syncs(error)
            self._rebalance_or_complete(now)
        return self._drain()

    def _give_up_syncs(self, error: SparrowError) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self._answer(member.sync_ticket, error)
                member.sync_ticket = None

    def _assigned(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(self.protocol_type, self.protocol, member.assignment)

    def _check_chosen(self, request: SyncRequest) -> None:
        is_wrong_type = request.protocol_type is not None and request.protocol_type != self.protocol_type
        is_wrong_name = request.protocol is not None and request.protocol != self.protocol
        if is_wrong_type or is_wrong_name:
            raise InconsistentGroupProtocol(
                f"Generation {self.generation} of group {self.name!r} has chosen {self.protocol_type!r}/{self.protocol!r}, "
                f"not {request.protocol_type!r}/{request.protocol!r}; join again."
            )

    # ── staying and leaving ───────────────────────────────────────────────────────────────────────

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now: float) -> None:
        """A sign of life.

        Raises:
            UnknownMember, FencedInstance, StaleMember
            RebalanceInProgress: join again; the session was renewed all the same.
        """
        member = self.member(member_id, instance_id)
        self._check_generation(member, generation)
        member.renew_session(now)
        if self.state is _PREPARING:
            raise self._rebalancing()

    def leave(self, leavers: Sequence[Leaver], now: float) -> tuple[list[SparrowError | None], list[Effect]]:
        """Members go for good, or an administrator removes static ones; (an error or None for each, effects)."""
        before = len(self.members), len(self._pending)
        results = [self._leave(leaver) for leaver in leavers]
        self._after_loss(before, now)
        return results, self._drain()

    def _leave(self, leaver: Leaver) -> SparrowError | None:
        if leaver.member_id in self._pending:
            del self._pending[leaver.member_id]
            return None
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            member_id = self._instances.get(leaver.instance_id, "")
        try:
            self._remove(self.member(member_id, leaver.instance_id))
        except SparrowError as error:
            return error
        return None

    def expire(self, now: float) -> list[Effect]:
        """Remove whose time is over; go on with a rebalance that has waited long enough."""
        before = len(self.members), len(self._pending)
        for member_id in [m for m, until in self._pending.items() if until <= now]:
            del self._pending[member_id]
        for member in [m for m in self.members.values() if m.is_overdue(now)]:
            self._remove(member)
        self._after_loss(before, now)
        if self._join_by is not None and self._join_by <= now:
            self._join_time_is_up(now)
        if self._sync_by is not None and self._sync_by <= now:
            self._sync_time_is_up(now)
        return self._drain()

    def _sync_time_is_up(self, now: float) -> None:
        self._sync_by = None
        for member_id in list(self._unsynced):
            self._remove(self.members[member_id])
        self._rebalance_or_complete(now)

    def _after_loss(self, before: tuple[int, int], now: float) -> None:
        """If members are gone, the rest shares what they had. Pending ones had nothing: only a rebalance may wait for them.

        Args:
            before: how many members and pending members there were.
        """
        members, pending = len(self.members) < before[0], len(self._pending) < before[1]
        if (members and self.state is not _EMPTY) or (pending and self.state is _PREPARING):
            self._rebalance_or_complete(now)

    def _remove(self, member: ClassicMember) -> None:
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                self._answer(ticket, _unknown(self.name, member.member_id))
        del self.members[member.member_id]
        self._withdraw_support(member)
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def interrupt(self) -> list[Effect]:
        """Another kind of group takes over: whoever waits has to ask again."""
        for member in self.members.values():
            for ticket in (member.join_ticket, member.sync_ticket):
                if ticket is not None:
                    self._answer(ticket, self._rebalancing())
            member.join_ticket = member.sync_ticket = None
        return self._drain()

    # ── who may ───────────────────────────────────────────────────────────────────────────────────

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        now: float,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Whether offsets may be committed. For a member that is a sign of life, too.

        Raises:
            UnknownMember: no member of the group; or nobody in particular, while there are members.
            FencedInstance, StaleMember
            RebalanceInProgress: the member has joined, but does not know its partitions yet.
        """
        if generation < 0 and self.state is _EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            member = self.member(member_id, instance_id)
            self._check_generation(member, generation)
            if not is_transactional:
                member.renew_session(now)
        elif not is_transactional:
            raise UnknownMember(
                f"Group {self.name!r} has members; only they commit its offsets, others when it is empty."
            )
        if self.state is _COMPLETING and not is_transactional:
            raise self._rebalancing()

    def member(self, member_id: str, instance_id: str | None = None) -> ClassicMember:
        """The member that speaks.

        Raises:
            UnknownMember: the group has no such member (any more).
            FencedInstance: another member has this instance id now.
        """
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is not None and holder != member_id:
                raise _fenced(self.name, member_id, instance_id)
            if holder is None:
                raise _unknown(self.name, member_id)
        found = self.members.get(member_id)
        if found is None:
            raise _unknown(self.name, member_id)
        return found

    def _check_generation(self, member: ClassicMember, generation: int) -> None:
        if generation != self.generation:
            raise StaleMember(
                f"Member {member.member_id} of group {self.name!r} spoke of generation {generation}; the group is at "
                f"{self.generation}. Join again."
            )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _full(self) -> GroupFull:
        return GroupFull(
            f"Group {self.name!r} has {self._limits.max_members} members already; use another group."
        )

    def _rebalancing(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"The members of group {self.name!r} are joining again; join, too.")

    def _answer(self, ticket: object, result: JoinAnswer | SyncAnswer | SparrowError) -> None:
        self._out.append(Answer(ticket, result))

    def _drain(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _unknown(group: str, member_id: str) -> UnknownMember:
    return UnknownMember(f"{member_id!r} is no member of group {group!r} (any more); join again.")


def _fenced(group: str, member_id: str, instance_id: str | None) -> FencedInstance:
    return FencedInstance(
        f"Instance {instance_id!r} of group {group!r} has joined again under another id; member {member_id!r} is out. "
        "No two consumers may have the same instance id."
    )
