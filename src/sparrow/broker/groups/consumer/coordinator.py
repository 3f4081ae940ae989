"""The coordinator of consumer groups (KIP-848): runs the pure groups (module `group`) with a clock,
the topics and a store.

A heartbeat is answered when its changes are durable. Responses to other heartbeats of the group
wait for that write, too, since they may depend on it. So the broker knows after a restart
everything that a member may know, and members continue with a heartbeat. An empty group is kept
until its offsets expire.

A classic group whose members read topics becomes a consumer group when the first member of the new
protocol joins it, and a classic one again when the last leaves (`conversion`, `classic_members`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from sparrow.base.errors import (
    GroupTypeMismatch,
    InvalidArgument,
    SparrowError,
    StaleMember,
    StaleMemberEpoch,
    UnknownGroup,
    UnsupportedVersion,
)
from sparrow.broker.groups.classic.group import ClassicLimits
from sparrow.broker.groups.classic.persistence import entry_of
from sparrow.broker.groups.consumer import classic_members as consumer_classic
from sparrow.broker.groups.consumer import persistence
from sparrow.broker.groups.consumer.checks import check_heartbeat, is_leave
from sparrow.broker.groups.consumer.classic_members import is_all_classic
from sparrow.broker.groups.consumer.conversion import downgrade, upgrade
from sparrow.broker.groups.consumer.description import ConsumerDescription, describe, describe_consumer
from sparrow.broker.groups.consumer.group import ConsumerGroup
from sparrow.broker.groups.consumer.member import JOIN_EPOCH, HeartbeatResponse
from sparrow.broker.groups.consumer.protocol import PROTOCOL_TYPE
from sparrow.broker.groups.consumer.topics import TopicCatalog, TopicView
from sparrow.broker.groups.description import GroupType
from sparrow.broker.groups.table import GroupTable
from sparrow.broker.groups.topic_regexes import TopicRegexes
from sparrow.broker.groups.writes import GroupWrites

if TYPE_CHECKING:
    from sparrow.broker.groups.classic.coordinator import ClassicGroupCoordinator
    from sparrow.broker.groups.classic.group import ClassicGroup
    from sparrow.broker.groups.classic.protocol import (
        JoinRequest,
        JoinResponse,
        Leaver,
        SyncRequest,
        SyncResponse,
    )
    from sparrow.broker.groups.consumer.member import Heartbeat
    from sparrow.broker.groups.offsets import Committer
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.meta.store import Write
    from sparrow.model.groups import GroupDescription
    from sparrow.records.topic_partition import TopicPartition

FindTopic = Callable[[str], TopicView | None]
_MAX_PREFIX_CHARACTERS: Final = 200
"""Length of the client's name in a member id that the broker creates."""
log = logging.getLogger(__name__)


class ConsumerLimits(Struct, frozen=True):
    """Settings of consumer groups. Kafka's names in brackets."""

    session_timeout_ms: int = 45_000
    """(group.consumer.session.timeout.ms)"""
    heartbeat_interval_ms: int = 5_000
    """(group.consumer.heartbeat.interval.ms)"""
    max_members: int = 10_000
    """(group.consumer.max.size)"""
    can_upgrade: bool = True
    """True if classic groups with members may become consumer groups
    (group.consumer.migration.policy).
    """
    can_downgrade: bool = True


LimitsOf = Callable[[str], ConsumerLimits]
"""Return the limits of a group: its own settings, else those of the broker."""


