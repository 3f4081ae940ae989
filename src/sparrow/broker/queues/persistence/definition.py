"""Definition of a queue: name, topics, policy. Persisted as one entry of the meta store."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable, InvalidConfig, NewerFormat
from sparrow.base.queue_policy import QueuePolicy
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from sparrow.meta.store import Entry

KIND: Final = "queue"
QUEUE: Final = "queue"
"""A queue that a user made."""
SHARE: Final = "share"
"""A Kafka share group: its members' subscriptions add the sources."""
DEAD: Final = "dead"
"""The queue on a dead-letter topic."""
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Definition:
    """Name, topics and policy of a queue; see `docs/queues.md`. `topics` are in the order in which
    they were named; messages are published to the first.
    """

    name: str
    id: uuid.UUID
    kind: str
    topics: tuple[str, ...]
    policy: QueuePolicy
    is_paused: bool = False
    created_ms: int = -1

    def entry(self) -> Put:
        """Return the persisted form."""
        settings = {
            name: value
            for name, value in self.policy.settings().items()
            if value != QueuePolicy().settings()[name]
        }
        stored = _Stored(
            VERSION, self.id.bytes, self.kind, list(self.topics), settings, self.is_paused, self.created_ms
        )
        return Put(KIND, self.name, msgspec.msgpack.encode(stored))


class _Stored(msgspec.Struct, array_like=True):
    version: int
    id: bytes
    kind: str
    topics: list[str]
    settings: dict[str, Any]
    is_paused: bool
    created_ms: int


def decode(entry: Entry) -> Definition:
    """Return the definition that an entry holds.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    try:
        stored = msgspec.msgpack.decode(entry.value, type=_Stored)
        if stored.version > VERSION:
            raise NewerFormat(f"the queue {entry.key!r} was written by a later Sparrow; start that one")
        policy = QueuePolicy().changed(stored.settings)
        return Definition(
            entry.key,
            uuid.UUID(bytes=stored.id),
            stored.kind,
            tuple(stored.topics),
            policy,
            stored.is_paused,
            stored.created_ms,
        )
    except (msgspec.DecodeError, ValueError, InvalidConfig) as error:
        raise DirectoryUnreadable(
            f"the queue {entry.key!r} of the meta store cannot be read ({error}); restore meta.db "
            "from a backup"
        ) from None
