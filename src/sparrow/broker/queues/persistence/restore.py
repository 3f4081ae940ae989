"""Persisted state of the records of queues, sorted by source. Used at start and when a queue is
rebuilt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from sparrow.broker.queues.persistence import pages
from sparrow.meta.store import Delete

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.queues.rules.kept_page import KeptPage
    from sparrow.meta.store import MetaStore, Write
    from sparrow.storage.store import LogId


@dataclass(slots=True)
class StoredSource:
    """Persisted state of one source of one queue."""

    starts: dict[str, int] = field(default_factory=dict)
    """Start of each subscriber."""
    pages: dict[str, list[KeptPage]] = field(default_factory=dict)
    """Pages of each subscriber, ascending."""
    failed: list[tuple[int, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Keys of the entries that hold pages."""


class StoredStates:
    """Persisted states, keyed by (queue, topic id, partition)."""

    def __init__(self) -> None:
        self._starts: dict[str, int] = {}
        self._pages: dict[str, list[tuple[str, KeptPage]]] = {}
        self._failed: dict[str, list[tuple[str, list[tuple[int, int]]]]] = {}

    @classmethod
    async def read(cls, meta: MetaStore, now: tuple[int, int], queue_id: uuid.UUID | None = None) -> Self:
        """Read all entries, or those of one queue.

        Args:
            now: (monotonic, wall) ms.

        Raises:
            DirectoryUnreadable, NewerFormat
        """
        prefix = f"{queue_id.hex}/" if queue_id is not None else ""
        states = cls()
        for entry in await meta.scan(pages.START, prefix):
            states._starts[entry.key] = pages.decode_start(entry)
        for entry in await meta.scan(pages.PAGE, prefix):
            source = entry.key.rpartition("/")[0]
            page = pages.decode_page(entry, pages.page_of(entry), *now)
            states._pages.setdefault(source, []).append((entry.key, page))
        for entry in await meta.scan(pages.FAILED, prefix):
            source = entry.key.rpartition("/")[0]
            failed = pages.decode_failed(entry, pages.page_of(entry))
            states._failed.setdefault(source, []).append((entry.key, failed))
        return states

    def of_other_topics(self, topic_ids: set[uuid.UUID]) -> list[Write]:
        """Return deletes of the entries of topics that do not exist: a crash kept them from being
        deleted with their topic.
        """
        known = {each.hex for each in topic_ids}
        writes: list[Write] = [
            Delete(pages.START, key) for key in self._starts if key.split("/")[-2] not in known
        ]
        for kind, sources in ((pages.PAGE, self._pages), (pages.FAILED, self._failed)):
            for source, found in sources.items():
                if source.split("/")[-2] not in known:
                    writes += [Delete(kind, key) for key, _ in found]
        return writes

    def take(self, queue_id: uuid.UUID, log_id: LogId, subscribers: tuple[str, ...]) -> StoredSource | None:
        """Take out the state of a source; None: it never was one."""
        found = StoredSource()
        for subscriber in subscribers:
            key = pages.source_key(queue_id, subscriber, log_id.topic_id, log_id.partition)
            start = self._starts.get(key)
            if start is None:
                return None
            found.starts[subscriber] = start
            entries = self._pages.get(key, ())
            found.pages[subscriber] = sorted((page for _, page in entries), key=attrgetter("number"))
            found.keys += [entry_key for entry_key, _ in entries]
        failed = self._failed.get(pages.failed_key(queue_id, log_id.topic_id, log_id.partition), ())
        found.failed = [run for _, runs in failed for run in runs]
        found.keys += [entry_key for entry_key, _ in failed]
        return found
