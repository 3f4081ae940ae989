"""Entries of the meta store that hold the state of a queue, and the writes that keep them current.

The state says what has changed (`dirty`, `moved_starts`, `dirty_failed`); this module makes writes
of small entries from that (`pages.py` has their form). The keys of all persisted pages are
remembered, so that none is deleted that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.persistence import pages
from sparrow.broker.queues.rules.record_state import DONE
from sparrow.broker.queues.rules.state import ONE_OF
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.rules.state import QueueState
    from sparrow.broker.queues.source import QueueSource
    from sparrow.meta.store import Write


class StateSnapshot:
    """Persisted state of one queue. Loop thread only.

    Args:
        sources: the queue's own list, live.
        now: (monotonic, wall) time in ms.
    """

    def __init__(
        self,
        queue_id: uuid.UUID,
        state: QueueState,
        sources: Sequence[QueueSource],
        now: Callable[[], tuple[int, int]],
    ) -> None:
        self._queue_id = queue_id
        self._state = state
        self._sources = sources
        self._now = now
        self._pages: set[str] = set()
        """Keys of the entries that hold pages."""
        self._source_keys: dict[tuple[str, int], str] = {}
        """Prefixes of keys, by subscriber and number of the source."""

    # ── what changed ──────────────────────────────────────────────────────────────────────────────

    @property
    def has_changes(self) -> bool:
        """True if a change was not collected yet."""
        subscribers = self._state.subscribers.values()
        return bool(self._state.dirty_failed) or any(
            subscriber.dirty or subscriber.moved_starts for subscriber in subscribers
        )

    def collect(self) -> list[Write]:
        """Return writes for everything that changed since the last call."""
        writes: list[Write] = []
        for name, subscriber in self._state.subscribers.items():
            if not subscriber.dirty and not subscriber.moved_starts:
                continue
            for number, page in subscriber.dirty:
                if self._sources[number].is_gone:
                    continue
                key = self._source_keys.get((name, number)) or self._source_key(name, number)
                columns = subscriber.maps[number].columns(page)
                value = pages.encode_page(columns, subscriber.leases.by_number, self._now)
                self._put(writes, pages.PAGE, f"{key}/{page}", value)
            for number in subscriber.moved_starts:
                if not self._sources[number].is_gone:
                    key = self._source_keys.get((name, number)) or self._source_key(name, number)
                    writes.append(Put(pages.START, key, pages.encode_start(subscriber.starts[number])))
            subscriber.dirty.clear()
            if subscriber.moved_starts:
                subscriber.moved_starts.clear()
        if self._state.dirty_failed:
            self._collect_failed(writes)
        return writes

    def _collect_failed(self, writes: list[Write]) -> None:
        for number, page in self._state.dirty_failed:
            if not self._sources[number].is_gone:
                prefix = pages.failed_key(self._queue_id, *_partition_key(self._sources[number]))
                runs = self._state.failed[number].page_runs(page)
                self._put(writes, pages.FAILED, f"{prefix}/{page}", pages.encode_failed(runs, page))
        self._state.dirty_failed.clear()

    def _source_key(self, subscriber: str, number: int) -> str:
        key = pages.source_key(self._queue_id, subscriber, *_partition_key(self._sources[number]))
        self._source_keys[subscriber, number] = key
        return key

    def _put(self, writes: list[Write], kind: str, key: str, value: bytes | None) -> None:
        if value is not None:
            self._pages.add(key)
            writes.append(Put(kind, key, value))
        elif key in self._pages:
            self._pages.discard(key)
            writes.append(Delete(kind, key))

    def found(self, key: str) -> None:
        """Note the key of an entry that exists, at start."""
        self._pages.add(key)

    # ── sources that come and go ──────────────────────────────────────────────────────────────────

    def starts_to_keep(self, source: QueueSource) -> list[Write]:
        """Return writes that persist the starts of a new source."""
        starts = {
            name: subscriber.starts[source.number] for name, subscriber in self._state.subscribers.items()
        }
        return self.start_entries(source.partition, starts)

    def start_entries(self, partition: Partition, starts: dict[str, int]) -> list[Write]:
        """Return writes that persist where the subscribers begin in a partition."""
        partition_key = (partition.id.topic_id, partition.id.partition)
        return [
            Put(
                pages.START, pages.source_key(self._queue_id, name, *partition_key), pages.encode_start(start)
            )
            for name, start in starts.items()
        ]

    def forgotten(self, source: QueueSource) -> list[Write]:
        """Return deletes of the entries of a source."""
        gone = [
            pages.source_key(self._queue_id, subscriber, *_partition_key(source))
            for subscriber in self._state.subscribers
        ]
        writes: list[Write] = [Delete(pages.START, key) for key in gone]
        prefixes = (*gone, pages.failed_key(self._queue_id, *_partition_key(source)))
        for entry_key in [key for key in self._pages if key.rpartition("/")[0] in prefixes]:
            self._pages.discard(entry_key)
            kind = pages.FAILED if entry_key.rpartition("/")[0] == prefixes[-1] else pages.PAGE
            writes.append(Delete(kind, entry_key))
        return writes

    def topic_forgotten(self, topic: str) -> list[Write]:
        """Return deletes of the entries of a topic."""
        return [
            write
            for source in self._sources
            if source.topic == topic and not source.is_gone
            for write in self.forgotten(source)
        ]

    # ── a queue that takes the place of this one ──────────────────────────────────────────────────

    def handed_over(self, subscribers: tuple[str, ...]) -> list[Write]:
        """Return writes that turn the entries into those of a queue with these subscribers. New
        subscribers get everything that others have still to do.

        Records that every present subscriber has finished stay so; entries of subscribers that are
        not named are deleted.
        """
        names = subscribers or (ONE_OF,)
        writes: list[Write] = []
        for source in self._sources:
            if source.is_gone:
                continue
            prefixes = {pages.source_key(self._queue_id, name, *_partition_key(source)) for name in names}
            writes += [
                write
                for write in self.forgotten(source)
                if write.kind != pages.FAILED and _source_of(write) not in prefixes
            ]
            if not all(name in self._state.subscribers for name in names):
                first, kept = self._finished_by_all(source.number)
                for name in names:
                    if name not in self._state.subscribers:
                        key = pages.source_key(self._queue_id, name, *_partition_key(source))
                        writes.append(Put(pages.START, key, pages.encode_start(first)))
                        writes += [Put(pages.PAGE, f"{key}/{page}", value) for page, value in kept]
        return writes

    def _finished_by_all(self, source: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Return the offset of the first record that a subscriber has not finished, and the pages
        behind it, encoded.
        """
        subscribers = self._state.subscribers.values()
        first = min(subscriber.starts[source] for subscriber in subscribers)
        parts = [(first, max(subscriber.end_of(source) for subscriber in subscribers))]
        for subscriber in subscribers:
            parts = [part for a, b in parts for part in subscriber.finished_in(source, a, b)]
        finished = RangeMap()
        for a, b in parts:
            finished.set(a, b, DONE)
        encoded = [
            (page, pages.encode_page(finished.columns(page), {}, self._now)) for page in finished.pages()
        ]
        return first, [(page, value) for page, value in encoded if value is not None]


def _source_of(write: Write) -> str:
    """Return the prefix of a source's keys that the key of a start or page has."""
    return write.key if write.kind == pages.START else write.key.rpartition("/")[0]


def _partition_key(source: QueueSource) -> tuple[uuid.UUID, int]:
    return source.partition.id.topic_id, source.index
