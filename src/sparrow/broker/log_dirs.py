"""The directory of the records and its size, as Kafka's log directories (KIP-113, KIP-827)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.base.errors import LogDamaged, UnknownTopic

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.storage.store import LogStore

_OPENED_AT_ONCE = 50
"""Logs that are opened before other tasks run."""


class LogDirectory(Struct, frozen=True):
    """A directory of logs. Sizes in bytes; `topics` has the size of each partition."""

    path: str
    total_bytes: int
    usable_bytes: int
    topics: dict[str, dict[int, int]]


async def describe_log_directory(
    topics: TopicRegistry, store: LogStore, wanted: Mapping[str, Sequence[int]] | None
) -> LogDirectory:
    """Return the directory with the wanted partitions, or (None) all; those that do not exist are
    left out.
    """
    chosen = _chosen(topics, wanted)
    written = await _written(store, chosen)
    sizes: dict[str, dict[int, int]] = {}
    for count, partition in enumerate(chosen, 1):
        try:
            size = partition.log.size_bytes if partition.is_open or partition.id in written else 0
        except (UnknownTopic, LogDamaged):  # closed, or deleted during the other look-ups
            continue
        sizes.setdefault(partition.id.topic, {})[partition.id.partition] = size
        if count % _OPENED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return LogDirectory(store.location, store.total_bytes(), store.free_bytes(), sizes)


def _chosen(topics: TopicRegistry, wanted: Mapping[str, Sequence[int]] | None) -> list[Partition]:
    if wanted is None:
        return [partition for topic in topics for partition in topic.partitions]
    chosen = []
    for name, indexes in wanted.items():
        topic = topics.find(name)
        if topic is not None:
            chosen += [topic.partitions[i] for i in dict.fromkeys(indexes) if 0 <= i < len(topic.partitions)]
    return chosen


async def _written(store: LogStore, chosen: Sequence[Partition]) -> frozenset[object]:
    """Return the logs that have data; only those need to be opened. The directory is read only if a
    log among them is not open yet.
    """
    if all(partition.is_open for partition in chosen):
        return frozenset()
    return frozenset(await asyncio.to_thread(store.ids))
