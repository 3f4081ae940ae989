"""The share group of KIP-932: a pure state machine; time is an argument.

Members share partitions, so none has to give a partition up before another may have it. A member is
at the epoch of the target assignment that it last received, and the next heartbeat returns a newer
one. The *group epoch* rises with each change of members, subscriptions or topics; the first
heartbeat that finds the target behind computes a new one (`balanced_assignor`).

Every method checks before it changes: one that raises has changed nothing. Changes are collected
for the store in `changes`, and a member may only be answered when they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import GroupFull
from sparrow.broker.groups.consumer.assignors import Wish
from sparrow.broker.groups.consumer.member import JOIN_EPOCH, NOTHING, Assignment, HeartbeatResponse
from sparrow.broker.groups.description import GroupState
from sparrow.broker.groups.member_group import MemberGroup
from sparrow.broker.groups.share import balanced_assignor
from sparrow.broker.groups.share.checks import check_epoch
from sparrow.broker.groups.share.member import ShareMember

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from sparrow.broker.groups.consumer.topics import TopicCatalog, TopicView
    from sparrow.broker.groups.share.member import ShareHeartbeat


class ShareGroup(MemberGroup[ShareMember]):
    """One share group. Times are monotonic seconds."""

    def __init__(self, name: str, topics: TopicCatalog, max_members: int) -> None:
        super().__init__(name, topics)
        self.max_members = max_members
        self._sessions: dict[str, float] = {}
        """The time at which each member is removed."""
        self._limit: Container[str] | None = None

    # ── public state ──────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> GroupState:
        """The state: Empty or Stable, since members need not wait for each other."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names that members subscribed to, including those of missing topics."""
        return frozenset(name for topics in {m.topics for m in self.members.values()} for name in topics)

    def readable_topics(self) -> list[TopicView]:
        """Return the topics whose partitions are assigned."""
        return self._existing(self.subscribed_topics())

    # ── members speak ─────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, beat: ShareHeartbeat, now: float, session_timeout_s: float) -> HeartbeatResponse:
        """Handle a heartbeat of a member that joins (epoch 0) or continues (over 0). The heartbeat
        has passed `check_heartbeat`.

        Raises:
            GroupFull, UnknownMember, FencedMemberEpoch
        """
        self._check_room(beat.member_id)
        known = self.members.get(beat.member_id)
        if known is None:
            known = (
                ShareMember(beat.member_id) if beat.member_epoch == JOIN_EPOCH else self.get(beat.member_id)
            )
        check_epoch(known, beat.member_epoch)
        member = beat.applied_to(known)
        self._put(member)
        self._bump(is_forced=member.topics != known.topics)
        if self.epoch > self.assignment_epoch:
            self._make_target()
        after = member.moved_to(self.assignment_epoch, self.targets.get(member.member_id, NOTHING))
        self._put(after)
        self._sessions[after.member_id] = now + session_timeout_s
        has_missed_response = beat.member_epoch != known.epoch
        is_known_to_client = (
            has_missed_response or beat.topics is not None or after.assigned != known.assigned
        )
        return HeartbeatResponse(after.member_id, after.epoch, after.assigned if is_known_to_client else None)

    def leave(self, member_id: str) -> None:
        """Remove a member that leaves.

        Raises:
            UnknownMember
        """
        self.remove([self.get(member_id).member_id])

    def expire(self, now: float) -> list[str]:
        """Remove the members whose session is over. Return their ids."""
        over = [member_id for member_id, deadline in self._sessions.items() if deadline <= now]
        if over:
            self.remove(over)
        return over

    def remove(self, member_ids: Iterable[str]) -> None:
        """Remove members; the others receive their new assignment with their next heartbeats."""
        for member_id in member_ids:
            del self.members[member_id]
            self.targets.pop(member_id, None)
            self._sessions.pop(member_id, None)
            self.changes.members.add(member_id)
        self._bump(is_forced=True)

    # ── topics, restarts ──────────────────────────────────────────────────────────────────────────

    def topics_changed(self, names: Iterable[str]) -> None:
        """Note that topics were created, grew or were deleted; the next heartbeat compares them."""
        if not self.needs_refresh:
            self.needs_refresh = not self.subscribed_topics().isdisjoint(names)

    def limit_topics(self, topics: Container[str] | None) -> None:
        """Assign only partitions of these topics, or (None) of all that members subscribe to."""
        if topics != self._limit:
            self._limit = topics
            self.needs_refresh = True

    def restore(self, member: ShareMember, target: Assignment) -> None:
        """Add a member with its target, as the store knew it."""
        self.members[member.member_id] = member
        self.targets[member.member_id] = target

    def start_clocks(self, now: float, session_timeout_s: float) -> None:
        """Start all sessions again after a restart."""
        self._sessions = dict.fromkeys(self.members, now + session_timeout_s)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _check_room(self, member_id: str) -> None:
        if len(self.members) >= self.max_members and member_id not in self.members:
            raise GroupFull(
                f"Group {self.name!r} has {len(self.members)} members already; use another group, or raise"
                " group.share.max.size."
            )

    def _put(self, member: ShareMember) -> None:
        if self.members.get(member.member_id) != member:
            self.members[member.member_id] = member
            self.changes.members.add(member.member_id)

    def _bump(self, *, is_forced: bool) -> None:
        """Raise the group epoch if it must rise, or if a subscribed topic changed."""
        if not (is_forced or self.needs_refresh):
            return
        digest = self._topics.digest(topic.name for topic in self.readable_topics())
        if is_forced or digest != self.digest:
            self.epoch += 1
            self.changes.group = True
        self.digest = digest
        self.needs_refresh = False

    def _make_target(self) -> None:
        # Most members of a group have the same subscription: it is resolved once, and shared.
        existing = {topics: self._existing(topics) for topics in {m.topics for m in self.members.values()}}
        targets = balanced_assignor.assign(
            {
                member.member_id: Wish(
                    existing[member.topics], previous=self.targets.get(member.member_id, NOTHING)
                )
                for member in self.members.values()
            }
        )
        self._take_targets(targets)

    def _existing(self, names: Iterable[str]) -> list[TopicView]:
        allowed = (name for name in names if self._limit is None or name in self._limit)
        found = [self._topics.find(name) for name in allowed]
        return [topic for topic in found if topic is not None]
