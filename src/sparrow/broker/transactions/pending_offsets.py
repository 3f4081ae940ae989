"""Offsets of undecided transactions: in memory for reading, in the meta store for durability.

The key of an entry of kind "pending-offset" is the JSON array [transactional id, group, topic,
partition]; its value has the form of a committed offset. The decision to commit takes the offsets
over and deletes the entries in one write (`coordinator`); a commit or a deletion that comes before
it supersedes them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from sparrow.meta.store import MetaStore
    from sparrow.records.topic_partition import TopicPartition

KIND: Final = "pending-offset"
GroupOffsets = dict[str, dict[tuple[str, int], OffsetAndMetadata]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OffsetAndMetadata).decode
_decode_key = msgspec.json.Decoder(tuple[str, str, str, int]).decode


class PendingOffsets:
    """The pending offsets of all transactions. Loop thread only."""

    def __init__(self) -> None:
        self._by_transaction: dict[str, GroupOffsets] = {}
        self._by_group: dict[str, Counter[TopicPartition]] = {}
        """The number of transactions with an offset pending, by group and partition."""

    async def load(self, meta: MetaStore) -> None:
        """Read the entries of earlier runs.

        Raises:
            DirectoryUnreadable: an entry is no pending offset.
        """
        for entry in await meta.scan(KIND):
            try:
                transactional_id, group, topic, partition = _decode_key(entry.key)
                value = _decode(entry.value)
            except msgspec.DecodeError as error:
                raise DirectoryUnreadable(
                    f"the meta store holds a pending offset that cannot be read, {entry.key!r}: {error};"
                    " restore a backup of the data directory, or delete this entry"
                ) from error
            self.apply(transactional_id, group, {(topic, partition): value})

    def groups(self) -> Collection[str]:
        """Return the groups that have pending offsets."""
        return self._by_group.keys()

    def transactions(self) -> Collection[str]:
        """Return the transactional ids that have pending offsets."""
        return self._by_transaction.keys()

    def of_transaction(self, transactional_id: str) -> GroupOffsets:
        """Return the offsets that the id's transaction will commit."""
        return self._by_transaction.get(transactional_id, {})

    def of_group(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions whose offsets of the group are undecided."""
        return self._by_group.get(group, {}).keys()

    @staticmethod
    def writes(
        transactional_id: str, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[Put]:
        """Return the entries of offsets that become pending."""
        return [Put(KIND, _key(transactional_id, group, p), _encode(value)) for p, value in offsets.items()]

    def apply(
        self, transactional_id: str, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Take over offsets whose entries are durable."""
        known = self._by_transaction.setdefault(transactional_id, {}).setdefault(group, {})
        self._count(group, [partition for partition in offsets if partition not in known])
        known.update(offsets)

    @contextmanager
    def announced(self, group: str, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Count partitions as undecided while their offsets are being stored: a consumer that takes
        a partition over must not read from the offset before them (KIP-447).
        """
        self._count(group, partitions)
        try:
            yield
        finally:
            self._discount(group, partitions)

    def deletes(self, transactional_id: str) -> list[Delete]:
        """Return the writes that delete the entries of a transaction."""
        return [
            Delete(KIND, _key(transactional_id, group, partition))
            for group, offsets in self.of_transaction(transactional_id).items()
            for partition in offsets
        ]

    def forget(self, transactional_id: str) -> None:
        """Forget the offsets of a decided transaction."""
        for group, offsets in self._by_transaction.pop(transactional_id, {}).items():
            self._discount(group, offsets)

    def supersede(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> tuple[list[Delete], Callable[[], None]]:
        """Supersede what is pending for partitions by a commit or deletion outside of transactions.

        Returns:
            The writes that delete the entries, and a function to call when that is durable.
        """
        wanted = set(partitions).intersection(self.of_group(group))
        found: list[tuple[str, dict[TopicPartition, OffsetAndMetadata]]] = []
        if wanted:
            for transactional_id, groups in self._by_transaction.items():
                offsets = groups.get(group, {})
                if not wanted.isdisjoint(offsets):
                    found.append((transactional_id, {key: offsets[key] for key in wanted if key in offsets}))

        def forget() -> None:
            for transactional_id, offsets in found:
                self._forget(transactional_id, group, offsets)

        return [Delete(KIND, _key(each, group, key)) for each, offsets in found for key in offsets], forget

    def _forget(
        self, transactional_id: str, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Forget offsets, unless the transaction was decided or brought newer ones."""
        groups = self._by_transaction.get(transactional_id, {})
        known = groups.get(group, {})
        gone = [key for key, value in offsets.items() if known.get(key) is value]
        for key in gone:
            del known[key]
        self._discount(group, gone)
        if group in groups and not known:
            del groups[group]
        if transactional_id in self._by_transaction and not groups:
            del self._by_transaction[transactional_id]

    def _count(self, group: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._by_group.setdefault(group, Counter()).update(list(partitions))

    def _discount(self, group: str, partitions: Collection[TopicPartition]) -> None:
        counts = self._by_group.get(group)
        if counts is None:
            return
        counts.subtract(list(partitions))
        for partition in partitions:
            if counts[partition] <= 0:
                del counts[partition]
        if not counts:
            del self._by_group[group]


def _key(transactional_id: str, group: str, partition: TopicPartition) -> str:
    return msgspec.json.encode((transactional_id, group, *partition)).decode()
