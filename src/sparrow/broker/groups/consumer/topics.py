"""The topics as consumer groups see them: names, ids, numbers of partitions, and a digest to detect
changes.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator

from msgspec import Struct


class TopicView(Struct, frozen=True):
    """A topic that exists."""

    name: str
    topic_id: uuid.UUID
    partitions: int


class TopicCatalog:
    """All topics that exist."""

    def __init__(self) -> None:
        self._by_name: dict[str, TopicView] = {}
        self._by_id: dict[uuid.UUID, TopicView] = {}

    def __iter__(self) -> Iterator[TopicView]:
        return iter(self._by_name.values())

    def put(self, topic: TopicView) -> None:
        """Add a topic, or its new number of partitions."""
        self.remove(topic.name)
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Remove a deleted topic."""
        before = self._by_name.pop(name, None)
        if before is not None:
            del self._by_id[before.topic_id]

    def find(self, name: str) -> TopicView | None:
        """Return the topic of this name, or None."""
        return self._by_name.get(name)

    def find_id(self, topic_id: uuid.UUID) -> TopicView | None:
        """Return the topic of this id, or None."""
        return self._by_id.get(topic_id)

    def digest(self, names: Iterable[str]) -> bytes:
        """Return eight bytes that differ when one of these topics was created, deleted, created
        again or grew.
        """
        hashed = hashlib.blake2b(digest_size=8)
        for name in sorted(names):
            topic = self._by_name.get(name)
            if topic is not None:
                hashed.update(topic.topic_id.bytes)
                hashed.update(topic.partitions.to_bytes(4, "big"))
        return hashed.digest()
