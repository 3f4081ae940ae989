"""The state of one native group: members, targets, and the partitions that members hold. Pure: time
is an argument, effects are returned.

The broker computes the assignment, and partitions change hands one by one (after KIP-848): no
member stops for a rebalance. Everything that changes a group's state is in this file.

    group       EMPTY        no members
                RECONCILING  a partition is not yet where it should be
                STABLE       every member holds what it should have

    partition   free ──Assign──▶ held ──Revoke──▶ releasing ──confirm──▶ free
                held, releasing ──leave, fence, topic deleted──▶ free

    member      attached     lives as long as its connection (frontends close silent ones)
                detached     lives until its session ends; each heartbeat puts that off
                fenced       gone: its session ended, or it did not release partitions in time

Invariants:

* at most one member holds or releases a partition, and the next holder waits for the confirmation
  of the last one, or for its end;
* the epoch grows with every change of members, subscriptions or topics; every effect for a member
  carries the epoch;
* a commit is good if its member holds the partition and its epoch is not older than that hold
  (after KIP-1251): a change that does not touch a partition does not disturb its commits, and a
  predecessor's late commit is refused.

The partitions of a deleted topic are taken from their holders without an effect: the topics
announce their deletion.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from sparrow.base.errors import StaleMember, UnknownMember
from sparrow.broker.groups.description import GroupState
from sparrow.broker.groups.native.sticky_assignor import assign

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sparrow.records.topic_partition import TopicPartition


class FenceReason(Enum):
    TAKEN_OVER = "another connection continues as this member"
    SESSION_OVER = "it gave no sign of life for the session timeout"
    NOT_RELEASED = "it did not release partitions within the rebalance timeout"


# ── effects ───────────────────────────────────────────────────────────────────────────────────────


class Assign(Struct, frozen=True):
    """Effect: the member holds these partitions from now on, in addition to those it has."""

    member_id: str
    epoch: int
    partitions: tuple[TopicPartition, ...]


class Revoke(Struct, frozen=True):
    """Effect: the member has to finish with these partitions, then confirm with this epoch."""

    member_id: str
    epoch: int
    partitions: tuple[TopicPartition, ...]


class Fence(Struct, frozen=True):
    """Effect: the member is out. TAKEN_OVER is sent by the coordinator to a connection that another
    one replaced.
    """

    member_id: str
    reason: FenceReason


Effect = Assign | Revoke | Fence


# ── look-ups ──────────────────────────────────────────────────────────────────────────────────────


class Hold(Struct):
    """A partition that a member holds. `release_by` (monotonic s) is set while it is being
    released.
    """

    since_epoch: int
    revoke_epoch: int = 0
    release_by: float | None = None


class NativeMember(Struct):
    """One member of a native group. `session_ends_at` is None while it is attached."""

    member_id: str
    client_name: str
    topics: frozenset[str]
    session_timeout_s: float
    rebalance_timeout_s: float
    epoch: int
    joined_epoch: int
    session_ends_at: float | None = None
    target: set[TopicPartition] = field(default_factory=set)
    holds: dict[TopicPartition, Hold] = field(default_factory=dict)

    def held(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that it holds and may keep, sorted."""
        return tuple(sorted(p for p, hold in self.holds.items() if hold.release_by is None))

    def releasing(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that it was asked to release and has not released yet, sorted."""
        return tuple(sorted(p for p, hold in self.holds.items() if hold.release_by is not None))


class NativeGroup:
    """One native group. `now` is monotonic time in seconds. Not thread-safe.

    Args:
        name: the name of the group.
        partition_counts: the broker's live table of partitions by topic, read at every change.
        first_epoch: epochs begin above it.
    """

    def __init__(self, name: str, partition_counts: Mapping[str, int], first_epoch: int = 0) -> None:
        self.name = name
        self.epoch = first_epoch
        self.members: dict[str, NativeMember] = {}
        self._partition_counts = partition_counts
        self._holder: dict[TopicPartition, str] = {}
        """The member that holds or releases each partition."""
        self._heir: dict[TopicPartition, str] = {}
        """The member whose target has each partition."""
        self._freed: list[TopicPartition] = []
        """Partitions that became free since partitions were assigned last."""

    @property
    def state(self) -> GroupState:
        """The state of the group; see the table above."""
        if not self.members:
            return GroupState.EMPTY
        settled = all(m.target == m.holds.keys() and not m.releasing() for m in self.members.values())
        return GroupState.STABLE if settled else GroupState.RECONCILING

    # ── members come and go ───────────────────────────────────────────────────────────────────────

    def join(
        self,
        member_id: str,
        topics: Iterable[str],
        now: float,
        *,
        session_timeout_s: float,
        rebalance_timeout_s: float,
        client_name: str = "",
        attached: bool = True,
    ) -> list[Effect]:
        """Add a member, or let one come back under the same id and continue with what it holds.

        A member that comes back receives again all that it holds and has to release. Its former
        connection is refused from now on, because its epoch is too old.
        """
        member = self.members.get(member_id)
        self.epoch += 1
        if member is None:
            member = NativeMember(member_id, "", frozenset(), 0, 0, self.epoch, self.epoch)
            self.members[member_id] = member
        member.client_name = client_name
        member.topics = frozenset(topics)
        member.session_timeout_s = session_timeout_s
        member.rebalance_timeout_s = rebalance_timeout_s
        member.session_ends_at = None if attached else now + session_timeout_s
        return [*self._announce_again(member), *self._rebalance(now)]

    def update_subscription(
        self, member_id: str, epoch: int, topics: Iterable[str], now: float
    ) -> list[Effect]:
        """Subscribe a member to other topics.

        Raises:
            UnknownMember, StaleMember
        """
        member = self._current(member_id, epoch)
        wanted = frozenset(topics)
        if wanted == member.topics:
            return []
        member.topics = wanted
        return self._change(now)

    def heartbeat(self, member_id: str, epoch: int, now: float) -> int:
        """Put off the end of a detached member's session. Return the member's epoch.

        Raises:
            UnknownMember, StaleMember
        """
        member = self._current(member_id, epoch)
        if member.session_ends_at is not None:
            member.session_ends_at = now + member.session_timeout_s
        return member.epoch

    def leave(self, member_id: str, epoch: int, now: float) -> list[Effect]:
        """Remove a member; what it held is free at once.

        Raises:
            UnknownMember, StaleMember
        """
        self._remove(self._current(member_id, epoch))
        return self._change(now)

    def detach(self, member_id: str, epoch: int, now: float) -> None:
        """Note that the connection was lost: the member keeps everything until its session ends.
        Nothing happens if another connection took over.
        """
        member = self.members.get(member_id)
        if member is not None and epoch >= member.joined_epoch:
            member.session_ends_at = now + member.session_timeout_s

    def expire(self, now: float) -> list[Effect]:
        """Fence the members whose session or time to release is over."""
        fences: list[Effect] = []
        for member in list(self.members.values()):
            reason = _overdue(member, now)
            if reason is not None:
                fences.append(Fence(member.member_id, reason))
                self._remove(member)
        return [*fences, *self._change(now)] if fences else []

    # ── partitions change hands ───────────────────────────────────────────────────────────────────

    def confirm_revoked(
        self, member_id: str, epoch: int, partitions: Iterable[TopicPartition]
    ) -> list[Effect]:
        """Free partitions that the member was asked to release with this epoch or an earlier one;
        ignore others.

        Raises:
            UnknownMember, StaleMember
        """
        member = self._current(member_id, epoch)
        for partition in partitions:
            hold = member.holds.get(partition)
            if hold is not None and hold.release_by is not None and epoch >= hold.revoke_epoch:
                self._free(member, partition)
        return list(self._assign_free(()))

    def topics_changed(self, topics: Collection[str], now: float) -> list[Effect]:
        """Note that topics were created, grew or were deleted; `partition_counts` has the new
        numbers.
        """
        changed = set(topics)
        gone = self._held_of_missing(changed)
        if not gone and all(changed.isdisjoint(member.topics) for member in self.members.values()):
            return []
        for partition in gone:
            self._free(self.members[self._holder[partition]], partition)
        return self._change(now)

    def check_commit(self, member_id: str, epoch: int, partitions: Iterable[TopicPartition]) -> None:
        """Raise an error if a member may not commit offsets of these partitions.

        Raises:
            UnknownMember: it is not in the group (any more).
            StaleMember: it does not hold a partition, or did not at that epoch.
        """
        member = self._current(member_id, epoch)
        for topic, number in partitions:
            hold = member.holds.get((topic, number))
            if hold is None or epoch < hold.since_epoch:
                raise StaleMember(
                    f"Member {member_id} of group {self.name!r} did not hold partition {number} of "
                    f"{topic!r} at epoch {epoch}; "
                    "its offset was not committed. Go on with the partitions assigned to you."
                )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _current(self, member_id: str, epoch: int) -> NativeMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is no member of group {self.name!r} (any more); join again.")
        if not member.joined_epoch <= epoch <= self.epoch:
            raise StaleMember(
                f"Member {member_id} of group {self.name!r} spoke with epoch {epoch}, but it "
                f"joined at {member.joined_epoch} and "
                f"the group is at {self.epoch}; another connection continues as this member, or join again."
            )
        return member

    def _announce_again(self, member: NativeMember) -> Iterator[Effect]:
        """Send everything that the member holds or releases to its new connection; effects of
        earlier epochs are void.
        """
        member.epoch = member.joined_epoch = self.epoch
        for hold in member.holds.values():
            hold.since_epoch = self.epoch
            hold.revoke_epoch = self.epoch if hold.release_by is not None else 0
        if held := member.held():
            yield Assign(member.member_id, self.epoch, held)
        if releasing := member.releasing():
            yield Revoke(member.member_id, self.epoch, releasing)

    def _change(self, now: float) -> list[Effect]:
        self.epoch += 1
        return self._rebalance(now)

    def _rebalance(self, now: float) -> list[Effect]:
        targets = assign(
            {member_id: member.topics for member_id, member in self.members.items()},
            self._partition_counts,
            {member_id: member.target for member_id, member in self.members.items()},
        )
        changed = [
            member for member_id, member in self.members.items() if targets[member_id] != member.target
        ]
        for member in changed:
            self._disinherit(member)
        for member in changed:
            member.target = targets[member.member_id]
            self._heir.update(dict.fromkeys(member.target, member.member_id))
        revokes = [revoke for member in changed if (revoke := self._revoke_unwanted(member, now))]
        return [*revokes, *self._assign_free(p for member in changed for p in member.target)]

    def _revoke_unwanted(self, member: NativeMember, now: float) -> Revoke | None:
        unwanted = sorted(
            p for p in member.holds.keys() - member.target if member.holds[p].release_by is None
        )
        if not unwanted:
            return None
        member.epoch = self.epoch
        for partition in unwanted:
            hold = member.holds[partition]
            hold.revoke_epoch = self.epoch
            hold.release_by = now + member.rebalance_timeout_s
        return Revoke(member.member_id, self.epoch, tuple(unwanted))

    def _assign_free(self, candidates: Iterable[TopicPartition]) -> Iterator[Assign]:
        """Assign the candidates and the freed partitions to the members that should have them,
        unless a member still holds them.
        """
        by_member: dict[str, list[TopicPartition]] = {}
        for partition in sorted({*candidates, *self._freed}):
            heir = self._heir.get(partition)
            if heir is not None and partition not in self._holder:
                by_member.setdefault(heir, []).append(partition)
        self._freed.clear()
        for member_id, partitions in by_member.items():
            member = self.members[member_id]
            member.epoch = self.epoch
            member.holds.update((partition, Hold(self.epoch)) for partition in partitions)
            self._holder.update(dict.fromkeys(partitions, member_id))
            yield Assign(member_id, self.epoch, tuple(partitions))

    def _held_of_missing(self, topics: set[str]) -> list[TopicPartition]:
        """Return the held partitions of deleted topics. A topic never loses only some of its
        partitions.
        """
        missing = topics - self._partition_counts.keys()
        return [partition for partition in self._holder if partition[0] in missing] if missing else []

    def _free(self, member: NativeMember, partition: TopicPartition) -> None:
        del member.holds[partition]
        del self._holder[partition]
        self._freed.append(partition)

    def _disinherit(self, member: NativeMember) -> None:
        for partition in member.target:
            if self._heir.get(partition) == member.member_id:
                del self._heir[partition]

    def _remove(self, member: NativeMember) -> None:
        for partition in list(member.holds):
            self._free(member, partition)
        self._disinherit(member)
        del self.members[member.member_id]


def _overdue(member: NativeMember, now: float) -> FenceReason | None:
    if member.session_ends_at is not None and member.session_ends_at <= now:
        return FenceReason.SESSION_OVER
    if any(hold.release_by is not None and hold.release_by <= now for hold in member.holds.values()):
        return FenceReason.NOT_RELEASED
    return None
