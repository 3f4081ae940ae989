"""The registry of groups: one namespace of names, one set of committed offsets, one retention.

A group is of one kind at a time (`GroupType`): native ("sparrow"), classic, consumer (KIP-848),
share (KIP-932). Each kind has a *coordinator*, which holds the groups of its kind and knows its
protocol. The registry knows what all kinds have in common: which coordinator owns a name, the
committed offsets and when they expire, listing and deleting. It imports no kind of group;
`assembly` registers the four coordinators. Services reach the operations of a protocol through a
coordinator (`groups.native.join`, `groups.classic.join`, `groups.consumer.heartbeat`, …) and
everything else through the registry. Frontends call the services (`service.py`).

The interface between registry and coordinators, in full:

* A coordinator satisfies `GroupCoordinator` (module `coordinator`; `table` is the base class) and
  is passed to `register` before `load`. Its entries in the meta store have their own kind
  ("classic-group", "consumer-group", …); the registry never reads them.
* Before a coordinator creates a group, it calls `claim(name, its type)`. An empty group of another
  kind gives the name up: its coordinator's `drop` is called, its entries are deleted, the committed
  offsets stay. A group with members keeps the name: `claim` raises `GroupTypeMismatch`. There must
  be no `await` between `claim` and the moment when the coordinator owns the name.
* When a group gets its first member, or is loaded with members, the coordinator calls
  `has_members(name, type)`; when it loses its last member, `became_empty(name, type)`. From then on
  its offsets age.
* `check_commit`, `check_fetch` and `subscribed` let a coordinator decide when offsets are
  committed, fetched and deleted. The registry calls them only for names that the coordinator owns.
* A coordinator may keep an empty group (`owns` stays true) or forget it with its last member, as
  native groups do. When an empty group has no offsets left, the registry calls `drop`. Groups of a
  coordinator that is registered as *lasting* (share) have no committed offsets: they stay until
  they are deleted, and do not give their name up.
* Online conversion (classic ⇄ consumer): `groups.classic.release(name)` returns the pure
  `ClassicGroup` of a group with members. From then on the classic coordinator does not own the
  name, waiting JoinGroup and SyncGroup requests have been answered with RebalanceInProgress, and
  `claim` succeeds. `groups.classic.adopt(group)` is the way back: the classic coordinator owns the
  name at once and begins a rebalance. Requests of the classic protocol for a name that another
  coordinator owns are passed to that coordinator if it satisfies `ClassicMembers`, so services
  always call `groups.classic` for the classic protocol.

Transactions call `check_commit` with `Committer.is_transactional`, then `offset_writes`, which
returns the entries and a function to call when they are durable: the offsets are committed in one
batch with the decision. `pending` returns the partitions with undecided offsets. A plain commit and
a deletion supersede these (`follow`).

Everything here runs on the loop thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import (
    GroupNotEmpty,
    GroupSubscribedToTopic,
    GroupTypeMismatch,
    InvalidArgument,
    OffsetMetadataTooLarge,
    StaleMember,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.offsets import NO_MEMBER, Committer, OffsetAndMetadata, Offsets
from sparrow.broker.groups.retention import GroupRetention
from sparrow.model.groups import GroupDescription, GroupListing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.groups.coordinator import GroupCoordinator
    from sparrow.broker.groups.offsets import Undecided
    from sparrow.meta.store import MetaStore, Put, Write
    from sparrow.records.topic_partition import TopicPartition

MAX_METADATA_BYTES: Final = 4096  # Kafka: offset.metadata.max.bytes
_EXPIRY_INTERVAL_S: Final = 60.0
_DROPS_PER_WRITE: Final = 500


class GroupRegistry:
    """All groups of a broker. Call `register` for each coordinator, then `load`.

    Args:
        offsets_retention_ms: how long offsets of a group without members are kept (Kafka:
            offsets.retention.minutes).
    """

    def __init__(self, meta: MetaStore, clock: Clock, *, offsets_retention_ms: int = 7 * 86_400_000) -> None:
        self.meta = meta
        self.clock = clock
        self.partition_counts: dict[str, int] = {}
        """The number of partitions by topic: the broker's live table."""
        self.pending: Callable[[str], Collection[TopicPartition]] = lambda _group: ()
        """Return the partitions of a group with offsets in undecided transactions."""
        self._coordinators: dict[GroupType, GroupCoordinator] = {}
        self._lasting: set[GroupType] = set()
        self._offsets = Offsets(meta)
        self._retention = GroupRetention(meta, clock, offsets_retention_ms)
        self._writing: set[asyncio.Task[None]] = set()
        self._expired_at = clock.monotonic()

    def follow(self, undecided: Undecided) -> None:
        """Connect the offsets of undecided transactions. Call it before anything is committed."""
        self.pending = undecided.of_group
        self._offsets.undecided = undecided

    def register(self, coordinator: GroupCoordinator, *, is_lasting: bool = False) -> None:
        """Add the coordinator of a kind of group. Call it before `load`.

        Args:
            is_lasting: its groups commit no offsets, stay until they are deleted, and keep their
                name when they are empty.
        """
        self._coordinators[coordinator.type] = coordinator
        if is_lasting:
            self._lasting.add(coordinator.type)

    async def load(self) -> None:
        """Read the offsets and groups of earlier runs. Call `topics_changed` with all topics
        afterwards.
        """
        await self._offsets.load()
        await self._retention.load()
        for coordinator in self._coordinators.values():
            await coordinator.load()
        await self._settle_names()
        self._retention.empty_absent_groups(
            {
                name
                for coordinator in self._coordinators.values()
                for name in coordinator.names()
                if coordinator.member_count(name)
            }
        )

    async def _settle_names(self) -> None:
        """Decide which kind owns a name that two kinds have after a crash during a change: the one
        with members, else the last.
        """
        names = Counter(name for coordinator in self._coordinators.values() for name in coordinator.names())
        for name in [name for name, times in names.items() if times > 1]:
            owners = [coordinator for coordinator in self._coordinators.values() if coordinator.owns(name)]
            owners.sort(key=lambda coordinator: bool(coordinator.member_count(name)))
            for coordinator in owners[:-1]:
                await self.meta.write(coordinator.drop(name))

    # ── owners of names ───────────────────────────────────────────────────────────────────────────

    def owner(self, group: str) -> GroupCoordinator | None:
        """Return the coordinator that owns a name, or None. A name without an owner may have
        offsets.
        """
        for coordinator in self._coordinators.values():
            if coordinator.owns(group):
                return coordinator
        return None

    def type_of(self, group: str) -> GroupType | None:
        """Return the kind of a group, or None if the group is unknown. A group that only has
        offsets is of its last kind, or classic.
        """
        coordinator = self.owner(group)
        if coordinator is not None:
            return coordinator.type
        if group in self._offsets.groups():
            return self._retention.type_of(group) or GroupType.CLASSIC
        return None

    def claim(self, group: str, kind: GroupType) -> None:
        """Free a name for a kind of group.

        Raises:
            GroupTypeMismatch: a group of another kind has the name, and has members or is lasting.
        """
        coordinator = self.owner(group)
        if coordinator is None or coordinator.type is kind:
            return
        if coordinator.member_count(group):
            raise GroupTypeMismatch(
                f"Group {group!r} is a {coordinator.type} group with members; stop them, "
                "or use another group."
            )
        if coordinator.type in self._lasting:
            raise GroupTypeMismatch(
                f"Group {group!r} is a {coordinator.type} group; delete it, or use another group."
            )
        self._write_soon(coordinator.drop(group))

    def has_members(self, group: str, kind: GroupType) -> None:
        """Note that a group got its first member."""
        self._retention.has_members(group, kind)

    def became_empty(self, group: str, kind: GroupType) -> None:
        """Note that a group lost its last member: its offsets age from now on."""
        self._retention.became_empty(group, kind)
        self._forget_unused(group)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────

    def check_commit(
        self, group: str, committer: Committer = NO_MEMBER, partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Raise an error if offsets of a group may not be committed now.

        Raises:
            GroupNotEmpty: the committer is no member, but the (native) group has members.
                UnknownMember, StaleMember, FencedInstance, RebalanceInProgress, …: raised by the
                group's coordinator.
        """
        coordinator = self.owner(group)
        if coordinator is not None:
            coordinator.check_commit(group, committer, partitions)
        elif committer.epoch >= 0:
            raise _no_generation(group, committer)

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        committer: Committer = NO_MEMBER,
    ) -> None:
        """Commit offsets, durably. The time of the commit is filled in.

        Raises:
            UnknownTopic, UnknownPartition: there is no such partition.
            OffsetMetadataTooLarge: more than `MAX_METADATA_BYTES`.
            DiskFull, StorageFailed: nothing was committed. And what `check_commit` raises.
        """
        for partition, value in offsets.items():
            self.check_partition(partition)
            check_metadata(partition, value)
        self.check_commit(group, committer, offsets)
        await self._offsets.commit(group, self._stamped(offsets))

    def offset_writes(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> tuple[list[Put], Callable[[], None]]:
        """Return the entries of a commit, to be written together with others, and a function to
        call when they are durable.
        """
        stamped = self._stamped(offsets)
        return self._offsets.writes(group, stamped), lambda: self._offsets.apply(group, stamped)

    def check_partition(self, partition: TopicPartition) -> None:
        """Raise UnknownTopic or UnknownPartition unless there is such a partition."""
        topic, number = partition
        count = self.partition_counts.get(topic)
        if count is None:
            raise UnknownTopic(f"There is no topic {topic!r}; no offset was committed.")
        if not 0 <= number < count:
            raise UnknownPartition(
                f"Topic {topic!r} has partitions 0 to {count - 1}, not {number}; no offset was committed."
            )

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Raise an error if a member that names itself may not fetch offsets (OffsetFetch 9).

        Raises:
            UnknownMember, StaleMemberEpoch
        """
        coordinator = self.owner(group)
        if coordinator is not None:
            coordinator.check_fetch(group, member_id, epoch)

    def moves_on(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Return True if a commit is a consumer's normal progress: no offset is the first one or
        moves back.
        """
        return all(
            (before := self.committed_offset(group, key)) is not None and value.offset >= before
            for key, value in offsets.items()
        )

    def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset, which is the next one to read. None: nothing was committed,
        or a Kafka client committed a symbolic offset like "earliest".
        """
        committed = self._offsets.get(group, partition)
        return None if committed is None or committed.offset < 0 else committed.offset

    async def commits_settled(self) -> None:
        """Wait for the commits that are under way: a new holder of a partition begins behind the
        last commit of the one before it.
        """
        await self._offsets.settle_begun()

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of some partitions, or of all. Partitions without one are
        left out.
        """
        committed = self._offsets.of_group(group)
        if partitions is None:
            return committed
        return {partition: committed[partition] for partition in partitions if partition in committed}

    async def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete committed offsets of topics that no member reads.

        Raises:
            UnknownGroup
            GroupNotEmpty: it has members that do not say which topics they read.
            GroupSubscribedToTopic: members read some of the topics; nothing was deleted.
        """
        wanted = self.subscribed_topics(group, {topic for topic, _ in partitions})
        if wanted:
            raise GroupSubscribedToTopic(
                f"Members of group {group!r} read {', '.join(sorted(wanted))}; stop them before "
                "its offsets are deleted."
            )
        await self._offsets.delete(group, partitions)
        self._forget_unused(group)

    def subscribed_topics(self, group: str, topics: Collection[str]) -> set[str]:
        """Return those of the topics that members of the group read, or may read.

        Raises:
            UnknownGroup, GroupNotEmpty
        """
        self._require_known(group)
        coordinator = self.owner(group)
        if coordinator is None or not (coordinator.member_count(group) or coordinator.type in self._lasting):
            return set()
        read = coordinator.subscribed(group)
        return set(topics) if read is None else set(topics) & set(read)

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    def list_groups(self) -> list[GroupListing]:
        """Return all groups that have members or offsets, or that a coordinator keeps, by name."""
        return [self.info(name) for name in sorted(self.names())]

    def names(self) -> set[str]:
        """Return the names of the groups that `list_groups` returns."""
        names = set(self._offsets.groups())
        names.update(*(coordinator.names() for coordinator in self._coordinators.values()))
        return names

    def info(self, group: str) -> GroupListing:
        """Return a group as `list_groups` shows it.

        Raises:
            UnknownGroup
        """
        self._require_known(group)
        coordinator = self.owner(group)
        if coordinator is not None:
            return coordinator.info(group)
        return GroupListing(group, GroupState.EMPTY, 0, self.type_of(group) or GroupType.CLASSIC)

    def describe(self, group: str) -> GroupDescription:
        """Return a group with its members.

        Raises:
            UnknownGroup
        """
        self._require_known(group)
        coordinator = self.owner(group)
        if coordinator is not None:
            return coordinator.describe(group)
        kind = self.type_of(group) or GroupType.CLASSIC
        return GroupDescription(group, GroupState.EMPTY, 0, type=kind)

    async def delete_group(self, group: str) -> None:
        """Delete a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty
        """
        self._require_known(group)
        self.require_empty(group, "delete it")
        coordinator = self.owner(group)
        if coordinator is not None:
            await coordinator.delete_data(group)
        await self._offsets.delete(group)
        # A member may have joined meanwhile; then only the offsets are gone.
        coordinator = self.owner(group)
        if coordinator is not None and not coordinator.member_count(group):
            await self.meta.write(coordinator.drop(group))
        self._forget_unused(group)

    def is_known(self, group: str) -> bool:
        """Return True if the group has offsets or a coordinator owns it."""
        return group in self._offsets.groups() or self.owner(group) is not None

    def require_empty(self, group: str, purpose: str) -> None:
        """Raise GroupNotEmpty if the group has members."""
        coordinator = self.owner(group)
        count = coordinator.member_count(group) if coordinator is not None else 0
        if count:
            raise GroupNotEmpty(f"Group {group!r} has {count} members; stop them to {purpose}.")

    # ── topics and time ───────────────────────────────────────────────────────────────────────────

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Note that topics were created, got more partitions, or (0) were deleted. Members learn
        from the coordinators what they get, and from the topics that one is deleted.
        """
        for topic, count in partition_counts.items():
            if count:
                self.partition_counts[topic] = count
            else:
                self.partition_counts.pop(topic, None)
        for coordinator in self._coordinators.values():
            coordinator.topics_changed(partition_counts)

    async def topic_deleted(self, topic: str) -> None:
        """Delete what was committed for a deleted topic."""
        await self._offsets.delete_topics(lambda name: name == topic)

    async def forget_other_topics(self, topics: Collection[str]) -> None:
        """Delete what was committed for all topics but these. Called after a start, for topics
        whose deletion was interrupted by a crash.
        """
        await self._offsets.delete_topics(lambda name: name not in topics)

    async def tick(self) -> None:
        """Fence members whose time is up and delete expired offsets. Call it about twice a second.

        Raises:
            DiskFull, StorageFailed: something could not be written. Members were dealt with all the
                same; the rest is tried again.
        """
        for coordinator in self._coordinators.values():
            await coordinator.tick()
        await self._expire_offsets()
        await self._retention.flush()

    def close(self) -> None:
        """Stop all timers: the broker is closing."""
        for coordinator in self._coordinators.values():
            coordinator.close()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _stamped(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        now_ms = self.clock.wall_ms()
        return {partition: value.stamped(now_ms) for partition, value in offsets.items()}

    def _require_known(self, group: str) -> None:
        if not self.is_known(group):
            raise UnknownGroup(
                f"There is no group {group!r}; `list` shows those that have members or offsets."
            )

    async def _expire_offsets(self) -> None:
        now = self.clock.monotonic()
        if now - self._expired_at < _EXPIRY_INTERVAL_S or not self._retention.is_due():
            return
        self._expired_at = now
        for group in list(self._offsets.groups()):
            expired = self._expired_offsets(group)
            if expired:
                await self._offsets.delete(group, expired)
                self._forget_unused(group)
            else:
                await asyncio.sleep(0)  # there may be many, with many partitions each
        await self._drop_unused()

    async def _drop_unused(self) -> None:
        """Drop groups without members and offsets, many in one write."""
        names = self._all_names()
        for start in range(0, len(names), _DROPS_PER_WRITE):
            writes: list[Write] = []
            for group in names[start : start + _DROPS_PER_WRITE]:
                coordinator = self.owner(group)
                if coordinator is not None and self._is_unused(coordinator, group):
                    writes += coordinator.drop(group)
                self._forget_unused(group)
            await self.meta.write(writes)
            await asyncio.sleep(0)

    def _is_unused(self, coordinator: GroupCoordinator, group: str) -> bool:
        """Return True if a group has no members and no offsets, decided or not, so that it may be
        dropped.
        """
        if coordinator.member_count(group) or coordinator.type in self._lasting:
            return False
        return not self.pending(group) and group not in self._offsets.groups()

    def _expired_offsets(self, group: str) -> list[TopicPartition]:
        coordinator = self.owner(group)
        read: Collection[str] = ()
        has_members = coordinator is not None and bool(coordinator.member_count(group))
        if has_members:
            assert coordinator is not None
            known = _read_if_settled(coordinator, group)
            if known is None:
                return []
            read = known
        spared = self.pending(group)
        return [
            partition
            for partition in self._retention.expired(
                group, self._offsets.of_group(group), has_members=has_members
            )
            if partition[0] not in read and partition not in spared
        ]

    def _all_names(self) -> list[str]:
        return [name for coordinator in self._coordinators.values() for name in list(coordinator.names())]

    def _forget_unused(self, group: str) -> None:
        """Delete the note of when a group became empty, if nothing else is known of it."""
        if not self.is_known(group):
            self._retention.forget(group)

    def _write_soon(self, writes: Sequence[Write]) -> None:
        """Write in the background. Later writes of the same entries come after it."""
        if writes:
            task = asyncio.get_running_loop().create_task(self.meta.write(writes))
            self._writing.add(task)
            task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled():
            # The entry of an empty group may stay: `load` prefers the kind that has members.
            task.exception()


def _read_if_settled(coordinator: GroupCoordinator, group: str) -> Collection[str] | None:
    """Return the topics that members read, or None if that cannot be known now."""
    if coordinator.info(group).state is not GroupState.STABLE:
        return None
    try:
        return coordinator.subscribed(group)
    except (GroupNotEmpty, UnknownGroup):
        return None


def check_start_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raise InvalidArgument for a negative offset. The Kafka frontend does not call this: Kafka
    keeps any number, and KafkaJS resets groups by -2 and -1.
    """
    for (topic, number), value in offsets.items():
        if value.offset < 0:
            raise InvalidArgument(f"Offset {value.offset} of {topic!r}, partition {number}, is negative.")


def check_metadata(partition: TopicPartition, value: OffsetAndMetadata) -> None:
    """Raise OffsetMetadataTooLarge if the metadata of a commit is too long."""
    topic, number = partition
    if len(value.metadata.encode()) > MAX_METADATA_BYTES:
        raise OffsetMetadataTooLarge(
            f"The metadata of {topic!r}, partition {number}, has more than {MAX_METADATA_BYTES} bytes."
        )


def _no_generation(group: str, committer: Committer) -> Exception:
    """Return the error of a commit for a missing group: that the group is gone (KIP-848 clients),
    or that the generation is (older clients).
    """
    if committer.knows_member_epochs:
        return UnknownGroup(f"There is no group {group!r}, so no member of it can commit; join again.")
    return StaleMember(f"There is no group {group!r} with generation {committer.epoch}; join again.")


def unknown_member(group: str, member_id: str) -> UnknownMember:
    """Return the error of a member id that a group does not have."""
    return UnknownMember(f"{member_id!r} is no member of group {group!r} (any more); join again.")
