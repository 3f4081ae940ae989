"""The ends of topics, and waiting for their changes: for readers by offset, which keep their
positions themselves.

A watch returns at once if the topics differ from what the caller knows, and else waits for the
first change: something was appended, a transaction ended, a topic was created, grew, was deleted,
or was created again. Nothing is polled: appends wake it through the partitions' waiters, topics
through the registry. Only partitions that woke it are checked again.

There are at most `MAX_WATCHES` at a time, of all callers together; one more is refused, so that
idle waiting costs a bounded memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from sparrow.base.errors import InvalidArgument, Overloaded, UnknownTopic
from sparrow.broker.reading.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparrow.broker.partition import Partition
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.records.topic_partition import TopicPartition

MAX_WATCHES: Final = 2000
MAX_TOPICS: Final = 10_000
"""The limit of topics of one watch."""


class Known(Struct, frozen=True):
    """State of a topic as the caller knows it: the ends of its partitions, and (unless "") its
    id.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    id: str = ""


class Watched(Struct, frozen=True):
    """State of a topic now: (partition, start offset, end offset) by partition."""

    name: str
    id: str
    partitions: Sequence[tuple[int, int, int]]


class Watches:
    """All waiting watches. Loop thread only."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._alarms: set[Alarm[TopicPartition]] = set()

    def __len__(self) -> int:
        """Return the number of waiting watches."""
        return len(self._alarms)

    def interrupt(self) -> None:
        """End all waits now: the broker shuts down."""
        for alarm in self._alarms:
            alarm.ring()

    async def wait(
        self, names: Sequence[str], known: Mapping[str, Known], *, committed: bool, wait_s: float
    ) -> None:
        """Wait until a topic differs from what the caller knows, at most `wait_s` seconds.

        Raises:
            InvalidArgument, Overloaded
        """
        if len(names) > MAX_TOPICS:
            raise InvalidArgument(f"{len(names)} topics are too many to watch at once; at most {MAX_TOPICS}")
        if wait_s <= 0 or not known or self._differs(names, known, committed=committed):
            return
        if len(self._alarms) >= MAX_WATCHES:
            raise Overloaded(f"{MAX_WATCHES} callers watch topics, which is the limit; ask without waiting")
        alarm = Alarm({(p.id.topic, p.id.partition): p for p in self._partitions(names)})
        self._alarms.add(alarm)
        wanted = frozenset(names)
        unwatch = self._topics.watch(lambda topic: alarm.ring() if topic.name in wanted else None)
        try:
            await self._until_different(alarm, known, wait_s, committed=committed)
        finally:
            unwatch()
            self._alarms.discard(alarm)
            alarm.close()

    async def _until_different(
        self, alarm: Alarm[TopicPartition], known: Mapping[str, Known], wait_s: float, *, committed: bool
    ) -> None:
        deadline = asyncio.get_running_loop().time() + wait_s
        while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait([alarm.rung], timeout=left_s)
            woken = alarm.take()
            if not woken or any(self._has_moved(alarm, key, known, committed=committed) for key in woken):
                return

    def _has_moved(
        self,
        alarm: Alarm[TopicPartition],
        key: TopicPartition,
        known: Mapping[str, Known],
        *,
        committed: bool,
    ) -> bool:
        partition = alarm.partitions[key]
        if self._topics.find_partition(key) is not partition:
            return True
        return end_of(partition, committed=committed) != known[key[0]].ends.get(key[1])

    def _differs(self, names: Iterable[str], known: Mapping[str, Known], *, committed: bool) -> bool:
        return any(_differs(self._topics.find(name), known.get(name), committed=committed) for name in names)

    def _partitions(self, names: Iterable[str]) -> Iterable[Partition]:
        for name in names:
            topic = self._topics.find(name)
            if topic is not None:
                yield from topic.partitions


def end_of(partition: Partition, *, committed: bool) -> int:
    """Return the offset where readers stop."""
    return partition.last_stable_offset if committed else partition.visible_end


def look(topic: Topic, *, committed: bool) -> Watched:
    """Return the state of a topic now.

    Raises:
        UnknownTopic: it was deleted.
    """
    return Watched(
        topic.name,
        str(topic.id),
        [
            (number, partition.start_offset, end_of(partition, committed=committed))
            for number, partition in enumerate(topic.partitions)
        ],
    )


def _differs(topic: Topic | None, known: Known | None, *, committed: bool) -> bool:
    if topic is None or known is None:
        return (topic is None) != (known is None)
    if known.id not in {"", str(topic.id)} or len(known.ends) != len(topic.partitions):
        return True
    return any(
        end_of(partition, committed=committed) != known.ends.get(number)
        for number, partition in enumerate(topic.partitions)
    )


def look_at_all(
    topics: TopicRegistry, names: Sequence[str], *, committed: bool, require: Callable[[str], None]
) -> tuple[list[Watched], list[str]]:
    """Return the states of topics now, and the names that are missing.

    Args:
        require: raises for a name that the caller may not see.
    """
    found: list[Watched] = []
    missing: list[str] = []
    for name in names:
        require(name)
        topic = topics.find(name)
        try:
            found.append(look(topics.get(name) if topic is None else topic, committed=committed))
        except UnknownTopic:
            missing.append(name)
    return found, missing
