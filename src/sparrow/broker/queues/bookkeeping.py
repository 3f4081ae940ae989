"""Which facts of the meta store the state of a queue is, and what is to be written of it.

The state says what has changed (`dirty`, `moved_starts`, `dirty_failed`); here that becomes writes of small facts (`pages.py` has their form). The keys of
all pages that are kept are remembered, so that none is deleted that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.queues import pages
from sparrow.broker.queues.ranges import RangeMap
from sparrow.broker.queues.state import ONE_OF
from sparrow.broker.queues.values import DONE
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.source import Source
    from sparrow.broker.queues.state import QueueState
    from sparrow.meta.store import Write


class Bookkeeping:
    """Of one queue. Loop thread only.

    Args:
        sources: the queue's own list, live.
        now: (monotonic, wall) time in ms.
    """

    def __init__(
        self,
        queue_id: uuid.UUID,
        state: QueueState,
        sources: Sequence[Source],
        now: Callable[[], tuple[int, int]],
    ) -> None:
        self._queue_id = queue_id
        self._state = state
        self._sources = sources
        self._now = now
        self._pages: set[str] = set()
        """Keys of the facts that hold pages."""

    # ── what changed ──────────────────────────────────────────────────────────────────────────────

    @property
    def has_changes(self) -> bool:
        """Whether something is to be kept that was not written yet."""
        lanes = self._state.lanes.values()
        return bool(self._state.dirty_failed) or any(lane.dirty or lane.moved_starts for lane in lanes)

    def collect(self) -> list[Write]:
        """Writes for everything that changed since the last call."""
        now_ms, wall_ms = self._now()
        writes: list[Write] = []
        for name, lane in self._state.lanes.items():
            if not lane.dirty and not lane.moved_starts:
                continue
            keys: dict[int, str] = {}
            for number, page in lane.dirty:
                if self._sources[number].is_gone:
                    continue
                key = keys.get(number) or self._source_key(keys, name, number)
                value = pages.encode_page(lane.maps[number].columns(page), lane.marks, now_ms, wall_ms)
                self._put(writes, pages.PAGE, f"{key}/{page}", value)
            for number in lane.moved_starts:
                if not self._sources[number].is_gone:
                    key = keys.get(number) or self._source_key(keys, name, number)
                    writes.append(Put(pages.START, key, pages.encode_start(lane.starts[number])))
            lane.dirty.clear()
            lane.moved_starts.clear()
        for number, page in self._state.dirty_failed:
            if not self._sources[number].is_gone:
                prefix = pages.failed_key(self._queue_id, *_place(self._sources[number]))
                runs = self._state.failed[number].page_runs(page)
                self._put(writes, pages.FAILED, f"{prefix}/{page}", pages.encode_failed(runs, page))
        self._state.dirty_failed.clear()
        return writes

    def _source_key(self, keys: dict[int, str], lane: str, number: int) -> str:
        key = keys[number] = pages.source_key(self._queue_id, lane, *_place(self._sources[number]))
        return key

    def _put(self, writes: list[Write], kind: str, key: str, value: bytes | None) -> None:
        if value is not None:
            self._pages.add(key)
            writes.append(Put(kind, key, value))
        elif key in self._pages:
            self._pages.discard(key)
            writes.append(Delete(kind, key))

    def found(self, key: str) -> None:
        """A fact of this key exists; at start."""
        self._pages.add(key)

    # ── sources that come and go ──────────────────────────────────────────────────────────────────

    def starts_to_keep(self, source: Source) -> list[Write]:
        """What makes the starts of a new source known after a restart."""
        starts = {name: lane.starts[source.number] for name, lane in self._state.lanes.items()}
        return self.start_facts(source.partition, starts)

    def start_facts(self, partition: Partition, starts: dict[str, int]) -> list[Write]:
        """What makes known where the lanes begin in a partition."""
        place = (partition.id.topic_id, partition.id.partition)
        return [
            Put(pages.START, pages.source_key(self._queue_id, name, *place), pages.encode_start(start))
            for name, start in starts.items()
        ]

    def forgotten(self, source: Source) -> list[Write]:
        """What deletes the facts of a source."""
        gone = [pages.source_key(self._queue_id, lane, *_place(source)) for lane in self._state.lanes]
        writes: list[Write] = [Delete(pages.START, key) for key in gone]
        prefixes = (*gone, pages.failed_key(self._queue_id, *_place(source)))
        for fact_key in [key for key in self._pages if key.rpartition("/")[0] in prefixes]:
            self._pages.discard(fact_key)
            kind = pages.FAILED if fact_key.rpartition("/")[0] == prefixes[-1] else pages.PAGE
            writes.append(Delete(kind, fact_key))
        return writes

    def topic_forgotten(self, topic: str) -> list[Write]:
        """What deletes the facts of a topic."""
        return [
            write
            for source in self._sources
            if source.topic == topic and not source.is_gone
            for write in self.forgotten(source)
        ]

    # ── a queue that takes the place of this one ──────────────────────────────────────────────────

    def handed_over(self, subscribers: tuple[str, ...]) -> list[Write]:
        """The facts that a queue of these subscribers begins with: new ones get everything that others have still to do.

        What every subscriber there is has finished stays so; those who are no subscribers any more are forgotten.
        """
        names = subscribers or (ONE_OF,)
        writes: list[Write] = []
        for source in self._sources:
            if source.is_gone:
                continue
            prefixes = {pages.source_key(self._queue_id, name, *_place(source)) for name in names}
            writes += [
                write
                for write in self.forgotten(source)
                if write.kind != pages.FAILED and _source_of(write) not in prefixes
            ]
            if not all(name in self._state.lanes for name in names):
                first, kept = self._finished_by_all(source.number)
                for name in names:
                    if name not in self._state.lanes:
                        key = pages.source_key(self._queue_id, name, *_place(source))
                        writes.append(Put(pages.START, key, pages.encode_start(first)))
                        writes += [Put(pages.PAGE, f"{key}/{page}", value) for page, value in kept]
        return writes

    def _finished_by_all(self, source: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Where the first record is that somebody has not finished, and what is kept of the pages behind it."""
        lanes = self._state.lanes.values()
        first = min(lane.starts[source] for lane in lanes)
        parts = [(first, max(lane.end_of(source) for lane in lanes))]
        for lane in lanes:
            parts = [part for a, b in parts for part in lane.finished_in(source, a, b)]
        finished = RangeMap()
        for a, b in parts:
            finished.set(a, b, DONE)
        encoded = [(page, pages.encode_page(finished.columns(page), {}, 0, 0)) for page in finished.pages()]
        return first, [(page, value) for page, value in encoded if value is not None]


def _source_of(write: Write) -> str:
    """The beginning of the keys of a source that the key of a start or page has."""
    return write.key if write.kind == pages.START else write.key.rpartition("/")[0]


def _place(source: Source) -> tuple[uuid.UUID, int]:
    return source.partition.id.topic_id, source.index
