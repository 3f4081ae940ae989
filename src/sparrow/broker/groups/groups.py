"""The roof over the kinds of groups: one namespace of names, one set of committed offsets, one retention.

A group is of one kind at a time (`GroupType`): native ("sparrow"), classic, consumer (KIP-848), share (KIP-932). Each kind is a
*family*: an object that has the groups of its kind and knows its protocol. The roof knows what is common: who a name belongs to,
the offsets, when they are forgotten, listing, deleting. Doors call a family for its protocol's verbs (`groups.native.join`,
`groups.classic.join`, `groups.consumer.heartbeat`, …) and the roof for the rest.

The seam between both, in full:

* A family satisfies `GroupFamily` (module `family`) and is given to `Groups` by `register` before `load`. A family's facts in the meta store have
  a kind of their own ("classic-group", "consumer-group", …); the roof never reads them.
* Before a family makes a group, it calls `claim(name, its type)`. An empty group of another kind gives the name up (its
  family's `drop` is called, its facts are deleted, the committed offsets stay); one with members refuses with `GroupTypeMismatch`. Between
  `claim` and the moment when the family owns the name there must be no `await`.
* When a group gets its first member, or is loaded with some, the family calls `has_members(name, type)`; when the last one is
  gone, `became_empty(name, type)`. From then on its offsets age.
* `check_commit`, `check_fetch` and `subscribed` are a family's say when offsets are committed, fetched and deleted. The roof
  calls them only for names that the family owns.
* A family may keep an empty group (`owns` stays true) or forget it when its last member is gone, as native groups do. When an
  empty group has no offsets left, the roof calls `drop`. Groups of a family that is registered as *lasting* (share) have no committed offsets:
  they stay until they are deleted, and do not give their name up.
* Online conversion (classic ⇄ consumer): `groups.classic.release(name)` gives the consumer family the pure `ClassicGroup` of a group
  with members; from then on the classic family does not own the name, JoinGroup and SyncGroup requests that waited have been answered
  with RebalanceInProgress, and `claim` succeeds. `groups.classic.adopt(group)` is the way back: the classic family owns the name at once
  and begins a rebalance. Verbs of the classic protocol for a name that another family owns are passed on to that family if it
  satisfies `ClassicMembers`: so doors call `groups.classic` for the classic protocol always.

Transactions: `check_commit` with `Committer.is_transactional`, then `offset_writes` gives the facts and what to do when they are
durable, so that offsets are committed in one batch with the decision; `pending` names the partitions with undecided offsets. A plain
commit and a deletion take these along (`follow`).

Loop thread only, all of it.
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
from sparrow.broker.groups.description import GroupDescription, GroupInfo, GroupState, GroupType
from sparrow.broker.groups.family import NOBODY, Committer
from sparrow.broker.groups.offsets import OffsetAndMetadata, Offsets
from sparrow.broker.groups.retention import GroupRetention

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.groups.classic.coordinator import ClassicGroups
    from sparrow.broker.groups.consumer.coordinator import ConsumerGroups
    from sparrow.broker.groups.family import GroupFamily
    from sparrow.broker.groups.native.assignor import Partition
    from sparrow.broker.groups.native.coordinator import GroupCoordinator
    from sparrow.broker.groups.offsets import Undecided
    from sparrow.broker.groups.share.coordinator import ShareGroups
    from sparrow.meta.store import MetaStore, Put, Write

MAX_NAME_CHARACTERS: Final = 255
MAX_METADATA_BYTES: Final = 4096  # Kafka: offset.metadata.max.bytes
_EXPIRY_INTERVAL_S: Final = 60.0
_DROPS_PER_WRITE: Final = 500


class Groups:
    """All groups of a broker. `register` the families, then `load`.

    Args:
        offsets_retention_ms: how long offsets of a group without members are kept (Kafka: offsets.retention.minutes).
    """

    native: GroupCoordinator
    """Set by whoever composes the broker, as are the others; each is registered, too."""
    classic: ClassicGroups
    consumer: ConsumerGroups
    share: ShareGroups

    def __init__(self, meta: MetaStore, clock: Clock, *, offsets_retention_ms: int = 7 * 86_400_000) -> None:
        self.meta = meta
        self.clock = clock
        self.partition_counts: dict[str, int] = {}
        """The broker's live table of partitions by topic."""
        self.pending: Callable[[str], Collection[Partition]] = lambda _group: ()
        """Partitions of a group with offsets in transactions that are not decided."""
        self._families: dict[GroupType, GroupFamily] = {}
        self._lasting: set[GroupType] = set()
        self._offsets = Offsets(meta)
        self._retention = GroupRetention(meta, clock, offsets_retention_ms)
        self._writing: set[asyncio.Task[None]] = set()
        self._expired_at = clock.monotonic()

    def follow(self, undecided: Undecided) -> None:
        """Know the offsets of transactions that are not decided; before anything is committed."""
        self.pending = undecided.of_group
        self._offsets.undecided = undecided

    def register(self, family: GroupFamily, *, is_lasting: bool = False) -> None:
        """Add a kind of groups; before `load`.

        Args:
            is_lasting: its groups commit no offsets, stay until they are deleted, and keep their name when they are empty.
        """
        self._families[family.type] = family
        if is_lasting:
            self._lasting.add(family.type)

    async def load(self) -> None:
        """Read the offsets and groups of earlier runs. Then tell all topics with `topics_changed`."""
        await self._offsets.load()
        await self._retention.load()
        for family in self._families.values():
            await family.load()
        await self._settle_names()
        self._retention.nobody_else_has_members(
            {
                name
                for family in self._families.values()
                for name in family.names()
                if family.member_count(name)
            }
        )

    async def _settle_names(self) -> None:
        """A name that a crash left with two kinds, in the middle of a change, belongs to the one with members, else to the last."""
        names = Counter(name for family in self._families.values() for name in family.names())
        for name in [name for name, times in names.items() if times > 1]:
            owners = [family for family in self._families.values() if family.owns(name)]
            owners.sort(key=lambda family: bool(family.member_count(name)))
            for family in owners[:-1]:
                await self.meta.write(family.drop(name))

    # ── whose name it is ──────────────────────────────────────────────────────────────────────────

    def owner(self, group: str) -> GroupFamily | None:
        """The family that owns a name; None: nobody does, there may be offsets."""
        for family in self._families.values():
            if family.owns(group):
                return family
        return None

    def type_of(self, group: str) -> GroupType | None:
        """The kind of a group; one that only has offsets is of the kind that it last was, or classic. None: unknown."""
        family = self.owner(group)
        if family is not None:
            return family.type
        if group in self._offsets.groups():
            return self._retention.type_of(group) or GroupType.CLASSIC
        return None

    def claim(self, group: str, kind: GroupType) -> None:
        """Make a name free for a kind.

        Raises:
            GroupTypeMismatch: a group of another kind has it, and has members or is a lasting one.
        """
        family = self.owner(group)
        if family is None or family.type is kind:
            return
        if family.member_count(group):
            raise GroupTypeMismatch(
                f"Group {group!r} is a {family.type} group with members; stop them, or use another group."
            )
        if family.type in self._lasting:
            raise GroupTypeMismatch(
                f"Group {group!r} is a {family.type} group; delete it, or use another group."
            )
        self._write_soon(family.drop(group))

    def has_members(self, group: str, kind: GroupType) -> None:
        """A group got its first member."""
        self._retention.has_members(group, kind)

    def became_empty(self, group: str, kind: GroupType) -> None:
        """A group lost its last member; its offsets age from now on."""
        self._retention.became_empty(group, kind)
        self._forget_unused(group)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────

    def check_commit(
        self, group: str, committer: Committer = NOBODY, partitions: Iterable[Partition] = ()
    ) -> None:
        """Whether offsets of a group may be committed now.

        Raises:
            GroupNotEmpty: nobody commits, but the (native) group has members.
            UnknownMember, StaleMember, FencedInstance, RebalanceInProgress, …: what the group's kind says.
        """
        family = self.owner(group)
        if family is not None:
            family.check_commit(group, committer, partitions)
        elif committer.epoch >= 0:
            raise _no_generation(group, committer)

    async def commit(
        self,
        group: str,
        offsets: Mapping[Partition, OffsetAndMetadata],
        committer: Committer = NOBODY,
    ) -> None:
        """Commit offsets; durable when it returns. The time of the commit is filled in.

        Raises:
            UnknownTopic, UnknownPartition: there is no such partition.
            OffsetMetadataTooLarge: more than `MAX_METADATA_BYTES`.
            DiskFull, StorageFailed: nothing was committed.
            what `check_commit` raises
        """
        for partition, value in offsets.items():
            self.check_partition(partition)
            check_metadata(partition, value)
        self.check_commit(group, committer, offsets)
        await self._offsets.commit(group, self._stamped(offsets))

    def offset_writes(
        self, group: str, offsets: Mapping[Partition, OffsetAndMetadata]
    ) -> tuple[list[Put], Callable[[], None]]:
        """The facts of a commit, to be written with others, and what to call when they are durable."""
        stamped = self._stamped(offsets)
        return self._offsets.writes(group, stamped), lambda: self._offsets.apply(group, stamped)

    def check_partition(self, partition: Partition) -> None:
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
        """Whether a member may fetch offsets: it is what it says, if it says who it is (OffsetFetch 9).

        Raises:
            UnknownMember, StaleMemberEpoch
        """
        family = self.owner(group)
        if family is not None:
            family.check_fetch(group, member_id, epoch)

    def committed_offset(self, group: str, partition: Partition) -> int | None:
        """The next offset to read, as committed, or None: nothing was committed, or a Kafka client committed a word like "earliest"."""
        committed = self._offsets.get(group, partition)
        return None if committed is None or committed.offset < 0 else committed.offset

    def fetch_offsets(
        self, group: str, partitions: Iterable[Partition] | None = None
    ) -> dict[Partition, OffsetAndMetadata]:
        """What the group committed, for some partitions or all; without those it never committed."""
        committed = self._offsets.of_group(group)
        if partitions is None:
            return committed
        return {partition: committed[partition] for partition in partitions if partition in committed}

    async def reset_offsets(self, group: str, offsets: Mapping[Partition, OffsetAndMetadata]) -> None:
        """Set offsets of an existing group that has no members.

        Raises:
            UnknownGroup, GroupNotEmpty, and what `commit` raises.
        """
        self._require_known(group)
        self.require_empty(group, "reset its offsets")
        await self.commit(group, offsets)

    async def delete_offsets(self, group: str, partitions: Collection[Partition]) -> None:
        """Forget offsets; not of topics that members read.

        Raises:
            UnknownGroup
            GroupNotEmpty: it has members that do not say which topics they read.
            GroupSubscribedToTopic: members read some of the topics; nothing was deleted.
        """
        wanted = self.subscribed_topics(group, {topic for topic, _ in partitions})
        if wanted:
            raise GroupSubscribedToTopic(
                f"Members of group {group!r} read {', '.join(sorted(wanted))}; stop them before its offsets are deleted."
            )
        await self._offsets.delete(group, partitions)
        self._forget_unused(group)

    def subscribed_topics(self, group: str, topics: Collection[str]) -> set[str]:
        """Those of the topics that members of the group read, or may read.

        Raises:
            UnknownGroup, GroupNotEmpty
        """
        self._require_known(group)
        family = self.owner(group)
        if family is None or not (family.member_count(group) or family.type in self._lasting):
            return set()
        read = family.subscribed(group)
        return set(topics) if read is None else set(topics) & set(read)

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    def list_groups(self) -> list[GroupInfo]:
        """All groups that have members or offsets, or that a family keeps, by name."""
        return [self.info(name) for name in sorted(self.names())]

    def names(self) -> set[str]:
        """Of the same."""
        names = set(self._offsets.groups())
        names.update(*(family.names() for family in self._families.values()))
        return names

    def info(self, group: str) -> GroupInfo:
        """A group in a list.

        Raises:
            UnknownGroup
        """
        self._require_known(group)
        family = self.owner(group)
        if family is not None:
            return family.info(group)
        return GroupInfo(group, GroupState.EMPTY, 0, self.type_of(group) or GroupType.CLASSIC)

    def describe(self, group: str) -> GroupDescription:
        """A group with its members.

        Raises:
            UnknownGroup
        """
        self._require_known(group)
        family = self.owner(group)
        if family is not None:
            return family.describe(group)
        kind = self.type_of(group) or GroupType.CLASSIC
        return GroupDescription(group, GroupState.EMPTY, 0, (), kind)

    async def delete_group(self, group: str) -> None:
        """Forget a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty
        """
        self._require_known(group)
        self.require_empty(group, "delete it")
        owner = self.owner(group)
        if owner is not None and owner.type is GroupType.SHARE:
            await self.share.delete_queue(group)
        await self._offsets.delete(group)
        # Somebody may have joined meanwhile; then only the offsets are gone.
        family = self.owner(group)
        if family is not None and not family.member_count(group):
            await self.meta.write(family.drop(group))
        self._forget_unused(group)

    def is_known(self, group: str) -> bool:
        """Whether the group has offsets, or some family has it."""
        return group in self._offsets.groups() or self.owner(group) is not None

    def require_empty(self, group: str, purpose: str) -> None:
        """Raise GroupNotEmpty if the group has members."""
        family = self.owner(group)
        count = family.member_count(group) if family is not None else 0
        if count:
            raise GroupNotEmpty(f"Group {group!r} has {count} members; stop them to {purpose}.")

    # ── topics and time ───────────────────────────────────────────────────────────────────────────

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Topics came, grew or (0) went. Members hear of what they get; that a topic is gone they hear from the topics."""
        for topic, count in partition_counts.items():
            if count:
                self.partition_counts[topic] = count
            else:
                self.partition_counts.pop(topic, None)
        for family in self._families.values():
            family.topics_changed(partition_counts)

    async def topic_deleted(self, topic: str) -> None:
        """Forget what was committed for a topic that does not exist any more."""
        await self._offsets.delete_topics(lambda name: name == topic)

    async def forget_other_topics(self, topics: Collection[str]) -> None:
        """Forget what was committed for all topics but these: after a start, for topics whose deletion a crash cut short."""
        await self._offsets.delete_topics(lambda name: name not in topics)

    async def tick(self) -> None:
        """Fence members whose time is over, forget offsets that are too old. Call it about twice a second.

        Raises:
            DiskFull, StorageFailed: something could not be written; members were dealt with all the same, the rest is tried again.
        """
        for family in self._families.values():
            await family.tick()
        await self._expire_offsets()
        await self._retention.flush()

    def close(self) -> None:
        """The broker ends: nothing happens by itself any more."""
        for family in self._families.values():
            family.close()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _stamped(self, offsets: Mapping[Partition, OffsetAndMetadata]) -> dict[Partition, OffsetAndMetadata]:
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
                family = self.owner(group)
                if family is not None and self._is_unused(family, group):
                    writes += family.drop(group)
                self._forget_unused(group)
            await self.meta.write(writes)
            await asyncio.sleep(0)

    def _is_unused(self, family: GroupFamily, group: str) -> bool:
        """Whether a group may be forgotten: it has no members, and no offsets, decided or not."""
        if family.member_count(group) or family.type in self._lasting:
            return False
        return not self.pending(group) and group not in self._offsets.groups()

    def _expired_offsets(self, group: str) -> list[Partition]:
        family = self.owner(group)
        read: Collection[str] = ()
        has_members = family is not None and bool(family.member_count(group))
        if has_members:
            assert family is not None
            known = _read_if_settled(family, group)
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
        return [name for family in self._families.values() for name in list(family.names())]

    def _forget_unused(self, group: str) -> None:
        """A name that nobody knows any more needs no note of when it became empty."""
        if not self.is_known(group):
            self._retention.forget(group)

    def _write_soon(self, writes: Sequence[Write]) -> None:
        """Write without anybody waiting; later writes of the same facts come after it."""
        if writes:
            task = asyncio.get_running_loop().create_task(self.meta.write(writes))
            self._writing.add(task)
            task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled():
            task.exception()  # the fact of an empty group may stay: `load` prefers the kind that has members


def _read_if_settled(family: GroupFamily, group: str) -> Collection[str] | None:
    """Topics that members read; None where that cannot be known now."""
    if family.info(group).state is not GroupState.STABLE:
        return None
    try:
        return family.subscribed(group)
    except (GroupNotEmpty, UnknownGroup):
        return None


def check_group_name(group: str) -> None:
    """Raise InvalidArgument if the name of a group (or queue, which is one) is empty or too long."""
    if not 0 < len(group) <= MAX_NAME_CHARACTERS or not group.isprintable():
        raise InvalidArgument(
            f"{group[:40]!r} is no name of a group or queue: it must have 1 to {MAX_NAME_CHARACTERS} printable characters."
        )


def check_offsets_are_places(offsets: Mapping[Partition, OffsetAndMetadata]) -> None:
    """Raise InvalidArgument for a negative offset. Kafka's door does not ask: Kafka keeps any number, and KafkaJS resets groups by -2 and -1."""
    for (topic, number), value in offsets.items():
        if value.offset < 0:
            raise InvalidArgument(f"Offset {value.offset} of {topic!r}, partition {number}, is negative.")


def check_metadata(partition: Partition, value: OffsetAndMetadata) -> None:
    """Raise OffsetMetadataTooLarge for a long note."""
    topic, number = partition
    if len(value.metadata.encode()) > MAX_METADATA_BYTES:
        raise OffsetMetadataTooLarge(
            f"The metadata of {topic!r}, partition {number}, has more than {MAX_METADATA_BYTES} bytes."
        )


def _no_generation(group: str, committer: Committer) -> Exception:
    """KIP-848 clients hear that the group is gone, older ones that their generation is."""
    if committer.knows_member_epochs:
        return UnknownGroup(f"There is no group {group!r}, so no member of it can commit; join again.")
    return StaleMember(f"There is no group {group!r} with generation {committer.epoch}; join again.")


def unknown_member(group: str, member_id: str) -> UnknownMember:
    """The error for a member id that a group does not have."""
    return UnknownMember(f"{member_id!r} is no member of group {group!r} (any more); join again.")
