"""Where the jobs of a schedule go: the queue, a topic of it, and a partition."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import InvalidConfig, NotAuthorized, SparrowError, UnknownQueue
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.broker.queues.rules.record_state import DONE, STATE_MASK
from sparrow.records.partitioner import partition_for_key

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.schedules.entry import ScheduleEntry, ScheduleState
    from sparrow.broker.schedules.settings import ScheduleSettings
    from sparrow.broker.topics.registry import Topic, TopicRegistry


class ScheduleTarget(NamedTuple):
    """The queue and the topic that get jobs."""

    queue: Queue
    topic: Topic


class ScheduleTargets:
    """Finds the target of schedules. Loop thread only."""

    def __init__(self, queues: QueueRegistry, topics: TopicRegistry, access: Access) -> None:
        self._queues = queues
        self._topics = topics
        self._access = access

    def find(self, settings: ScheduleSettings, owner: Principal) -> ScheduleTarget:
        """Return the target of a schedule, if its owner may publish there.

        Raises:
            UnknownQueue, UnknownTopic, InvalidConfig, LogDamaged: there is none.
            NotAuthorized: the owner may not write to the topic.
        """
        queue = self._queues.get(settings.queue)
        topic = self._topics.get(topic_of(settings, queue))
        # without a report to the audit: it is asked again and again
        if not self._access.allows(owner, Operation.WRITE, ResourceType.TOPIC, topic.name):
            raise NotAuthorized(f"{owner}, who owns the schedule, may not write to topic {topic.name!r}")
        if topic.config.compact and settings.key is None:
            raise InvalidConfig(f"topic {topic.name!r} is compacted: a schedule for it needs a key")
        return ScheduleTarget(queue, topic)

    def problem(self, entry: ScheduleEntry) -> str:
        """Return why the schedule cannot publish now; "" if it can."""
        try:
            self.find(entry.definition.settings, entry.definition.owner)
        except SparrowError as error:
            return problem_text(entry.definition.settings.queue, error)
        return ""

    def state(self, entry: ScheduleEntry) -> str:
        """Return "active", "paused", or "broken": it cannot publish now."""
        if entry.definition.is_paused:
            return "paused"
        return "broken" if self.problem(entry) else "active"


def problem_text(queue: str, error: SparrowError) -> str:
    """Return the text of an error of `find` for people who look at a schedule."""
    if isinstance(error, UnknownQueue):
        return (
            f"queue {queue!r} is missing: it was deleted. Create it again, let the schedule name another "
            "one, or delete the schedule"
        )
    return error.text


def topic_of(settings: ScheduleSettings, queue: Queue) -> str:
    """Return the topic of a queue that gets the jobs.

    Raises:
        InvalidConfig: it is none of the queue's, or the queue has several and none is named.
    """
    topics = queue.definition.topics
    if settings.topic:
        if settings.topic not in topics:
            raise InvalidConfig(
                f"queue {queue.name!r} does not take from topic {settings.topic!r}; it has "
                f"{', '.join(topics)}"
            )
        return settings.topic
    if len(topics) == 1:
        return topics[0]
    if queue.name in topics:
        return queue.name
    raise InvalidConfig(
        f"queue {queue.name!r} has several topics; name one of them as topic: {', '.join(topics)}"
    )


def partition_of(topic: Topic, name: str, key: bytes | None) -> Partition:
    """Return the partition of a schedule's jobs: by their key, or else by the schedule's name."""
    count = len(topic.partitions)
    number = zlib.crc32(name.encode()) % count if key is None else partition_for_key(key, count)
    return topic.partitions[number]


def is_unfinished(target: ScheduleTarget, state: ScheduleState) -> bool:
    """Return True if the last job of a schedule waits, or is worked on."""
    if state.offset < 0 or state.topic_id != target.topic.id.bytes:
        return False
    source = target.queue.source((target.topic.name, state.partition))
    if source is None or state.offset >= source.partition.visible_end:
        return False
    subscribers = target.queue.state.subscribers.values()
    return any(each.value_at(source.number, state.offset) & STATE_MASK < DONE for each in subscribers)
