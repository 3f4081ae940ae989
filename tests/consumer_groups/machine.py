"""A consumer group without a broker: topics, a manual clock, and short heartbeats."""

import uuid

from sparrow.broker.groups.consumer.checks import check_heartbeat, is_leave
from sparrow.broker.groups.consumer.group import ConsumerGroup
from sparrow.broker.groups.consumer.member import NOTHING, Heartbeat, HeartbeatResponse
from sparrow.broker.groups.consumer.topics import TopicCatalog, TopicView
from sparrow.broker.groups.topic_regexes import TopicRegexes

SESSION_TIMEOUT_S = 45.0


class Machine:
    """A group and the topics that it sees."""

    def __init__(self, *, max_members: int = 1000, **topics: int) -> None:
        self.catalog = TopicCatalog()
        self.regexes = TopicRegexes(self.catalog)
        self.group = ConsumerGroup("g", self.catalog, max_members)
        self.now = 0.0
        for name, partitions in topics.items():
            self.make_topic(name, partitions)

    def make_topic(self, name: str, partitions: int) -> None:
        self.catalog.put(TopicView(name, uuid.uuid4(), partitions))
        self.regexes.topic_created(name)
        self.group.topics_changed([name])

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = self.catalog.find(name)
        assert topic is not None
        self.catalog.put(TopicView(name, topic.topic_id, partitions))
        self.group.topics_changed([name])

    def delete_topic(self, name: str) -> None:
        self.catalog.remove(name)
        self.regexes.topic_deleted(name)
        self.group.topics_changed([name])

    def partitions(self, *names: str) -> frozenset[tuple[uuid.UUID, int]]:
        found = [self.catalog.find(name) for name in names]
        return frozenset((t.topic_id, n) for t in found if t is not None for n in range(t.partitions))

    def beat(self, beat: Heartbeat) -> HeartbeatResponse:
        check_heartbeat(beat)
        if is_leave(beat.member_epoch):
            self.group.leave(beat)
            return HeartbeatResponse(beat.member_id, beat.member_epoch)
        return self.group.heartbeat(beat, self.now, SESSION_TIMEOUT_S, self.regexes.matching)


def joining(member_id: str, *topics: str, regex: str | None = None, **more: object) -> Heartbeat:
    """Return a first heartbeat."""
    return Heartbeat(
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        topics=topics if topics or regex is None else None,
        regex=regex,
        owned=NOTHING,
        **more,  # type: ignore[arg-type]
    )
