"""The queues behind share groups: a share group is a queue of the engine (`broker.queues`) with the
same name.

Topics that members subscribe to become sources of the queue. If a queue of that name was created by
other means, members join that queue: its topics and its policy hold, and only partitions of its
topics are read.

The *start offset* of a partition (KIP-932: SPSO) is the offset before which everything is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparrow.base.errors import (
    GroupNotEmpty,
    InvalidArgument,
    PolicyViolation,
    QueueExists,
    SparrowError,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.broker.queues.persistence.definition import SHARE
from sparrow.broker.queues.rules.record_state import DONE, LEASED, MOVING, STATE_MASK
from sparrow.broker.reading.positions import locate

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.groups.share.settings import ShareSettings
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.queues.rules.subscriber import SubscriberState
    from sparrow.broker.queues.source import QueueSource
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.records.topic_partition import TopicPartition

_MAX_LEASED: Final = 10_000_000
"""The maximum in a queue's policy."""
_AT_ONCE: Final = 200
"""Partitions that are visited before the loop may do something else."""
BY_RESET: Final = -1
"""A start offset that means `share.auto.offset.reset`."""


class GroupProgress(NamedTuple):
    """The progress of a group in one partition."""

    start_offset: int
    end_offset: int
    lag: int
    """Records behind the start that are not finished."""


class GroupQueues(Protocol):
    """The operations on queues that share groups need."""

    def own_topics(self, group: str) -> Collection[str] | None:
        """Return the topics of a queue of this name that was created by other means; None: the
        group reads what its members subscribe to.
        """
        ...

    async def ensure(self, group: str, topics: Collection[str], settings: ShareSettings) -> None:
        """Create the group's queue if needed, with these settings, and add these topics.

        Raises:
            DiskFull, StorageFailed, InvalidArgument
        """
        ...

    async def follow(self, group: str, settings: ShareSettings) -> None:
        """Apply changed settings to the queue.

        Raises:
            DiskFull, StorageFailed
        """
        ...

    async def progress(self, group: str) -> dict[TopicPartition, GroupProgress]:
        """Return the group's progress in all partitions that it reads or has read."""
        ...

    async def move(
        self, group: str, offsets: Mapping[TopicPartition, int], settings: ShareSettings
    ) -> dict[TopicPartition, SparrowError | None]:
        """Continue at other offsets. Return an error or None for each partition.

        Raises:
            GroupNotEmpty: consumers have the queue open, or records leased. DiskFull, StorageFailed
        """
        ...

    async def drop_topic(self, group: str, topic: str) -> None:
        """Delete the group's progress in a topic.

        Raises:
            UnknownTopic: it never read the topic.
            PolicyViolation: the topic is the queue's own. GroupNotEmpty, DiskFull, StorageFailed
        """
        ...

    async def delete(self, group: str) -> None:
        """Delete the queue of a group, unless it was created by other means.

        Raises:
            GroupNotEmpty, DiskFull, StorageFailed
        """
        ...


