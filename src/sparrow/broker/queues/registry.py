"""All queues of a broker by name: made, loaded, configured, deleted; and their sources, as topics
come, grow and go.

Changes are durable when a method returns, and run one after the other. Rights are checked in
`service.py`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import (
    InvalidArgument,
    InvalidTopicName,
    LogDamaged,
    QueueExists,
    SparrowError,
    UnknownQueue,
)
from sparrow.base.ids import uuid7
from sparrow.base.queue_policy import TIMESTAMP_PREFIX, QueuePolicy, names_of
from sparrow.broker.changes import Changes
from sparrow.broker.names import check_group_name, check_topic_name, compile_any_pattern
from sparrow.broker.queues.dead_letters import move_intents
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.persistence import definition as definitions
from sparrow.broker.queues.persistence import pages
from sparrow.broker.queues.persistence.definition import DEAD, QUEUE, SHARE, Definition
from sparrow.broker.queues.persistence.restore import StoredSource, StoredStates
from sparrow.broker.queues.queue import Queue
from sparrow.broker.queues.scheduler import CooperativeScheduler
from sparrow.broker.queues.source import ReadCaches
from sparrow.broker.reading.positions import BEGINNING, TIMESTAMP, StartPosition, locate
from sparrow.broker.topics.internal_topics import INTERNAL_TOPICS
from sparrow.meta.store import ABSENT, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.base.histogram import Histogram
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.persistence.state_store import StateStore
    from sparrow.broker.queues.source import QueueSource
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.meta.store import Write

_LOG = logging.getLogger(__name__)

_REBUILT_FOR: Final = ("order", "subscribers", "expiry_ms", "parent_failed", "isolation")
"""Settings on which the state of records depends: a change of them reads the state again."""
_DELETED: Final = "queue-deleted"
"""Ids of queues whose entries are still to be removed."""


class _Closed(NamedTuple):
    """A queue that is closed because at least one of its logs is. The logs that are open are its
    sources; the state of the other records stays in the meta store.
    """

    queue: Queue
    reasons: dict[str, LogDamaged]
    """By damaged topic."""


class QueueRegistry:
    """All queues of a broker. Loop thread only."""

    def __init__(self, store: StateStore, clock: Clock, topics: TopicRegistry) -> None:
        self._store = store
        self._clock = clock
        self._topics = topics
        self._queues: dict[str, Queue] = {}
        self._changes = Changes(store)
        self._caches = ReadCaches()
        self._scheduler = CooperativeScheduler()
        self.made: list[Callable[[Queue], None]] = []
        """Called with each queue that begins to run, to attach other parts to it."""
        self.deleted: list[Callable[[Queue], None]] = []
        """Called with each queue that was deleted, to delete what else belongs to it."""
        self._is_closed = False
        self._damaged: dict[str, _Closed] = {}
        """Queues that stay closed until the next start, or until their damaged topics are
        deleted.
        """

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    @property
    def sync_times(self) -> Histogram:
        """Durations of the syncs that persist leases and acknowledgements, in seconds."""
        return self._store.sync_times

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def find(self, name: str) -> Queue | None:
        """Return the queue, or None."""
        return self._queues.get(name)

    def get(self, name: str) -> Queue:
        """Return the queue.

        Raises:
            UnknownQueue
        """
        queue = self._queues.get(name)
        if queue is None:
            self._refuse_damaged(name)
            raise UnknownQueue(
                self.without_dead_letters(name)
                or f"there is no queue {name[:200]!r}; `sparrow queue create` makes one"
            )
        return queue

    def without_dead_letters(self, name: str) -> str | None:
        """Return the explanation for a missing topic or queue that will hold the dead letters of a
        queue in which nothing has died yet; else None.

        It names no queue that the name does not contain itself: the caller may not know of it.
        """
        waiting = [each.name for each in self if each.definition.policy.dead_letters_of(each.name) == name]
        if not waiting:
            return None
        own = next((queue for queue in waiting if name == f"{queue}.dead"), None)
        whose = f"queue {own!r}" if own is not None else "a queue"
        return (
            f"there are no dead letters yet: those of {whose} go to {name!r}, which is made with the "
            "first one"
        )

    def definition(self, name: str) -> Definition | None:
        """Return the definition of a queue, also of one that is closed; or None."""
        closed = self._damaged.get(name)
        queue = self._queues.get(name) if closed is None else closed.queue
        return None if queue is None else queue.definition

    def _refuse_damaged(self, name: str) -> None:
        if name in self._damaged:
            reason = next(iter(self._damaged[name].reasons.values()))
            raise LogDamaged(f"queue {name!r} is closed: {reason.text}")

    def matching(self, pattern: str) -> list[Queue]:
        """Return queues whose name matches a pattern (`*` and `?`), by name."""
        matches = compile_any_pattern(pattern).match
        return [self._queues[name] for name in sorted(self._queues) if pattern == "*" or matches(name)]

    def of_topic(self, topic: str) -> list[Queue]:
        """Return the queues that have this topic."""
        return [queue for queue in self._queues.values() if topic in queue.definition.topics]

    # ── at start and stop ─────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read all queues from the meta store. Call `begin` when the logs are recovered.

        Raises:
            DirectoryUnreadable, NewerFormat
        """
        await self._finish_deletions()
        entries = await self._store.scan(definitions.KIND)
        if not entries:
            return
        states = await StoredStates.read(self._store, self._now())
        restored = [self._new(definitions.decode(entry)) for entry in entries]
        for queue in restored:
            self._restore(queue, states)
        await self._keep_what_was_cut(restored)
        topic_ids = {partition.id.topic_id for topic in self._topics for partition in topic.partitions}
        await self._write_in_parts(states.of_other_topics(topic_ids))

    @staticmethod
    async def _keep_what_was_cut(queues: Sequence[Queue]) -> None:
        """Persist that the state of records that the log lost is forgotten, before new records take
        their offsets.
        """
        writing = [queue.writer.flushed() for queue in queues if queue.snapshot.has_changes]
        # the writers try again, and log the reason
        await asyncio.gather(*writing, return_exceptions=True)

    async def _finish_deletions(self) -> None:
        for entry in await self._store.scan(_DELETED):
            await self._remove_entries(entry.key)

    async def _remove_entries(self, queue_id: str) -> None:
        writes: list[Write] = [
            Delete(kind, found.key)
            for kind in (pages.START, pages.PAGE, pages.FAILED, move_intents.KIND)
            for found in await self._store.scan(kind, f"{queue_id}/")
        ]
        await self._write_in_parts(writes)
        await self._store.write([Delete(_DELETED, queue_id)])

    async def _write_in_parts(self, writes: Sequence[Write]) -> None:
        for index in range(0, len(writes), 1000):
            await self._store.write(writes[index : index + 1000])

    def _now(self) -> tuple[int, int]:
        return round(self._clock.monotonic() * 1000), self._clock.wall_ms()

    def _new(self, definition: Definition) -> Queue:
        return Queue(definition, self._store, self._clock, self._caches, self._scheduler)

    def _restore(self, queue: Queue, states: StoredStates) -> None:
        """Restore the sources of a queue, and the state of their records. The queue stays closed if
        one of its logs is.
        """
        closed = _Closed(queue, {})
        for name in queue.definition.topics:
            topic = self._topics.find(name)
            for partition in topic.partitions if topic is not None else ():
                stored = states.take(queue.definition.id, partition.id, tuple(queue.state.subscribers))
                if stored is None:
                    continue
                try:
                    _restore_source(queue, partition, stored)
                except LogDamaged as error:
                    closed.reasons.setdefault(name, error)
        if closed.reasons:
            self._damaged[queue.name] = closed
            for reason in closed.reasons.values():
                _LOG.error("queue %r stays closed: %s", queue.name, reason.text)
        else:
            self._queues[queue.name] = queue

    def begin(self) -> None:
        """Start all queues. Partitions that came while the broker was down become sources."""
        self._unwatch = self._topics.watch(self._topic_changed)
        for queue in self._queues.values():
            self._run(queue)

    def _run(self, queue: Queue) -> None:
        for attach in self.made:
            attach(queue)
        for source in queue.sources:
            queue.begin(source)
        self._grow(queue)
        queue.changed()

    async def close(self) -> None:
        """Stop all queues and persist their state."""
        self._is_closed = True
        self._unwatch()
        await self._changes.settle()
        queues = [*self._queues.values(), *(each.queue for each in self._damaged.values())]
        for queue in queues:
            queue.stop()
        for queue in queues:
            try:
                await queue.close()
            except SparrowError as error:
                _LOG.warning("the state of queue %r could not be kept: %s", queue.name, error.text)
        try:
            await self._store.close()
        except SparrowError as error:
            _LOG.warning("the next start replays the journal of the queues: %s", error.text)

    def housekeep(self) -> None:
        """Do housekeeping of all queues (rates, retention). Call it periodically."""
        for queue in list(self._queues.values()):
            queue.housekeep()

    # ── making ────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self,
        name: str,
        topics: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        *,
        kind: str = QUEUE,
        starts: Callable[[Partition], int] | None = None,
    ) -> Queue:
        """Make a queue on topics that exist.

        Args:
            starts: first offset of each partition; default: by the policy's `start`.

        Raises:
            QueueExists, UnknownTopic, InvalidConfig, InvalidArgument
        """
        check_name_and_topics(name, topics)
        policy = QueuePolicy().changed(settings or {})
        now_ms = self._clock.wall_ms()
        definition = Definition(name, uuid7(now_ms), kind, tuple(topics), policy, created_ms=now_ms)
        self._check_dead_letters(definition)
        return await self._changes.carry_out(lambda: self._create(definition, starts))

    @staticmethod
    def _check_dead_letters(definition: Definition) -> None:
        if definition.kind == QUEUE:
            check_dead_letters(definition.name, definition.topics, definition.policy)

    async def _create(self, definition: Definition, starts: Callable[[Partition], int] | None) -> Queue:
        self._refuse_damaged(definition.name)
        if definition.name in self._queues:
            raise QueueExists(f"queue {definition.name!r} exists already")
        queue = self._new(definition)
        for name in definition.topics:
            for partition in self._topics.get(name).partitions:
                first = starts(partition) if starts else await _first_offset(partition, definition.policy)
                self._add(queue, partition, first)
        entry = definition.entry()
        writes: list[Write] = [Put(entry.kind, entry.key, entry.value, ABSENT)]
        for source in queue.sources:
            writes += queue.snapshot.starts_to_keep(source)
        await self._store.write(writes)
        self._queues[queue.name] = queue
        for name in definition.topics:
            topic = self._topics.find(name)
            if topic is None or any(
                each.partition is not topic.partitions[each.index]
                for each in queue.sources
                if each.topic == name
            ):
                queue.topic_deleted(name)  # meanwhile; maybe there is another of that name already
        self._run(queue)
        return queue

    @staticmethod
    def _add(queue: Queue, partition: Partition, first: int) -> QueueSource:
        return queue.add_source(
            partition, dict.fromkeys(queue.state.subscribers, first), min(partition.start_offset, first)
        )

    async def share(self, group: str) -> Queue:
        """Return the queue of a Kafka share group. It is made, without sources, if it is missing.

        Raises:
            InvalidArgument: no such name is possible.
        """
        queue = self._queues.get(group)
        if queue is None:
            try:
                queue = await self.create(group, (), {"dead_letter_topic": None}, kind=SHARE)
            except QueueExists:
                queue = self.get(group)
        return queue

    async def of_dead_letters(self, topic: str) -> Queue:
        """Return the queue on a dead-letter topic, which must exist. It is made if it is missing.

        Raises:
            UnknownTopic
        """
        queue = self._queues.get(topic)
        if queue is None:
            settings = {"dead_letter_topic": None, "delivery_limit": 0, "start": BEGINNING}
            try:
                queue = await self.create(topic, (topic,), settings, kind=DEAD)
            except QueueExists:
                queue = self.get(topic)
        return queue

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    async def configure(self, name: str, settings: Mapping[str, object], unset: Sequence[str] = ()) -> Queue:
        """Change the policy of a queue, from now on.

        Raises:
            UnknownQueue, InvalidConfig
        """
        self.get(name).definition.policy.changed(settings, unset)
        if "start" in settings or "start" in names_of(unset):
            raise InvalidArgument("a queue begins only once: `start` cannot be changed any more")

        async def change() -> Queue:
            queue = self.get(name)
            return await self._redefine(queue, queue.definition.policy.changed(settings, unset))

        return await self._changes.carry_out(change)

    async def set_subscriber(self, name: str, subscriber: str, *, is_one: bool) -> Queue:
        """Add a subscriber, or remove it, and change no other. The first one makes the queue an
        all-of queue.

        Raises:
            UnknownQueue, InvalidConfig
        """

        async def change() -> Queue:
            queue = self.get(name)
            policy = queue.definition.policy
            others = [each for each in policy.subscribers if each != subscriber]
            if is_one == (subscriber in policy.subscribers):
                return queue
            subscribers = [*others, subscriber] if is_one else others
            return await self._redefine(queue, policy.changed({"subscribers": subscribers}))

        return await self._changes.carry_out(change)

    async def _redefine(self, queue: Queue, policy: QueuePolicy) -> Queue:
        definition = replace(queue.definition, policy=policy)
        self._check_dead_letters(definition)
        if any(getattr(policy, each) != getattr(queue.definition.policy, each) for each in _REBUILT_FOR):
            return await self._rebuild(queue, definition)
        await self._store.write([definition.entry()])
        queue.redefine(definition)
        return queue

    async def set_paused(self, name: str, *, is_paused: bool) -> None:
        """Stop leasing, or lease again.

        Raises:
            UnknownQueue
        """

        async def change() -> None:
            queue = self.get(name)
            definition = replace(queue.definition, is_paused=is_paused)
            await self._store.write([definition.entry()])
            queue.redefine(definition)

        await self._changes.carry_out(change)

    async def _rebuild(self, queue: Queue, definition: Definition) -> Queue:
        """Replace a queue by one with another kind of state, made from what is persisted. Consumers
        move to the new one.

        Raises:
            DiskFull, StorageFailed: the queue stays as it was.
        """
        queue.successor = asyncio.get_running_loop().create_future()
        failure: SparrowError | None = None
        try:
            try:
                await queue.close()
                # Together: after a crash between them it would be unknown where the new subscribers
                # begin.
                await self._store.write(
                    [definition.entry(), *queue.snapshot.handed_over(definition.policy.subscribers)]
                )
            except SparrowError as error:
                failure, definition = error, queue.definition
            states = await StoredStates.read(self._store, self._now(), queue.definition.id)
            new = self._new(definition)
            self._restore(new, states)
        except BaseException as error:
            self._queues.pop(queue.name, None)
            queue.successor.set_exception(
                UnknownQueue(f"queue {queue.name!r} could not be changed ({error}); restart the broker")
            )
            queue.successor.exception()
            raise
        self._queues[queue.name] = new
        new.adopt(queue)
        queue.successor.set_result(new)
        self._run(new)
        if failure is not None:
            raise failure
        return new

    async def delete(self, name: str) -> None:
        """Delete a queue and the state of its records. The records stay in their topics. A queue
        that is closed can be deleted, too.

        Raises:
            UnknownQueue
        """

        async def change() -> None:
            closed = self._damaged.get(name)
            queue = self.get(name) if closed is None else closed.queue
            queue_id = queue.definition.id.hex
            await self._store.write([Delete(definitions.KIND, name), Put(_DELETED, queue_id, b"")])
            self._damaged.pop(name, None)
            self._queues.pop(name, None)  # a closed queue may have been opened meanwhile
            queue.stop()
            queue.end_consumers(UnknownQueue(f"queue {name!r} was deleted"))
            for forget in self.deleted:
                forget(queue)
            await queue.writer.drop()
            await self._remove_entries(queue_id)

        await self._changes.carry_out(change)

    async def add_topics(self, name: str, topics: Sequence[str], starts: Callable[[Partition], int]) -> None:
        """Make sources of topics that a share group subscribes to. Topics that it has already are
        left alone.

        Raises:
            UnknownQueue, UnknownTopic
        """

        async def change() -> None:
            queue = self.get(name)
            new = [topic for topic in topics if topic not in queue.definition.topics]
            if not new:
                return
            definition = replace(queue.definition, topics=(*queue.definition.topics, *new))
            partitions = [each for topic in new for each in self._topics.get(topic).partitions]
            firsts = [(each, starts(each)) for each in partitions]
            writes: list[Write] = [definition.entry()]
            for partition, first in firsts:
                writes += queue.snapshot.start_entries(
                    partition, dict.fromkeys(queue.state.subscribers, first)
                )
            await self._store.write(writes)
            queue.definition = definition
            for partition, first in firsts:
                topic = self._topics.find(partition.id.topic)
                if topic is not None and topic.partitions[partition.id.partition] is partition:
                    queue.begin(self._add(queue, partition, first))
            self._grow(queue)

        await self._changes.carry_out(change)

    async def extend(self, name: str, topics: Sequence[str]) -> Queue:
        """Let a queue take from more topics, which exist, from the policy's `start`.

        Raises:
            UnknownQueue, UnknownTopic
        """
        policy = self.get(name).definition.policy
        firsts = {
            partition.id: await _first_offset(partition, policy)
            for topic in topics
            for partition in self._topics.get(topic).partitions
        }
        await self.add_topics(
            name, topics, lambda partition: firsts.get(partition.id, partition.start_offset)
        )
        return self.get(name)

    async def drop_topic(self, name: str, topic: str) -> None:
        """Remove a topic from a share group.

        Raises:
            UnknownQueue
        """

        async def change() -> None:
            queue = self.get(name)
            kept = tuple(each for each in queue.definition.topics if each != topic)
            definition = replace(queue.definition, topics=kept)
            # Together: the state of its records must not be found when the topic becomes a source
            # again.
            await self._store.write([definition.entry(), *queue.snapshot.topic_forgotten(topic)])
            queue.definition = definition
            queue.topic_deleted(topic)
            await queue.writer.flushed()

        await self._changes.carry_out(change)

    async def restart_sources(self, name: str, starts: Mapping[tuple[str, int], int]) -> None:
        """Begin at other offsets. Nothing may be leased there.

        Raises:
            UnknownQueue
        """

        async def change() -> None:
            queue = self.get(name)
            for key, start in starts.items():
                source = queue.source(key)
                if source is not None:
                    queue.restart_source(source, start)
            if queue.definition.policy.order != "none":  # parents and children must be found again
                await self._rebuild(queue, queue.definition)
            else:
                await queue.writer.flushed()

        await self._changes.carry_out(change)

    # ── topics come, grow and go ──────────────────────────────────────────────────────────────────

    def _topic_changed(self, topic: Topic) -> None:
        for queue in self.of_topic(topic.name):
            if topic.is_deleted:
                queue.topic_deleted(topic.name)
            else:
                self._grow(queue)
        if topic.is_deleted:
            for closed in list(self._damaged.values()):
                self._drop_from_closed(closed, topic.name)

    def _drop_from_closed(self, closed: _Closed, topic: str) -> None:
        """Remove a deleted topic from a closed queue, and open the queue if no other log of it is
        closed.
        """
        queue = closed.queue
        if topic not in queue.definition.topics:
            return
        queue.topic_deleted(topic)
        if closed.reasons.pop(topic, None) is not None and not closed.reasons:
            self._queues[queue.name] = self._damaged.pop(queue.name).queue
            self._run(queue)
            _LOG.info("queue %r is open again: its damaged topics were deleted", queue.name)

    def _grow(self, queue: Queue) -> None:
        """Make sources of new partitions, from their beginning."""
        new = [
            partition
            for name in queue.definition.topics
            if (topic := self._topics.find(name)) is not None
            for partition in topic.partitions
            if queue.source((name, partition.id.partition)) is None
        ]
        if new and not self._is_closed:
            writes: list[Write] = []
            for partition in new:
                try:
                    source = self._add(queue, partition, partition.start_offset)
                except LogDamaged:  # becomes a source when it is open again
                    continue
                writes += queue.snapshot.starts_to_keep(source)
                queue.begin(source)
            queue.writer.add(writes)
            queue.writer.changed()


