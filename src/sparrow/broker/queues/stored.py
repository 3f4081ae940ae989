"""What the meta store holds of the records of queues, sorted by source; used at start and when a queue is rebuilt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from sparrow.broker.queues import pages
from sparrow.meta.store import Delete

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.queues.pages import KeptRun
    from sparrow.meta.store import MetaStore, Write
    from sparrow.storage.store import LogId


@dataclass(slots=True)
class StoredSource:
    """One source of one queue."""

    starts: dict[str, int] = field(default_factory=dict)
    """By lane."""
    runs: dict[str, list[KeptRun]] = field(default_factory=dict)
    failed: list[tuple[int, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Of the facts that hold pages."""


class StoredStates:
    """Everything that is kept, by (queue, topic id, partition)."""

    def __init__(self) -> None:
        self._starts: dict[str, int] = {}
        self._pages: dict[str, list[tuple[str, list[KeptRun]]]] = {}
        self._failed: dict[str, list[tuple[str, list[tuple[int, int]]]]] = {}

    @classmethod
    async def read(cls, meta: MetaStore, now: tuple[int, int], queue_id: uuid.UUID | None = None) -> Self:
        """All facts, or those of one queue.

        Args:
            now: (monotonic, wall) ms.

        Raises:
            DirectoryUnreadable, NewerFormat
        """
        prefix = f"{queue_id.hex}/" if queue_id is not None else ""
        states = cls()
        for fact in await meta.scan(pages.START, prefix):
            states._starts[fact.key] = pages.decode_start(fact)
        for fact in await meta.scan(pages.PAGE, prefix):
            source = fact.key.rpartition("/")[0]
            runs = pages.decode_page(fact, pages.page_of(fact), *now)
            states._pages.setdefault(source, []).append((fact.key, runs))
        for fact in await meta.scan(pages.FAILED, prefix):
            source = fact.key.rpartition("/")[0]
            failed = pages.decode_failed(fact, pages.page_of(fact))
            states._failed.setdefault(source, []).append((fact.key, failed))
        return states

    def of_other_topics(self, topic_ids: set[uuid.UUID]) -> list[Write]:
        """What deletes the facts of topics that do not exist: a crash kept them from being deleted with their topic."""
        known = {each.hex for each in topic_ids}
        writes: list[Write] = [
            Delete(pages.START, key) for key in self._starts if key.split("/")[-2] not in known
        ]
        for kind, sources in ((pages.PAGE, self._pages), (pages.FAILED, self._failed)):
            for source, found in sources.items():
                if source.split("/")[-2] not in known:
                    writes += [Delete(kind, key) for key, _ in found]
        return writes

    def take(self, queue_id: uuid.UUID, log_id: LogId, lanes: tuple[str, ...]) -> StoredSource | None:
        """What is known of a source; None: it never was one."""
        found = StoredSource()
        for lane in lanes:
            key = pages.source_key(queue_id, lane, log_id.topic_id, log_id.partition)
            start = self._starts.get(key)
            if start is None:
                return None
            found.starts[lane] = start
            found.runs[lane] = [run for _, runs in self._pages.get(key, ()) for run in runs]
            found.runs[lane].sort(key=lambda run: run[0])
            found.keys += [fact_key for fact_key, _ in self._pages.get(key, ())]
        failed = self._failed.get(pages.failed_key(queue_id, log_id.topic_id, log_id.partition), ())
        found.failed = [run for _, runs in failed for run in runs]
        found.keys += [fact_key for fact_key, _ in failed]
        return found