class ShareQueues:
    """`GroupQueues` over the broker's queues. Loop thread only."""

    def __init__(self, registry: QueueRegistry, topics: TopicRegistry, clock: Clock) -> None:
        self._registry = registry
        self._topics = topics
        self._clock = clock

    def own_topics(self, group: str) -> Collection[str] | None:
        queue = self._registry.find(group)
        return None if queue is None or queue.is_share_group else queue.definition.topics

    async def ensure(self, group: str, topics: Collection[str], settings: ShareSettings) -> None:
        queue = await self._queue(group, settings)
        if not queue.is_share_group:
            return
        known = set(queue.definition.topics)
        missing = [topic for topic in sorted(topics) if topic not in known]
        if missing:
            with suppress(UnknownTopic):  # it was deleted just now; the next heartbeat knows
                await self._add(group, missing, {}, settings)
        await self.follow(group, settings)

    async def follow(self, group: str, settings: ShareSettings) -> None:
        queue = self._registry.find(group)
        if queue is None or not queue.is_share_group:
            return
        wanted = queue.definition.policy.changed(_policy(settings, _partition_count(queue)))
        if wanted != queue.definition.policy:
            await self._registry.configure(group, _policy(settings, _partition_count(queue)))

    async def progress(self, group: str) -> dict[TopicPartition, GroupProgress]:
        queue = self._registry.find(group)
        result: dict[TopicPartition, GroupProgress] = {}
        for source in list(queue.sources) if queue is not None else ():
            assert queue is not None
            if not source.is_gone and source.partition.is_open:
                result[source.key] = _progress(queue, source)
                await asyncio.sleep(0)  # there may be many, with many ranges each
        return dict(sorted(result.items()))

    async def move(
        self, group: str, offsets: Mapping[TopicPartition, int], settings: ShareSettings
    ) -> dict[TopicPartition, SparrowError | None]:
        queue = await self._queue(group, settings)
        _check_unused(queue)
        results: dict[TopicPartition, SparrowError | None] = {}
        wanted: dict[TopicPartition, int] = {}
        for key, offset in offsets.items():
            try:
                wanted[key] = await self._start_of(queue, key, offset, settings)
                results[key] = None
            except SparrowError as error:
                results[key] = error
        missing = {topic for topic, _ in wanted} - set(queue.definition.topics)
        if missing:
            await self._add(group, sorted(missing), wanted, settings)
        _check_unused(queue)
        await self._registry.restart_sources(
            group, {key: offset for key, offset in wanted.items() if key[0] not in missing}
        )
        await self.follow(group, settings)
        return results

    async def drop_topic(self, group: str, topic: str) -> None:
        queue = self._registry.find(group)
        if queue is None or topic not in queue.definition.topics:
            raise UnknownTopic(f"Group {group!r} has read nothing of topic {topic!r}.")
        if not queue.is_share_group:
            raise PolicyViolation(
                f"Topic {topic!r} belongs to the queue {group!r}, which was not made by a share "
                "group; purge the queue instead."
            )
        _check_unused(queue)
        await self._registry.drop_topic(group, topic)

    async def delete(self, group: str) -> None:
        queue = self._registry.find(group)
        if queue is not None and queue.is_share_group:
            if queue.consumers:
                raise _in_use(queue)
            await self._registry.delete(group)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    async def _queue(self, group: str, settings: ShareSettings) -> Queue:
        queue = self._registry.find(group)
        if queue is None:
            try:
                queue = await self._registry.create(group, (), _policy(settings, 1), kind=SHARE)
            except QueueExists:  # created by another request at the same time
                queue = self._registry.get(group)
        return queue

    async def _add(
        self,
        group: str,
        topics: Collection[str],
        wanted: Mapping[TopicPartition, int],
        settings: ShareSettings,
    ) -> None:
        """Add topics as sources, at the wanted offsets or where the settings say."""
        start = settings.start(self._clock.wall_ms())
        starts: dict[TopicPartition, int] = {}
        for topic in topics:
            for partition in self._topics.get(topic).partitions:
                key = (topic, partition.id.partition)
                starts[key] = wanted[key] if key in wanted else (await locate(partition, start))[0]
                if len(starts) % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        await self._registry.add_topics(
            group,
            list(topics),
            lambda each: starts.get((each.id.topic, each.id.partition), each.start_offset),
        )

    async def _start_of(self, queue: Queue, key: TopicPartition, offset: int, settings: ShareSettings) -> int:
        """Return the offset to begin at, which is within the log.

        Raises:
            UnknownTopic, UnknownPartition, InvalidArgument
        """
        topic, number = key
        partitions = self._topics.get(topic).partitions
        if not 0 <= number < len(partitions):
            raise UnknownPartition(
                f"Topic {topic!r} has partitions 0 to {len(partitions) - 1}, not {number}."
            )
        if not queue.is_share_group and topic not in queue.definition.topics:
            raise UnknownTopic(f"The queue {queue.name!r} does not have topic {topic!r}.")
        if offset < BY_RESET:
            raise InvalidArgument(f"Offset {offset} of {topic!r}, partition {number}, is negative.")
        partition = partitions[number]
        if offset == BY_RESET:
            return (await locate(partition, settings.start(self._clock.wall_ms())))[0]
        return min(max(offset, partition.start_offset), partition.visible_end)


def _policy(settings: ShareSettings, partitions: int) -> dict[str, object]:
    """Return a group's settings as the policy of a queue. The engine limits the records that are
    acquired of all partitions together.
    """
    return {
        "lease_ms": settings.record_lock_duration_ms,
        "delivery_limit": settings.delivery_count_limit,
        "max_leased": min(settings.max_record_locks * max(1, partitions), _MAX_LEASED),
        "isolation": "read_committed" if settings.reads_committed_only else "read_uncommitted",
        "dead_letter_topic": settings.dead_letter_topic or None,
    }


def _partition_count(queue: Queue) -> int:
    return sum(not source.is_gone for source in queue.sources)


def _check_unused(queue: Queue) -> None:
    """Raise GroupNotEmpty if a consumer reads the queue or has records leased."""
    if queue.consumers or any(
        subscriber.counts[LEASED] or subscriber.counts[MOVING]
        for subscriber in queue.state.subscribers.values()
    ):
        raise _in_use(queue)


def _in_use(queue: Queue) -> GroupNotEmpty:
    return GroupNotEmpty(
        f"The queue {queue.name!r} has {len(queue.consumers)} consumers, or records that are "
        "leased; stop them, and wait until"
        " the leases end."
    )


def _progress(queue: Queue, source: QueueSource) -> GroupProgress:
    """Return the progress in a partition. The subscriber that is furthest behind counts."""
    number, end = source.number, source.partition.visible_end
    subscriber = min(queue.state.subscribers.values(), key=lambda each: each.starts[number])
    start = min(max(subscriber.starts[number], source.partition.start_offset), end)
    return GroupProgress(start, end, end - start - _finished(subscriber, number, start, end))


def _finished(subscriber: SubscriberState, number: int, start: int, end: int) -> int:
    """Return the number of records behind the start that are finished already, gaps (offsets
    without a record) included.
    """
    pages = subscriber.maps[number].pages()
    stop = min(end, (pages[-1] + 1) * subscriber.maps[number].PAGE) if pages else start
    return sum(
        last - first
        for first, last, value in subscriber.maps[number].runs(start, max(start, stop))
        if value & STATE_MASK >= DONE
    )
