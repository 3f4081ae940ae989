"""The consumer group of KIP-848: a pure state machine; time is an argument.

Three epochs show who knows what. The *group epoch* rises with each change of members, subscriptions
or topics. The *assignment epoch* is the group epoch for which the target assignment was computed;
the first heartbeat that finds it behind computes a new one. The *member epoch* is that of the
target that a member has reached (`reconciliation`). The group never calls members: they learn
everything from the responses to their heartbeats.

Invariant: at most one member has a partition (`_holders`), and only a member that has a partition
was informed that it is assigned.

Every method checks before it changes: one that raises has changed nothing. Changes are collected
for the store in `changes`, and a member may only be answered when they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.base.errors import GroupFull, StaleMemberEpoch
from sparrow.broker.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Wish
from sparrow.broker.groups.consumer.checks import check_epoch, check_instance, check_released
from sparrow.broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    Assignment,
    ConsumerMember,
    Heartbeat,
    HeartbeatResponse,
    MemberState,
    TopicIdPartition,
)
from sparrow.broker.groups.consumer.reconciliation import reconcile
from sparrow.broker.groups.description import GroupState
from sparrow.broker.groups.member_group import MemberGroup

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.topics import TopicCatalog, TopicView

Resolve = Callable[[str], frozenset[str]]
"""Return the topics that match a regular expression and that the caller may see. Raises
InvalidRegularExpression.
"""


class Fenced(Enum):
    """The reason why a member was removed."""

    SESSION_OVER = "it sent no heartbeat within its session timeout"
    NOT_REVOKED = "it did not give up its partitions within its rebalance timeout"
    NOT_JOINED = "it did not join again within its rebalance timeout"
    NOT_SYNCED = "it did not ask for its assignment within its rebalance timeout"


class ConsumerGroup(MemberGroup[ConsumerMember]):
    """One consumer group. Times are monotonic seconds."""

    def __init__(self, name: str, topics: TopicCatalog, max_members: int) -> None:
        super().__init__(name, topics)
        self.regexes: dict[str, frozenset[str]] = {}
        """The topics of each regular expression that a member subscribed to."""
        self.deadlines: dict[Fenced, dict[str, float]] = {reason: {} for reason in Fenced}
        """The time at which a member is removed, by reason and member id."""
        self._max_members = max_members
        self._instances: dict[str, str] = {}
        self._holders: dict[TopicIdPartition, str] = {}

    # ── public state ──────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> GroupState:
        """The state: Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes = Counter(m.server_assignor for m in self.members.values() if m.server_assignor)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else DEFAULT_ASSIGNOR

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names that members subscribed to or that match their regular expressions,
        including those of missing topics.
        """
        names: set[str] = set()
        for topics, regex in {(member.topics, member.regex) for member in self.members.values()}:
            names.update(topics, self.regexes.get(regex, ()) if regex else ())
        return frozenset(names)

    def topics_of(self, member: ConsumerMember) -> set[str]:
        """Return the names that a member subscribed to or that match its regular expression."""
        return {*member.topics, *(self.regexes.get(member.regex, ()) if member.regex else ())}

    def with_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member with an instance id, or None."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Return True if another member still has a partition of the member's target."""
        missing = self.targets.get(member.member_id, NOTHING) - member.assigned
        return any(partition in self._holders for partition in missing)

    def check_member_epoch(self, member_id: str, epoch: int) -> ConsumerMember:
        """Raise an error if a member is not at an epoch, for its offsets.

        Raises:
            UnknownMember, StaleMemberEpoch
        """
        member = self.get(member_id)
        if member.epoch != epoch:
            raise StaleMemberEpoch(
                f"Member {member_id} of group {self.name!r} is at epoch {member.epoch}, not "
                f"{epoch}; send a heartbeat, then try"
                " again."
            )
        return member

    # ── members speak ─────────────────────────────────────────────────────────────────────────────

    def heartbeat(
        self, beat: Heartbeat, now: float, session_timeout_s: float, resolve: Resolve
    ) -> HeartbeatResponse:
        """Handle a heartbeat of a member that joins (epoch 0) or continues (over 0). The heartbeat
        has passed `check_heartbeat`.

        Raises:
            GroupFull, UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstanceId,
            InvalidRegularExpression
        """
        self.check_room(beat.member_id)
        known = self._speaker(beat)
        before = self.members.get(known.member_id, known)
        member = self.admit(known, beat.applied_to(known), resolve)
        after = self.advance(member, beat.owned, now)
        self.deadlines[Fenced.SESSION_OVER][after.member_id] = now + session_timeout_s
        is_known_to_client = (
            beat.member_epoch == JOIN_EPOCH or beat.is_full or after.assigned != before.assigned
        )
        return HeartbeatResponse(after.member_id, after.epoch, after.assigned if is_known_to_client else None)

    def leave(self, beat: Heartbeat) -> None:
        """Remove a member (epoch -1), or let a static one leave for a while (-2). Its
        partitions are free at once, or kept for its instance.

        Raises:
            UnknownMember, FencedInstance
        """
        if beat.instance_id is None:
            self.remove([self.get(beat.member_id).member_id])
            return
        member = check_instance(
            self.with_instance(beat.instance_id), beat.member_id, beat.instance_id, self.name
        )
        if beat.member_epoch == LEAVE_STATIC_EPOCH:
            self.put(replace(member, epoch=LEAVE_STATIC_EPOCH, pending_revocation=NOTHING))
            self._no_deadline(member.member_id, Fenced.NOT_REVOKED)
        else:
            self.remove([member.member_id])

    def expire(self, now: float) -> list[tuple[str, Fenced]]:
        """Remove the members whose time is over."""
        over = {
            member_id: reason
            for reason, deadlines in self.deadlines.items()
            for member_id, deadline in deadlines.items()
            if deadline <= now
        }
        if over:
            self.remove(over)
        return list(over.items())

    def topics_changed(self, names: Iterable[str]) -> None:
        """Note that topics were created, grew or were deleted; the next heartbeat compares them."""
        if not self.needs_refresh:
            self.needs_refresh = bool(self.regexes) or not self.subscribed_topics().isdisjoint(names)

    # ── steps, also for members of the classic protocol ───────────────────────────────────────────

    def check_room(self, member_id: str) -> None:
        """Raise an error if no further member may join.

        Raises:
            GroupFull
        """
        if len(self.members) >= self._max_members and member_id not in self.members:
            raise GroupFull(
                f"Group {self.name!r} has {len(self.members)} members already; use another group."
            )

    def admit(self, known: ConsumerMember, member: ConsumerMember, resolve: Resolve | None) -> ConsumerMember:
        """Take over a member's heartbeat, and raise the group epoch if that, or a topic, makes a
        difference.

        Args:
            known: the member as it was, or a new one. A member that takes over an instance has
                another id than its predecessor.
            resolve: None leaves regular expressions to the next heartbeat.
        """
        left_out = self._regex_for_later(known, member, resolve)
        is_due = self.needs_refresh or (bool(member.regex) and member.regex not in {*self.regexes, left_out})
        refreshed = self._resolve_all(member, resolve, left_out) if resolve is not None and is_due else None
        predecessor = self.with_instance(member.instance_id)
        if predecessor is not None and predecessor.member_id != member.member_id:
            self._succeed(predecessor, known)
        self.put(member)
        is_changed = self.epoch == 0 or known.topics != member.topics or known.regex != member.regex
        if refreshed is not None:
            is_changed |= refreshed != self.regexes
            self.changes.group |= refreshed != self.regexes
            self.regexes = refreshed
        if is_changed or self.needs_refresh:
            self._drop_unused_regexes()
            self._bump(is_forced=is_changed)
            is_put_off = is_due and refreshed is None and any(m.regex for m in self.members.values())
            self.needs_refresh = left_out is not None or is_put_off
        return member

    def advance(self, member: ConsumerMember, owned: Assignment | None, now: float) -> ConsumerMember:
        """Compute a new target if needed, and take the member one step towards its own."""
        if self.epoch > self.assignment_epoch:
            self._make_target()
        target = self.targets.get(member.member_id, NOTHING)
        after = reconcile(member, self.assignment_epoch, target, self._holders, owned)
        if after != member:
            self.put(after)
            if after.state is MemberState.UNREVOKED_PARTITIONS and after.classic is None:
                deadline = now + after.rebalance_timeout_ms / 1000
                self.deadlines[Fenced.NOT_REVOKED][after.member_id] = deadline
            else:
                self._no_deadline(after.member_id, Fenced.NOT_REVOKED)
        return after

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if member == before:
            return
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._hold(member.member_id, NOTHING if before is None else before.held, member.held)
        self.changes.members.add(member.member_id)

    def remove(self, member_ids: Iterable[str]) -> None:
        """Remove members; their partitions are free."""
        for member_id in list(member_ids):
            self._forget(self.members[member_id])
        self._drop_unused_regexes()
        self._bump(is_forced=True)

    def restore(self, members: Iterable[tuple[ConsumerMember, Assignment]]) -> None:
        """Add members with their targets, as the store or a classic group knew them."""
        for member, target in members:
            self.put(member)
            self.targets[member.member_id] = target

    def start_clocks(self, now: float, session_timeout_s: float) -> None:
        """Start all time limits again after a restart."""
        for member in self.members.values():
            own_s = None if member.classic is None else member.classic.session_timeout_ms / 1000
            self.deadlines[Fenced.SESSION_OVER][member.member_id] = now + (own_s or session_timeout_s)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                deadline = now + member.rebalance_timeout_ms / 1000
                self.deadlines[Fenced.NOT_REVOKED][member.member_id] = deadline

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _speaker(self, beat: Heartbeat) -> ConsumerMember:
        """Return the member of a heartbeat: known, new, or new in the place of a static one that
        left.
        """
        is_join = beat.member_epoch == JOIN_EPOCH
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
            if member is None and is_join:
                return ConsumerMember(beat.member_id)
            member = self.get(beat.member_id)
            check_epoch(member, beat.member_epoch, beat.owned)
            return member
        member = self.with_instance(beat.instance_id)
        if not is_join:
            member = check_instance(member, beat.member_id, beat.instance_id, self.name)
            check_epoch(member, beat.member_epoch, beat.owned)
            return member
        if member is None:
            return self.members.get(beat.member_id) or ConsumerMember(beat.member_id)
        if member.classic is None:
            check_released(member, beat.member_id, self.name)
        return replace(member, member_id=beat.member_id, epoch=0, previous_epoch=0)

    def _succeed(self, predecessor: ConsumerMember, successor: ConsumerMember) -> None:
        """Let a static member that comes back with a new id take over all that it had."""
        target = self.targets.get(predecessor.member_id, NOTHING)
        self._forget(predecessor)
        self.put(successor)
        self.targets[successor.member_id] = target

    def _forget(self, member: ConsumerMember) -> None:
        member_id = member.member_id
        self._hold(member_id, member.held, NOTHING)
        del self.members[member_id]
        self.targets.pop(member_id, None)
        if member.instance_id is not None and self._instances.get(member.instance_id) == member_id:
            del self._instances[member.instance_id]
        self._no_deadline(member_id, *Fenced)
        self.changes.members.add(member_id)

    def _hold(self, member_id: str, before: Assignment, after: Assignment) -> None:
        for partition in before - after:
            if self._holders.get(partition) == member_id:
                del self._holders[partition]
        for partition in after - before:
            self._holders[partition] = member_id

    def _no_deadline(self, member_id: str, *reasons: Fenced) -> None:
        for reason in reasons:
            self.deadlines[reason].pop(member_id, None)

    def _regex_for_later(
        self, known: ConsumerMember, member: ConsumerMember, resolve: Resolve | None
    ) -> str | None:
        """Return True if a new regular expression beside names of topics is left to the next
        heartbeat; the names count at once.

        Kafka resolves all expressions later, and clients' tests expect the two steps. An expression
        alone is resolved at once: waiting has no advantage.
        """
        regex = member.regex
        if resolve is None or not regex or regex == known.regex or regex in self.regexes or not member.topics:
            return None
        resolve(regex)  # raises if it is invalid
        return regex

    def _resolve_all(
        self, speaker: ConsumerMember, resolve: Resolve, left_out: str | None
    ) -> dict[str, frozenset[str]]:
        """Resolve all regular expressions at once, so that new topics cause one rebalance."""
        wanted = {m.regex for m in (*self.members.values(), speaker) if m.regex and m.regex != left_out}
        return {regex: resolve(regex) for regex in wanted}

    def _drop_unused_regexes(self) -> None:
        if self.regexes:
            used = {member.regex for member in self.members.values()}
            self.changes.group |= not used.issuperset(self.regexes)
            self.regexes = {regex: names for regex, names in self.regexes.items() if regex in used}

    def _bump(self, *, is_forced: bool) -> None:
        """Raise the group epoch if it must rise, or if a subscribed topic changed."""
        digest = self._topics.digest(self.subscribed_topics())
        if is_forced or digest != self.digest:
            self.epoch += 1
            self.changes.group = True
        self.digest = digest

    def _make_target(self) -> None:
        # Most members of a group have the same subscription: it is resolved once, and shared.
        existing: dict[tuple[tuple[str, ...], str | None], list[TopicView]] = {}
        for member in self.members.values():
            if (member.topics, member.regex) not in existing:
                existing[member.topics, member.regex] = self._existing(member)
        wishes = {
            member.member_id: Wish(
                existing[member.topics, member.regex],
                member.instance_id,
                self.targets.get(member.member_id, NOTHING),
            )
            for member in self.members.values()
        }
        self._take_targets(ASSIGNORS[self.assignor](wishes))

    def _existing(self, member: ConsumerMember) -> list[TopicView]:
        found = [self._topics.find(name) for name in self.topics_of(member)]
        return [topic for topic in found if topic is not None]
