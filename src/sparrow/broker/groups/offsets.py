"""Committed offsets: in memory for reading, in the meta store for durability.

The key of an entry of kind "offset" is the JSON array [group, topic, partition] (no name can
imitate another, and all entries of a group share a prefix); its value is the msgpack array [offset,
metadata, leader epoch, commit time, kept until]. New fields are appended, with a default. Only
durable offsets are read: memory follows the store, in the order of the commits.

An offset that a transaction has pending for a partition is older than a commit or a deletion that
comes before the transaction's end. It is deleted in the same write as these (`Undecided`);
otherwise the end would restore what was replaced or deleted.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from sparrow.base.errors import DirectoryUnreadable
from sparrow.broker.detached import Detached
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparrow.meta.store import Entry, MetaStore, Write
    from sparrow.records.topic_partition import TopicPartition

KIND: Final = "offset"
_WRITES_PER_BATCH: Final = 5_000
_PARTITIONS_PER_YIELD: Final = 10_000
"""Offsets that are visited before the loop's other work may run."""


class Undecided(Protocol):
    """The offsets that transactions have pending."""

    def groups(self) -> Collection[str]:
        """Return the groups that have pending offsets."""
        ...

    def of_group(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions of a group that have pending offsets."""
        ...

    def supersede(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> tuple[Sequence[Write], Callable[[], None]]:
        """Return the writes that delete the pending offsets of some partitions, and a function to
        call when they are durable.
        """
        ...


class Committer(msgspec.Struct, frozen=True):
    """The member that commits or fetches offsets. The default is no member: an administrator, or a
    consumer that assigns partitions to itself.

    `epoch` is a generation (classic), a member epoch (KIP-848) or a group epoch (native).
    """

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None
    is_transactional: bool = False
    knows_member_epochs: bool = True
    """True if the client understands StaleMemberEpoch (OffsetCommit 9)."""

    @property
    def is_no_member(self) -> bool:
        return self.epoch < 0 and not self.member_id and self.instance_id is None


NO_MEMBER: Final = Committer()


class OffsetAndMetadata(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The next offset to read, and the metadata that the consumer added."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Leader epoch of the last consumed record (KIP-320); -1: not known."""
    committed_at_ms: int = -1
    """Wall time of the commit, in ms; set by the broker."""
    kept_until_ms: int = -1
    """Wall time in ms when it may be deleted, if the commit set it (OffsetCommit 2 to 4); -1: the
    broker's retention decides.
    """

    def stamped(self, now_ms: int) -> OffsetAndMetadata:
        """Return a copy that is committed at `now_ms`."""
        return OffsetAndMetadata(self.offset, self.metadata, self.leader_epoch, now_ms, self.kept_until_ms)


_encode_value = msgspec.msgpack.Encoder().encode
_decode_value = msgspec.msgpack.Decoder(OffsetAndMetadata).decode
_decode_key = msgspec.json.Decoder(tuple[str, str, int]).decode


class Offsets:
    """The committed offsets of all groups. Loop thread only."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._by_group: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._writing = Detached()
        self.undecided: Undecided | None = None
        """Set by the transactions."""

    async def load(self) -> None:
        """Read the committed offsets of earlier runs.

        Raises:
            DirectoryUnreadable: an entry is no committed offset.
        """
        for entry in await self._meta.scan(KIND):
            group, topic, partition, value = _decode(entry)
            self._by_group.setdefault(group, {})[topic, partition] = value

    def groups(self) -> Collection[str]:
        """Return the groups that have committed offsets."""
        return self._by_group.keys()

    def get(self, group: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition, or None."""
        return self._by_group.get(group, {}).get(partition)

    async def settle_begun(self) -> None:
        """Wait for the commits that are under way, which `get` does not show yet."""
        await self._writing.settle_begun()

    def of_group(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a copy of all committed offsets of a group."""
        return dict(self._by_group.get(group, {}))

    def last_commit_ms(self, group: str) -> int:
        """Return the wall time of the group's newest commit in ms, or -1."""
        return max((value.committed_at_ms for value in self._by_group.get(group, {}).values()), default=-1)

    async def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets, durably. A cancelled caller stops waiting; the commit continues.

        Raises:
            DiskFull, StorageFailed: nothing was committed.
        """
        kept = dict(offsets)
        superseding, forget = self._supersede(group, kept)

        def apply() -> None:
            self.apply(group, kept)
            forget()

        await self._write([*self.writes(group, kept), *superseding], apply)

    @staticmethod
    def writes(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Put]:
        """Return the entries of a commit."""
        return [Put(KIND, encode_key(group, p), _encode_value(value)) for p, value in offsets.items()]

    def apply(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take over a commit whose entries are durable."""
        if offsets:
            self._by_group.setdefault(group, {}).update(offsets)

    async def delete(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Delete offsets of a group, or (None) all of them."""
        present = self._present(group)
        wanted = present if partitions is None else present.intersection(partitions)
        await self._delete_all([(group, partition) for partition in wanted])

    async def delete_topics(self, is_deleted: Callable[[str], bool]) -> None:
        """Delete what all groups committed for some topics, including commits that are under
        way.
        """
        await self.settle_begun()
        await self._meta.get(
            KIND, ""
        )  # this returns after all writes before it, those of transactions included
        deleted: list[tuple[str, TopicPartition]] = []
        groups = {*self._by_group, *(self.undecided.groups() if self.undecided is not None else ())}
        seen = 0
        for group in groups:
            present = self._present(group)
            deleted += ((group, partition) for partition in present if is_deleted(partition[0]))
            seen += len(present)
            if seen >= _PARTITIONS_PER_YIELD:
                seen = 0
                await asyncio.sleep(0)
        await self._delete_all(deleted)

    async def _delete_all(self, deleted: Sequence[tuple[str, TopicPartition]]) -> None:
        for start in range(0, len(deleted), _WRITES_PER_BATCH):
            await self._delete(deleted[start : start + _WRITES_PER_BATCH])

    async def _delete(self, deleted: Iterable[tuple[str, TopicPartition]]) -> None:
        by_group: dict[str, list[TopicPartition]] = {}
        for group, partition in deleted:
            by_group.setdefault(group, []).append(partition)
        writes: list[Write] = []
        forgets: list[Callable[[], None]] = []
        for group, partitions in by_group.items():
            superseding, forget = self._supersede(group, partitions)
            writes += [Delete(KIND, encode_key(group, p)) for p in partitions]
            writes += superseding
            forgets += [partial(self._forget, group, partitions), forget]

        def forget_all() -> None:
            for each in forgets:
                each()

        await self._write(writes, forget_all)

    def _present(self, group: str) -> set[TopicPartition]:
        """Return the partitions with a committed or a pending offset."""
        pending = self.undecided.of_group(group) if self.undecided is not None else ()
        return {*self._by_group.get(group, ()), *pending}

    def _supersede(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> tuple[Sequence[Write], Callable[[], None]]:
        if self.undecided is None or not self.undecided.of_group(group):
            return (), _nothing
        return self.undecided.supersede(group, partitions)

    def _forget(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        offsets = self._by_group.get(group, {})
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            self._by_group.pop(group, None)

    async def _write(self, writes: Sequence[Write], then: Callable[[], object]) -> None:
        async def write() -> None:
            await self._meta.write(writes)
            then()

        await self._writing.run(write())


def _nothing() -> None:
    """Do nothing: no offset was pending."""


def encode_key(group: str, partition: TopicPartition) -> str:
    """Return the key of a committed offset."""
    return msgspec.json.encode((group, *partition)).decode()


def _decode(entry: Entry) -> tuple[str, str, int, OffsetAndMetadata]:
    try:
        return *_decode_key(entry.key), _decode_value(entry.value)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a committed offset that cannot be read, {entry.key!r}: {exc}. "
            "Restore a backup of the data "
            "directory, or delete this entry."
        ) from exc