class ConsumerGroupCoordinator(GroupTable[ConsumerGroup]):
    """All consumer groups of a broker. Loop thread only.

    Args:
        classic: the coordinator that classic groups come from and go back to.
        find_topic: returns a topic of the broker by its name.
        classic_limits: for groups that become classic ones.
    """

    type = GroupType.CONSUMER
    protocol_type = "consumer"

    def __init__(
        self,
        registry: GroupRegistry,
        classic: ClassicGroupCoordinator,
        find_topic: FindTopic,
        limits_of: LimitsOf = lambda _group: ConsumerLimits(),
        classic_limits: ClassicLimits | None = None,
    ) -> None:
        super().__init__(registry)
        self.topics = TopicCatalog()
        self._classic = classic
        self._find_topic = find_topic
        self._limits_of = limits_of
        self._classic_limits = classic_limits or ClassicLimits()
        self._regexes = TopicRegexes(self.topics)
        self._writes = GroupWrites[ConsumerGroup](registry.meta, persistence.writes)

    async def load(self) -> None:
        """Read the groups of earlier runs. Sessions of their members begin now.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry is no group, or one of a later Sparrow.
        """
        now = self._clock.monotonic()
        for group in await persistence.load(self._registry.meta, self._empty_group):
            group.start_clocks(now, self._limits_of(group.name).session_timeout_ms / 1000)
            self._groups[group.name] = group
            self._note_population(group)

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────

    async def heartbeat(
        self, name: str, beat: Heartbeat, may_see: Callable[[str], bool] = lambda _topic: True
    ) -> HeartbeatResponse:
        """Handle a heartbeat of a member that joins, continues or leaves. The response is durable.

        Args:
            may_see: returns True if the caller may see a topic; regular expressions match no
                others.

        Raises:
            InvalidArgument, UnsupportedAssignor, InvalidRegularExpression: the heartbeat is wrong
            by itself.
            UnknownGroup: there is none, or a group of another kind has the name and members.
                GroupFull, UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstanceId
            DiskFull, StorageFailed: the change could not be stored; the same heartbeat may be sent
                again.
        """
        if not name:
            raise InvalidArgument("A group needs a name.")
        check_heartbeat(beat)
        if is_leave(beat.member_epoch):
            group = self.get(name)
            group.leave(beat)
            response = HeartbeatResponse(beat.member_id, beat.member_epoch)
        else:
            await self._learn_regexes(name, beat)
            group, response = self._beat(name, beat, may_see)
        self._after(group)
        await self._writes.flush(group)
        return response

    def heartbeat_interval_ms(self, name: str) -> int:
        """Return the time between heartbeats of a group's members, in ms."""
        return self._limits_of(name).heartbeat_interval_ms

    def describe_consumer(self, name: str) -> ConsumerDescription:
        """Return a group as Kafka describes it.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
        """
        return describe_consumer(self.get(name), self.topics)

    # ── members of the classic protocol: errors as in `ClassicGroupCoordinator` ───────────────────

    async def classic_join(self, request: JoinRequest) -> JoinResponse:
        group = self.get(request.group)
        prefix = (request.instance_id or request.client_id)[:_MAX_PREFIX_CHARACTERS]
        member_id = request.member_id or f"{prefix}-{uuid.uuid4()}"
        persistence.check_storable(request.group, member_id, *(metadata for _, metadata in request.protocols))
        response = consumer_classic.join(group, self.topics, request, self._clock.monotonic(), member_id)
        self._after(group)
        await self._writes.flush(group)
        return response

    async def classic_sync(self, request: SyncRequest) -> SyncResponse:
        group = self.get(request.group)
        return consumer_classic.sync(group, self.topics, request, self._clock.monotonic())

    def classic_heartbeat(self, group: str, member_id: str, generation: int, instance_id: str | None) -> None:
        consumer_classic.heartbeat(
            self.get(group), member_id, generation, instance_id, self._clock.monotonic()
        )

    def classic_leave(self, group: str, leavers: Sequence[Leaver]) -> list[SparrowError | None]:
        state = self.get(group)
        results = consumer_classic.leave(state, leavers)
        self._after(state)
        self._writes.begin(state)
        return results

    # ── called by the registry ────────────────────────────────────────────────────────────────────

    def describe(self, group: str) -> GroupDescription:
        return describe(self._groups[group], self.topics)

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """Raise an error unless a member at its epoch commits, or the group is empty. Members may
        commit any partition.

        Raises:
            UnknownMember, StaleMemberEpoch
            StaleMember: the same in a transaction, or for a member that speaks the classic
                protocol.
            UnsupportedVersion: the client does not know member epochs.
        """
        state = self._groups[group]
        if committer.epoch < 0 and not state.members:
            return
        if committer.is_transactional and committer.is_no_member:
            return
        member = state.get(committer.member_id)
        if member.classic is None and not committer.is_transactional and not committer.knows_member_epochs:
            raise UnsupportedVersion(
                "Members of a consumer group commit offsets with OffsetCommit 9 or later."
            )
        _check_epoch(state, committer.member_id, committer.epoch, has_generations=committer.is_transactional)

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Raise UnknownMember, StaleMemberEpoch or StaleMember if the member is not what it
        says.
        """
        if not (member_id is None and epoch < 0):
            _check_epoch(self._groups[group], member_id or "", epoch)

    def subscribed(self, group: str) -> Collection[str]:
        return self._groups[group].subscribed_topics()

    def drop(self, group: str) -> Sequence[Write]:
        state = self._forget(group)
        return persistence.deletes(group, [*state.members, *state.changes.members])

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        for name in partition_counts:
            self._follow_topic(name)
        for group in self._groups.values():
            group.topics_changed(partition_counts)

    async def tick(self) -> None:
        """Remove members whose time is over.

        Raises:
            DiskFull, StorageFailed: something could not be written; it is tried again.
        """
        now = self._clock.monotonic()
        await self._writes.sweep(self._groups, lambda group: self._expire(group, now))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    async def _learn_regexes(self, name: str, beat: Heartbeat) -> None:
        """Match, in slices, the regular expressions that this heartbeat may need: its own and those
        of the group.
        """
        persistence.check_storable(name, beat.regex or "")
        group = self._groups.get(name)
        members = () if group is None else tuple(group.members.values())
        for regex in {beat.regex, *(member.regex for member in members)}:
            if regex:
                await self._regexes.learn(regex, partial(asyncio.sleep, 0))

    def _beat(
        self, name: str, beat: Heartbeat, may_see: Callable[[str], bool]
    ) -> tuple[ConsumerGroup, HeartbeatResponse]:
        if beat.member_epoch > JOIN_EPOCH:
            self.get(name)
        if not beat.member_id:
            beat = replace(beat, member_id=str(uuid.uuid4()))
        said = (beat.instance_id or "", beat.rack_id or "", beat.regex or "", *(beat.topics or ()))
        persistence.check_storable(name, beat.member_id, *said)

        def resolve(regex: str) -> frozenset[str]:
            return frozenset(topic for topic in self._regexes.matching(regex) if may_see(topic))

        with self._group_for(name) as group:
            session_timeout_s = self._limits_of(name).session_timeout_ms / 1000
            response = group.heartbeat(beat, self._clock.monotonic(), session_timeout_s, resolve)
        return group, response

    # ── creation, conversion, removal ─────────────────────────────────────────────────────────────

    @contextmanager
    def _group_for(self, name: str) -> Iterator[ConsumerGroup]:
        """Yield the group. One that is new, or was a classic group, is kept if the body
        succeeds.
        """
        known = self._groups.get(name)
        if known is not None:
            yield known
            return
        group = self._empty_group(name)
        classic = self._release_classic(name)
        try:
            if classic is not None:
                for member in classic.members.values():
                    persistence.check_storable(name, member.member_id)
                upgrade(classic, group, self.topics)
                group.start_clocks(self._clock.monotonic(), 0)
            yield group
            self._claim(name)
        except BaseException:
            if classic is not None:
                self._classic.adopt(classic)
            raise
        if classic is not None:
            self._writes.add_to_next(name, [self._classic.forget(name)])
            log.info("classic group %s with %d members is a consumer group now", name, len(classic.members))
        self._groups[name] = group

    def _release_classic(self, name: str) -> ClassicGroup | None:
        owner = self._registry.owner(name)
        if owner is None or owner.type is not GroupType.CLASSIC or not owner.member_count(name):
            return None
        is_convertible = owner.info(name).protocol_type == PROTOCOL_TYPE
        limits = self._limits_of(name)
        if not (limits.can_upgrade and is_convertible and owner.member_count(name) <= limits.max_members):
            return None
        return self._classic.release(name)

    def _claim(self, name: str) -> None:
        try:
            self._registry.claim(name, self.type)
        except GroupTypeMismatch as error:
            raise UnknownGroup(f"Group {name!r} is no consumer group: {error.text}") from error

    def _after(self, group: ConsumerGroup) -> None:
        """Note for the registry whether there are members; convert a group of classic members
        back.
        """
        if self._groups.get(group.name) is not group:
            return
        if is_all_classic(group) and self._limits_of(group.name).can_downgrade:
            self._downgrade(group)
        else:
            self._note_population(group)

    def _expire(self, group: ConsumerGroup, now: float) -> None:
        for member_id, reason in group.expire(now):
            log.info("group %s: member %s is out: %s", group.name, member_id, reason.value)
        self._after(group)

    def _downgrade(self, group: ConsumerGroup) -> None:
        classic = downgrade(group, self.topics, self._classic_limits, self._clock.monotonic())
        gone = [*group.members, *group.take_changes().members]
        self._writes.add_to_next(group.name, [*persistence.deletes(group.name, set(gone)), entry_of(classic)])
        self._writes.begin(group)
        self._forget(group.name)
        self._classic.adopt(classic)
        log.info("consumer group %s with %d members is a classic group now", group.name, len(classic.members))

    def _forget(self, name: str) -> ConsumerGroup:
        self._populated.discard(name)
        return self._groups.pop(name)

    def _empty_group(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(name, self.topics, self._limits_of(name).max_members)

    def _follow_topic(self, name: str) -> None:
        before, after = self.topics.find(name), self._find_topic(name)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self.topics.remove(name)
            self._regexes.topic_deleted(name)
        if after is not None:
            self.topics.put(after)
            if before is None or before.topic_id != after.topic_id:
                self._regexes.topic_created(name)


def _check_epoch(group: ConsumerGroup, member_id: str, epoch: int, *, has_generations: bool = False) -> None:
    """Check a member's epoch and raise the errors that the caller's protocol version knows."""
    try:
        group.check_member_epoch(member_id, epoch)
    except StaleMemberEpoch as error:
        if has_generations or group.get(member_id).classic is not None:
            raise StaleMember(error.text) from error
        raise
