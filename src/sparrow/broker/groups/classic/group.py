"""The state of one classic group (Kafka's first group protocol). Pure: time is an argument, effects
are returned.

    EMPTY ──join──▶ PREPARING_REBALANCE
    PREPARING_REBALANCE ──all have joined, or time is up──▶ COMPLETING_REBALANCE
    COMPLETING_REBALANCE ──leader's sync is stored──▶ STABLE
    COMPLETING_REBALANCE ──join, leave, session over, sync time is up──▶ PREPARING_REBALANCE
    STABLE ──join, leave, session over──▶ PREPARING_REBALANCE
    PREPARING_REBALANCE ──no member is left──▶ EMPTY

A rebalance: members join and wait. When all have joined, they receive the new generation, and the
leader (the first member) receives the list of members. It decides who reads what and sends that
with its SyncGroup; the others wait for it in theirs.

* Waiting requests are *tickets*: `join` and `sync` take one, a `Respond` effect names it.
* `Store` asks the caller to write the group. When it is durable, the caller calls
  `assignment_stored` or `assignment_failed` for the leader's assignment, and else sends the
  responses of the effect.
* A first rebalance waits a little for more members (`initial_delay_ms`), and again as long as some
  come. Kafka waits 3 s, for deployments that start slowly; here it is short, because a rebalance of
  few members is cheap and a waiting consumer is not.
* A new dynamic member (JoinGroup 4) first gets an id and has to join again with it; until then it
  is *pending*, and a rebalance waits for it (KIP-394).
* Static members (KIP-345) stay members while they are away, until their session ends. One that
  comes back without its id replaces itself under a new id, without a rebalance as long as its
  choice of protocol stays the same.
* A member with a waiting request is alive; all others need a heartbeat within their session
  timeout. Members that do not join in time (the longest rebalance timeout of all members), or join
  but never sync, are removed.

Times are monotonic seconds. Not thread-safe.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

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
from sparrow.broker.groups.classic.protocol import JoinedMember, JoinResponse, SyncResponse
from sparrow.broker.groups.consumer.protocol import PROTOCOL_TYPE, subscribed_topics
from sparrow.broker.groups.description import GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.broker.groups.classic.protocol import JoinRequest, Leaver, SyncRequest

_EMPTY: Final = GroupState.EMPTY
_PREPARING: Final = GroupState.PREPARING_REBALANCE
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE
_STABLE: Final = GroupState.STABLE


class ClassicLimits(Struct, frozen=True):
    """A broker's limits of classic groups. Kafka's names in brackets."""

    initial_delay_ms: int = 100
    """Time for which a first rebalance waits for more members
    (group.initial.rebalance.delay.ms).
    """
    max_members: int = 10_000
    """(group.max.size)"""
    new_member_timeout_ms: int = 300_000
    """Time after which a new member that still waits for its first rebalance is forgotten."""


# ── effects ───────────────────────────────────────────────────────────────────────────────────────


class Respond(Struct, frozen=True):
    """Effect: send the response to the request behind a ticket."""

    ticket: object
    result: JoinResponse | SyncResponse | SparrowError


class Store(Struct, frozen=True):
    """Effect: write the group as it is now, then send the responses (or, to their tickets, the
    error).
    """

    responses: tuple[Respond, ...] = ()


class StoreAssignment(Struct, frozen=True):
    """Effect: write the group with these assignments, then call `assignment_stored` or
    `assignment_failed`.
    """

    generation: int
    assignments: Mapping[str, bytes]


Effect = Respond | Store | StoreAssignment


class ClassicGroup:
    """One classic group. Methods that change it return effects, in the order in which they
    happened.
    """

    def __init__(self, name: str, limits: ClassicLimits | None = None) -> None:
        self.name = name
        self.state = _EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        """The protocol of the current generation; "" before the first and while empty."""
        self.leader = ""
        self.members: dict[str, ClassicMember] = {}
        self.subscribed: frozenset[str] | None = frozenset()
        """Topics that consumers of this generation read; None: not known."""
        self._limits = limits or ClassicLimits()
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        """The number of members that know each protocol."""
        self._pending: dict[str, float] = {}
        """Ids given to new members that have not come back with them, and the time until which they
        may.
        """
        self._unsynced: set[str] = set()
        """Members of this generation whose SyncGroup has not arrived."""
        self._join_by: float | None = None
        self._sync_by: float | None = None
        self._initial_until: float | None = None
        """Time until which a first rebalance waits for more members; None: it does not wait."""
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
        """Return a group as the store or another kind of group knew it: stable, or empty without
        members. Sessions begin now.
        """
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
        """Return True if no rebalance was ever completed here, and none is about to be."""
        return not (self.generation or self.members or self._pending)

    @property
    def next_deadline(self) -> float | None:
        """The time at which `expire` has to look at the rebalance again."""
        return min((at for at in (self._join_by, self._sync_by) if at is not None), default=None)

    @property
    def next_session_end(self) -> float | None:
        """The time at which the first session may be over, if its member sends nothing until
        then.
        """
        return min(
            (at for each in self.members.values() if (at := each.overdue_at) is not None), default=None
        )

    # ── joining ───────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, ticket: object, now: float, unique: str) -> list[Effect]:
        """Handle a JoinGroup. Its response is an effect, now or later.

        Args:
            unique: makes the id of a new member unique.

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
            self._respond(ticket, error)
            before = len(self.members), len(self._pending)
            self._pending.pop(request.member_id, None)
            self._after_loss(before, now)  # it has its response: a rebalance need not wait for it
        except SparrowError as error:
            self._respond(ticket, error)
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
            # Its first response was lost, or it asks whether anything is new: nothing is.
            member.renew_session(now)
            self._respond(ticket, self._joined(member))

    def _needs_rebalance(self, member: ClassicMember, request: JoinRequest) -> bool:
        if self.state is _PREPARING:
            return True
        # A leader joins again to assign partitions again, for instance because topics changed.
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
                f"Group {self.name!r} cannot take a member with protocol type "
                f"{request.protocol_type!r} and protocols "
                f"{sorted(offered)}: its members have {self.protocol_type or 'a'!r} type and must "
                "share a protocol."
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
        """Let the member wait for the new generation. An older request of the same member, perhaps
        on a lost connection, is rejected.
        """
        if member.join_ticket is not None:
            self._respond(member.join_ticket, self._rebalancing())
        self._withdraw_support(member)
        member.take(request)
        self._support.update(member.protocol_names)
        member.join_ticket = ticket

    def _replace_static(
        self, former_id: str, member_id: str, request: JoinRequest, ticket: object, now: float
    ) -> None:
        """Replace a static member that came back without its id (KIP-345)."""
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
        response = self._joined(member, skip_assignment=True)
        if not request.can_skip_assignment:
            # An old client must not believe that it leads: it would assign partitions that the
            # other members never ask for (KIP-814).
            response = JoinResponse(member_id, self.generation, self.protocol_type, self.protocol, was_leader)
        self._out.append(Store((Respond(ticket, response),)))

    def _rename(self, former_id: str, member_id: str) -> ClassicMember:
        """Give a static member a new id; requests with the old id are fenced."""
        member = self.members[former_id]
        fenced = _fenced(self.name, former_id, member.instance_id)
        for waiting in (member.join_ticket, member.sync_ticket):
            if waiting is not None:
                self._respond(waiting, fenced)
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
        """Make all members join again."""
        self._rebalance_or_complete(now)
        return self._drain()

    def _rebalance_or_complete(self, now: float) -> None:
        """Begin a rebalance after a change, or complete the one under way if all have joined."""
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
        """Begin a new generation with the members that have joined; remove the others, except for
        static members.
        """
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
                self._respond(member.join_ticket, self._joined(member))
                member.join_ticket = None
                member.is_new = False
                member.renew_session(now)
        self._sync_by = now + self._rebalance_timeout_s()

    def _elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, otherwise elect the first member that has. Return False
        if none has.
        """
        leader = self.members.get(self.leader)
        if leader is not None and leader.join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.member_id
                return True
        return False

    def _joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinResponse:
        is_leader = member.member_id == self.leader
        members = (
            tuple(
                JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol))
                for m in self.members.values()
            )
            if is_leader
            else ()
        )
        return JoinResponse(
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
        """Handle a SyncGroup. Its response is an effect, now or when the leader's assignment has
        come.

        Answered with:
            UnknownMember, FencedInstance, StaleMember, InconsistentGroupProtocol,
            RebalanceInProgress
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
                self._respond(ticket, self._assigned(member))
            else:
                self._wait_for_assignment(member, request, ticket)
        except SparrowError as error:
            self._respond(ticket, error)
        return self._drain()

    def _wait_for_assignment(self, member: ClassicMember, request: SyncRequest, ticket: object) -> None:
        if member.sync_ticket is not None:
            self._respond(member.sync_ticket, self._rebalancing())
        member.sync_ticket = ticket
        if member.member_id == self.leader:
            known = {m: request.assignments.get(m, b"") for m in self.members}
            self._out.append(StoreAssignment(self.generation, known))

    def assignment_stored(
        self, generation: int, assignments: Mapping[str, bytes], now: float
    ) -> list[Effect]:
        """Send the leader's assignment, which is durable now, to the waiting members. A rebalance
        that has begun meanwhile makes it void.
        """
        if self.state is _COMPLETING and generation == self.generation:
            self.state = _STABLE
            for member in self.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                if member.sync_ticket is not None:
                    self._respond(member.sync_ticket, self._assigned(member))
                    member.sync_ticket = None
                    member.renew_session(now)
        return self._drain()

    def assignment_failed(self, generation: int, error: SparrowError, now: float) -> list[Effect]:
        """Report to the waiting members that the leader's assignment could not be stored, and make
        all join again.
        """
        if self.state is _COMPLETING and generation == self.generation:
            self._give_up_syncs(error)
            self._rebalance_or_complete(now)
        return self._drain()

    def _give_up_syncs(self, error: SparrowError) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self._respond(member.sync_ticket, error)
                member.sync_ticket = None

    def _assigned(self, member: ClassicMember) -> SyncResponse:
        return SyncResponse(self.protocol_type, self.protocol, member.assignment)

    def _check_chosen(self, request: SyncRequest) -> None:
        is_wrong_type = request.protocol_type is not None and request.protocol_type != self.protocol_type
        is_wrong_name = request.protocol is not None and request.protocol != self.protocol
        if is_wrong_type or is_wrong_name:
            raise InconsistentGroupProtocol(
                f"Generation {self.generation} of group {self.name!r} has chosen "
                f"{self.protocol_type!r}/{self.protocol!r}, "
                f"not {request.protocol_type!r}/{request.protocol!r}; join again."
            )

    # ── staying and leaving ───────────────────────────────────────────────────────────────────────

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now: float) -> None:
        """Renew a member's session.

        Raises:
            UnknownMember, FencedInstance, StaleMember
            RebalanceInProgress: join again; the session was renewed nevertheless.
        """
        member = self.member(member_id, instance_id)
        self._check_generation(member, generation)
        member.renew_session(now)
        if self.state is _PREPARING:
            raise self._rebalancing()

    def leave(self, leavers: Sequence[Leaver], now: float) -> tuple[list[SparrowError | None], list[Effect]]:
        """Remove members that leave, or static ones that an administrator removes. Return (an error
        or None for each, effects).
        """
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
        """Remove members whose time is over, and continue a rebalance that has waited long
        enough.
        """
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
        """Begin a rebalance if members are gone. Pending ones had no partitions: only a rebalance
        under way may wait for them.

        Args:
            before: the number of members and of pending members before.
        """
        members, pending = len(self.members) < before[0], len(self._pending) < before[1]
        if (members and self.state is not _EMPTY) or (pending and self.state is _PREPARING):
            self._rebalance_or_complete(now)

    def _remove(self, member: ClassicMember) -> None:
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                self._respond(ticket, _unknown(self.name, member.member_id))
        del self.members[member.member_id]
        self._withdraw_support(member)
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def interrupt(self) -> list[Effect]:
        """Reject all waiting requests, because another kind of group takes over; their clients ask
        again.
        """
        for member in self.members.values():
            for ticket in (member.join_ticket, member.sync_ticket):
                if ticket is not None:
                    self._respond(ticket, self._rebalancing())
            member.join_ticket = member.sync_ticket = None
        return self._drain()

    # ── rights ────────────────────────────────────────────────────────────────────────────────────

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        now: float,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Raise an error if offsets may not be committed. A commit of a member renews its session.

        Raises:
            UnknownMember: no member of the group; or no member is named while there are members.
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
        """Return the member that sent a request.

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
                f"Member {member.member_id} of group {self.name!r} spoke of generation "
                f"{generation}; the group is at "
                f"{self.generation}. Join again."
            )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _full(self) -> GroupFull:
        return GroupFull(
            f"Group {self.name!r} has {self._limits.max_members} members already; use another group."
        )

    def _rebalancing(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"The members of group {self.name!r} are joining again; join, too.")

    def _respond(self, ticket: object, result: JoinResponse | SyncResponse | SparrowError) -> None:
        self._out.append(Respond(ticket, result))

    def _drain(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _unknown(group: str, member_id: str) -> UnknownMember:
    return UnknownMember(f"{member_id!r} is no member of group {group!r} (any more); join again.")


def _fenced(group: str, member_id: str, instance_id: str | None) -> FencedInstance:
    return FencedInstance(
        f"Instance {instance_id!r} of group {group!r} has joined again under another id; member "
        f"{member_id!r} is out. "
        "No two consumers may have the same instance id."
    )
