"""A share group in a test: topics that come and go, members that send heartbeats, a manual
clock.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from sparrow.broker.groups.consumer.member import Assignment, HeartbeatResponse
from sparrow.broker.groups.consumer.topics import TopicCatalog, TopicView
from sparrow.broker.groups.share.group import ShareGroup
from sparrow.broker.groups.share.member import ShareHeartbeat

SESSION_TIMEOUT_S = 45.0


def joining(member_id: str, *topics: str, **more: object) -> ShareHeartbeat:
    """Return the first heartbeat of a member."""
    return ShareHeartbeat(member_id, 0, topics=topics, **more)  # type: ignore[arg-type]


class Machine:
    """One group over topics by name."""

    def __init__(self, topics: Mapping[str, int] | None = None, max_members: int = 200) -> None:
        self.topics = TopicCatalog()
        self.group = ShareGroup("g", self.topics, max_members)
        self.now = 1000.0
        for name, partitions in (topics or {}).items():
            self.put(name, partitions)

    def put(self, name: str, partitions: int) -> None:
        """Create a topic, or give it more partitions."""
        known = self.topics.find(name)
        topic_id = uuid.uuid4() if known is None else known.topic_id
        self.topics.put(TopicView(name, topic_id, partitions))
        self.group.topics_changed([name])

    def drop(self, name: str) -> None:
        self.topics.remove(name)
        self.group.topics_changed([name])

    def send(self, beat: ShareHeartbeat) -> HeartbeatResponse:
        return self.group.heartbeat(beat, self.now, SESSION_TIMEOUT_S)

    def join(self, member_id: str, *topics: str) -> HeartbeatResponse:
        return self.send(joining(member_id, *topics))

    def named(self, assignment: Assignment | None) -> dict[str, list[int]] | None:
        """Return an assignment by names."""
        if assignment is None:
            return None
        found: dict[str, list[int]] = {}
        for topic_id, number in sorted(assignment, key=lambda each: each[1]):
            topic = self.topics.find_id(topic_id)
            found.setdefault("?" if topic is None else topic.name, []).append(number)
        return dict(sorted(found.items()))

    def settle(self) -> None:
        """Send heartbeats of all members until their responses bring nothing new."""
        for _ in range(2):
            for member in list(self.group.members.values()):
                self.send(ShareHeartbeat(member.member_id, member.epoch))


def topic_views(partitions: Iterable[int]) -> list[TopicView]:
    """Return topics t0, t1, … with this many partitions."""
    return [TopicView(f"t{n}", uuid.UUID(int=n + 1), count) for n, count in enumerate(partitions)]
