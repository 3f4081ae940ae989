"""Offsets that transactions will commit, or not: in memory for asking, in the meta store for good.

A fact of kind "pending-offset" has as key the JSON array [transactional id, group, topic, partition] and as value what a committed
offset has. The decision to commit takes them over and deletes them in one write (`coordinator`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparrow.broker.transactions.state import Key
    from sparrow.meta.store import MetaStore

KIND: Final = "pending-offset"
GroupOffsets = dict[str, dict[tuple[str, int], OffsetAndMetadata]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OffsetAndMetadata).decode
_decode_key = msgspec.json.Decoder(tuple[str, str, str, int]).decode


class PendingOffsets:
    """The pending offsets of all transactions. Loop thread only."""

    def __init__(self) -> None:
        self._by_transaction: dict[str, GroupOffsets] = {}
        self._by_group: dict[str, Counter[Key]] = {}
        """How many transactions have an offset pending, by group and partition."""

    async def load(self, meta: MetaStore) -> None:
        """Read what earlier runs kept.

        Raises:
            DirectoryUnreadable: a fact is no pending offset.
        """
        for fact in await meta.scan(KIND):
            try:
                transactional_id, group, topic, partition = _decode_key(fact.key)
                value = _decode(fact.value)
            except msgspec.DecodeError as error:
                raise DirectoryUnreadable(
                    f"the meta store holds a pending offset that cannot be read, {fact.key!r}: {error};"
                    " put back a backup of the data directory, or delete this fact"
                ) from error
            self.apply(transactional_id, group, {(topic, partition): value})

    def transactions(self) -> Collection[str]:
        """Transactional ids that have pending offsets."""
        return self._by_transaction.keys()

    def of_transaction(self, transactional_id: str) -> GroupOffsets:
        """What the id's transaction will commit."""
        return self._by_transaction.get(transactional_id, {})

    def of_group(self, group: str) -> Collection[Key]:
        """Partitions whose offsets of the group are not decided."""
        return self._by_group.get(group, {}).keys()

    @staticmethod
    def writes(transactional_id: str, group: str, offsets: Mapping[Key, OffsetAndMetadata]) -> list[Put]:
        """The facts of offsets that become pending."""
        return [Put(KIND, _key(transactional_id, group, p), _encode(value)) for p, value in offsets.items()]

    def apply(self, transactional_id: str, group: str, offsets: Mapping[Key, OffsetAndMetadata]) -> None:
        """Take over offsets whose facts are durable."""
        known = self._by_transaction.setdefault(transactional_id, {}).setdefault(group, {})
        counts = self._by_group.setdefault(group, Counter())
        for partition, value in offsets.items():
            counts[partition] += partition not in known
            known[partition] = value

    def deletes(self, transactional_id: str) -> list[Delete]:
        """What deletes the facts of a transaction."""
        return [
            Delete(KIND, _key(transactional_id, group, partition))
            for group, offsets in self.of_transaction(transactional_id).items()
            for partition in offsets
        ]

    def forget(self, transactional_id: str) -> None:
        """The transaction is decided."""
        for group, offsets in self._by_transaction.pop(transactional_id, {}).items():
            counts = self._by_group[group]
            counts.subtract(offsets.keys())
            for partition in offsets:
                if counts[partition] <= 0:
                    del counts[partition]
            if not counts:
                del self._by_group[group]


def _key(transactional_id: str, group: str, partition: Key) -> str:
    return msgspec.json.encode((transactional_id, group, *partition)).decode()
