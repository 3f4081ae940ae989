"""Committed offsets: in memory for reading, in the meta store for good.

A fact of kind "offset" has as key the JSON array [group, topic, partition] (no name can imitate another, and all facts
of a group share a prefix) and as value the msgpack array [offset, metadata, leader epoch, commit time, kept until]. New fields
are appended, with a default. What is read is what is durable: memory follows the store, in the order of the commits.

What a transaction has pending for a partition is older than a commit, or a deletion, that comes before its end: it goes with that, in
the same write (`Undecided`). Else the end would bring back what was replaced or deleted.
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

    from sparrow.broker.groups.native.assignor import Partition
    from sparrow.meta.store import Fact, MetaStore, Write

KIND: Final = "offset"
_WRITES_PER_BATCH: Final = 5_000
_PARTITIONS_PER_TURN: Final = 10_000
"""How many offsets are looked at before the loop's other work has its turn."""


class Undecided(Protocol):
    """The offsets that transactions have pending."""

    def groups(self) -> Collection[str]:
        """Groups that have some."""
        ...

    def of_group(self, group: str) -> Collection[Partition]:
        """Partitions of a group that have some."""
        ...

    def supersede(
        self, group: str, partitions: Iterable[Partition]
    ) -> tuple[Sequence[Write], Callable[[], None]]:
        """What deletes those of some partitions, and what to call when that is durable."""
        ...


class OffsetAndMetadata(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The next offset to read, and what the consumer noted with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Of the last record that was consumed; -1: not known (KIP-320)."""
    committed_at_ms: int = -1
    """Wall time of the commit; set by the broker."""
    kept_until_ms: int = -1
    """Wall time when it may be forgotten, where the commit said so (OffsetCommit 2 to 4); -1: the broker's retention decides."""

    def stamped(self, now_ms: int) -> OffsetAndMetadata:
        """The same, committed now."""
        return OffsetAndMetadata(self.offset, self.metadata, self.leader_epoch, now_ms, self.kept_until_ms)


_encode_value = msgspec.msgpack.Encoder().encode
_decode_value = msgspec.msgpack.Decoder(OffsetAndMetadata).decode
_decode_key = msgspec.json.Decoder(tuple[str, str, int]).decode


class Offsets:
    """The committed offsets of all groups. Loop thread only."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._by_group: dict[str, dict[Partition, OffsetAndMetadata]] = {}
        self._writing = Detached()
        self.undecided: Undecided | None = None
        """Set by the transactions."""

    async def load(self) -> None:
        """Read what earlier runs committed.

        Raises:
            DirectoryUnreadable: a fact is no committed offset.
        """
        for fact in await self._meta.scan(KIND):
            group, topic, partition, value = _decode(fact)
            self._by_group.setdefault(group, {})[topic, partition] = value

    def groups(self) -> Collection[str]:
        """Groups that have committed offsets."""
        return self._by_group.keys()

    def get(self, group: str, partition: Partition) -> OffsetAndMetadata | None:
        """What the group committed for a partition, or None."""
        return self._by_group.get(group, {}).get(partition)

    def of_group(self, group: str) -> dict[Partition, OffsetAndMetadata]:
        """A copy of all that the group committed."""
        return dict(self._by_group.get(group, {}))

    def last_commit_ms(self, group: str) -> int:
        """Wall time of the group's newest commit, -1 without one."""
        return max((value.committed_at_ms for value in self._by_group.get(group, {}).values()), default=-1)

    async def commit(self, group: str, offsets: Mapping[Partition, OffsetAndMetadata]) -> None:
        """Keep offsets; durable when it returns. A caller that is cancelled stops waiting, the commit goes on.

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
    def writes(group: str, offsets: Mapping[Partition, OffsetAndMetadata]) -> list[Put]:
        """The facts of a commit."""
        return [Put(KIND, encode_key(group, p), _encode_value(value)) for p, value in offsets.items()]

    def apply(self, group: str, offsets: Mapping[Partition, OffsetAndMetadata]) -> None:
        """Take a commit over whose facts are durable."""
        if offsets:
            self._by_group.setdefault(group, {}).update(offsets)

    async def delete(self, group: str, partitions: Iterable[Partition] | None = None) -> None:
        """Forget offsets of a group; None: all of them."""
        present = self._present(group)
        wanted = present if partitions is None else present.intersection(partitions)
        await self._delete_all([(group, partition) for partition in wanted])

    async def delete_topics(self, is_doomed: Callable[[str], bool]) -> None:
        """Forget what all groups committed for some topics, also what is just being committed."""
        await self._writing.settle_begun()
        await self._meta.get(
            KIND, ""
        )  # an answer comes after those to all writes before it: the transactions' too
        doomed: list[tuple[str, Partition]] = []
        groups = {*self._by_group, *(self.undecided.groups() if self.undecided is not None else ())}
        seen = 0
        for group in groups:
            present = self._present(group)
            doomed += ((group, partition) for partition in present if is_doomed(partition[0]))
            seen += len(present)
            if seen >= _PARTITIONS_PER_TURN:
                seen = 0
                await asyncio.sleep(0)
        await self._delete_all(doomed)

    async def _delete_all(self, doomed: Sequence[tuple[str, Partition]]) -> None:
        for start in range(0, len(doomed), _WRITES_PER_BATCH):
            await self._delete(doomed[start : start + _WRITES_PER_BATCH])

    async def _delete(self, doomed: Iterable[tuple[str, Partition]]) -> None:
        by_group: dict[str, list[Partition]] = {}
        for group, partition in doomed:
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

    def _present(self, group: str) -> set[Partition]:
        """Partitions with a committed offset, or one that is not decided."""
        pending = self.undecided.of_group(group) if self.undecided is not None else ()
        return {*self._by_group.get(group, ()), *pending}

    def _supersede(
        self, group: str, partitions: Iterable[Partition]
    ) -> tuple[Sequence[Write], Callable[[], None]]:
        if self.undecided is None or not self.undecided.of_group(group):
            return (), _nothing
        return self.undecided.supersede(group, partitions)

    def _forget(self, group: str, partitions: Sequence[Partition]) -> None:
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
    """Nothing was pending."""


def encode_key(group: str, partition: Partition) -> str:
    """The key of a committed offset."""
    return msgspec.json.encode((group, *partition)).decode()


def _decode(fact: Fact) -> tuple[str, str, int, OffsetAndMetadata]:
    try:
        return *_decode_key(fact.key), _decode_value(fact.value)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a committed offset that cannot be read, {fact.key!r}: {exc}. Put back a backup of the data "
            "directory, or delete this fact."
        ) from exc