def check_name_and_topics(name: str, topics: Sequence[str]) -> None:
    """Raise InvalidArgument if a queue cannot have this name, or a topic is named twice."""
    check_group_name(name)
    if len(set(topics)) < len(topics):
        raise InvalidArgument(f"queue {name!r} names a topic twice: {', '.join(topics)}")


def check_dead_letters(name: str, topics: Sequence[str], policy: QueuePolicy) -> None:
    """Raise InvalidArgument or InvalidTopicName if a queue's dead letters cannot go where the
    policy says.
    """
    dead = policy.dead_letters_of(name)
    if dead is None:
        return
    if dead in topics:
        raise InvalidArgument(
            f"the dead letters of queue {name!r} would go to {dead!r}, which is one of its own topics"
        )
    if dead in INTERNAL_TOPICS:
        raise InvalidArgument(f"the dead letters of queue {name!r} cannot go to the internal topic {dead!r}")
    try:
        check_topic_name(dead)
    except InvalidTopicName as error:
        raise InvalidTopicName(
            f"the dead letters of queue {name!r} have no topic: {error.text}; set dead_letter_topic"
        ) from None


def _restore_source(queue: Queue, partition: Partition, stored: StoredSource) -> None:
    end = partition.visible_end  # the log may have lost its tail in a power failure
    starts = {name: min(start, end) for name, start in stored.starts.items()}
    source = queue.add_source(partition, starts, partition.start_offset)
    for key in stored.keys:
        queue.snapshot.found(key)
    for name, subscriber in queue.state.subscribers.items():
        subscriber.restore(source.number, [page.before(end) for page in stored.pages.get(name, ())])
    for first, stop in stored.failed:
        queue.state.failed[source.number].set(first, min(stop, end), 1)
    _mark_cut(queue, source, stored, end)


def _mark_cut(queue: Queue, source: QueueSource, stored: StoredSource, end: int) -> None:
    """Have the state of records behind the end of the log persisted again: new records will take
    their offsets.
    """
    number = source.number
    for name, subscriber in queue.state.subscribers.items():
        if stored.starts[name] > end:
            subscriber.moved_starts.add(number)
        subscriber.dirty.update(
            (number, page.number) for page in stored.pages.get(name, ()) if page.reaches_beyond(end)
        )
    for first, stop in stored.failed:
        if stop > end:
            queue.state.dirty_failed.add((number, first >> RangeMap.PAGE_BITS))


async def _first_offset(partition: Partition, policy: QueuePolicy) -> int:
    start = StartPosition(policy.start)
    if policy.start.startswith(TIMESTAMP_PREFIX):
        start = StartPosition(TIMESTAMP, int(policy.start.removeprefix(TIMESTAMP_PREFIX)))
    return (await locate(partition, start))[0]
