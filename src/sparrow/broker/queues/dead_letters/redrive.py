"""Redrives: dead letters are sent back to where they came from.

A redrive looks once at every dead letter that is there when it begins and that is not leased, in
the order of each partition. Those of the queue that match go back through the same `Mover` that
brought them, each exactly once; the others stay as they are, and no delivery is counted. Dead
letters that cannot be sent (the topic is gone, or does not take them) stay, too, and count as
failed.

A redrive lives in memory: a restart of the broker ends it, and each dead letter is either sent or
not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from sparrow.base.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    OffsetOutOfRange,
    SparrowError,
    UnknownTopic,
)
from sparrow.broker.queues.dead_letters.batches import cut, packed, ranges_of, readable_records
from sparrow.broker.queues.dead_letters.format import Content, Origin, maybe_origin, redriven
from sparrow.broker.queues.dead_letters.mover import is_content_refused
from sparrow.broker.queues.dead_letters.service import QueueDeadLetters
from sparrow.broker.queues.peek import record_at
from sparrow.broker.queues.persistence.definition import DEAD
from sparrow.broker.queues.rules.record_state import READY, STATE_MASK, UNKNOWN
from sparrow.broker.queues.rules.state import ONE_OF
from sparrow.model.queues import RedriveProgress
from sparrow.records.partitioner import partition_for_key

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.dead_letters.batches import MoveBatch
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.queues.source import QueueSource
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.records.record import Record

_LOG = logging.getLogger(__name__)

_CHUNK_RECORDS: Final = 256
_CHUNK_BYTES: Final = 512 << 10
_STEPS_PER_SECOND: Final = 10
"""A limited rate is kept in steps of a tenth of a second."""
_SCAN_CHECKS: Final = 1000
_SCAN_CHECK_S: Final = 0.005
MAX_PER_SECOND: Final = 1e9
_Chosen = dict[int, tuple[Origin, Content]]
"""By offset of the dead letter: its origin, and the record to send."""


class RedriveFilter(msgspec.Struct, frozen=True):
    """Conditions on dead letters. All must hold; None: no condition."""

    reason: str | None = None
    topic: str | None = None
    """Topic (and `partition`) that they came from."""
    partition: int | None = None
    key: bytes | None = None
    error_contains: str | None = None
    subscriber: str | None = None
    since_ms: int | None = None
    """Time of death (ms since the epoch) or later."""
    until_ms: int | None = None
    """Before this time of death."""
    letters: frozenset[tuple[int, int]] | None = None
    """Partitions and offsets of dead letters on the dead-letter topic."""

    def matches(self, letter: Record, origin: Origin) -> bool:
        """Return True if a dead letter matches; its key is not compared."""
        return (
            self.reason in (None, origin.reason)
            and self.topic in (None, origin.topic)
            and self.partition in (None, origin.partition)
            and self.subscriber in (None, origin.subscriber)
            and (self.error_contains is None or self.error_contains in origin.error)
            and (self.since_ms is None or letter.timestamp >= self.since_ms)
            and (self.until_ms is None or letter.timestamp < self.until_ms)
            and (self.letters is None or (letter.partition, letter.offset) in self.letters)
        )


class Redrives:
    """Redrives of all queues, one for each at a time. Loop thread only."""

    def __init__(self, registry: QueueRegistry, topics: TopicRegistry) -> None:
        self._registry = registry
        self._topics = topics
        self._running: dict[uuid.UUID, _Redrive] = {}
        """By id of the queue."""
        self._over: dict[uuid.UUID, RedriveProgress] = {}
        """The last redrive of each queue, if none runs."""

    async def begin(
        self, queue: Queue, where: RedriveFilter, max_records: int, per_second: float
    ) -> RedriveProgress:
        """Start to send dead letters of a queue back.

        Args:
            max_records: maximum number; 0: all.
            per_second: maximum rate; 0: no limit.

        Raises:
            InvalidArgument: a limit is negative, or the queue has no dead letters.
            Conflict: one runs already.
        """
        topic = _checked(queue, max_records, per_second)
        if self._topics.find(topic) is None:
            return RedriveProgress()
        dead = await self._registry.of_dead_letters(topic)
        if topic not in dead.definition.topics or ONE_OF not in dead.state.subscribers:
            raise InvalidArgument(
                f"the queue {topic!r} does not take from the topic {topic!r} as one of competing "
                "consumers, so the dead letters of"
                f" queue {queue.name!r} cannot be sent back; delete or rename that queue"
            )
        queue_id = queue.definition.id
        if queue_id in self._running:
            raise Conflict(
                f"dead letters of queue {queue.name!r} are being sent back already; stop that first"
            )
        redrive = _Redrive(self._registry, self._topics, queue.name, dead=dead, topic=topic, where=where)
        self._running[queue_id] = redrive
        redrive.start(max_records, per_second, over=lambda: self._end(queue_id))
        return redrive.progress

    def _end(self, queue_id: uuid.UUID) -> None:
        self._over[queue_id] = self._running.pop(queue_id).progress
        self._forget_others()

    def _forget_others(self) -> None:
        """Forget the redrives of queues that were deleted."""
        known = {queue.definition.id for queue in self._registry}
        for queue_id in self._over.keys() - known:
            del self._over[queue_id]

    def progress(self, queue: Queue) -> RedriveProgress:
        """Return the progress of the redrive that runs, or ran last."""
        running = self._running.get(queue.definition.id)
        if running is not None:
            return running.progress
        return self._over.get(queue.definition.id, RedriveProgress())

    async def stop(self, queue: Queue) -> RedriveProgress:
        """End the redrive that runs. Nothing is being moved any more when it returns."""
        running = self._running.get(queue.definition.id)
        if running is not None:
            await running.stop()
        return self.progress(queue)


def _checked(queue: Queue, max_records: int, per_second: float) -> str:
    """Return the dead-letter topic, if there may be such a redrive."""
    if max_records < 0 or not 0 <= per_second <= MAX_PER_SECOND:
        raise InvalidArgument(
            f"a redrive of at most {max_records} records, {per_second} per second: neither is "
            "negative, and 0 means no limit"
        )
    topic = queue.definition.policy.dead_letters_of(queue.name)
    if topic is None and queue.definition.kind == DEAD:
        raise InvalidArgument(
            f"queue {queue.name!r} is where dead letters lie; redrive the queue that they came from"
        )
    if topic is None:
        raise InvalidArgument(
            f"queue {queue.name!r} has no dead letters: what it cannot deliver is dropped (dead_letter_topic)"
        )
    return topic


class _Redrive:
    """One redrive."""

    def __init__(
        self,
        registry: QueueRegistry,
        topics: TopicRegistry,
        name: str,
        *,
        dead: Queue,
        topic: str,
        where: RedriveFilter,
    ) -> None:
        self._registry = registry
        self._topics = topics
        self._name = name
        self._dead = dead
        self._topic = topic
        self._where = where
        self._subscriber = dead.state.subscribers[ONE_OF]
        assert isinstance(dead.dead_letters, QueueDeadLetters)  # all running queues have them
        self._dead_letters = dead.dead_letters
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._room = 0
        self._per_second = 0.0
        self._began_s = 0.0
        self.progress = RedriveProgress(is_running=True)

    def start(self, max_records: int, per_second: float, *, over: Callable[[], None]) -> None:
        """Start it. See `Redrives.begin`; `over` is called at the end."""
        self._tell_over = over
        self._room = max_records or 1 << 62
        self._per_second = per_second
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        self._task = loop.create_task(self._run())
        self._dead_letters.jobs.add(self._task)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._dead_letters.jobs.discard(task)
        error = self.progress.error
        if task.cancelled():
            error = "the queue of dead letters was changed or deleted, or the broker stopped"
        self.progress = replace(self.progress, is_running=False, error=error)
        self._tell_over()

    async def stop(self) -> None:
        """End it."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            await asyncio.sleep(0)  # the callback of its end runs first

    async def _run(self) -> None:
        try:
            await self._dead_letters.recover()
            if self._dead.definition.policy.order != "none":
                await self._until_scanned()
            for source in list(self._dead.sources):
                if source.topic == self._topic and not source.is_gone and self._may_hold(source):
                    await self._look_through(source)
        except SparrowError as error:
            self._fail(error.text)
        except Exception as error:  # noqa: BLE001 - its progress must show that it is over
            _LOG.exception("redrive of queue %r", self._name)
            self._fail(f"a fault of the broker: {error!r}")

    def _may_hold(self, source: QueueSource) -> bool:
        where = self._where
        return where.letters is None or any(partition == source.index for partition, _ in where.letters)

    async def _until_scanned(self) -> None:
        """Wait until the scanner has met the dead letters of an ordered queue: they can be sent
        only when their order is known. (Behind a very long backlog that takes the consumers.)
        """
        for _ in range(_SCAN_CHECKS):
            if self._dead.scanner.is_idle:
                break
            await asyncio.sleep(_SCAN_CHECK_S)

    def _fail(self, why: str) -> None:
        self.progress = replace(self.progress, error=why)
        self._stopping.set()

    @property
    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._room <= 0

    # ── one partition of dead letters ─────────────────────────────────────────────────────────────

    async def _look_through(self, source: QueueSource) -> None:
        position = self._subscriber.starts[source.number]
        end = source.visible_end(committed=self._dead.is_committed_only)
        if self._where.letters is not None:
            wanted = [offset for partition, offset in self._where.letters if partition == source.index]
            position, end = max(position, min(wanted)), min(end, max(wanted) + 1)
        # Otherwise a power failure might lose a dead letter whose record, once sent back, becomes a
        # dead letter there again.
        await source.partition.log.durable(end)
        while not self._is_over:
            ranges = self._free(source, position, end)
            if not ranges:
                break
            try:
                data, had = await source.read(ranges, _CHUNK_BYTES)
            except (OffsetOutOfRange, UnknownTopic):  # retention, or deleted
                break
            looked_at, left = cut(ranges, had)
            position = left[0][0] if left else ranges[-1][1]
            records, _ = readable_records(data, source)
            await asyncio.sleep(0)  # a read may take long
            letters = [
                records[offset]
                for first, stop in looked_at
                for offset in range(first, stop)
                if offset in records
            ]
            chosen = await self._chosen(letters)
            await asyncio.sleep(0)
            await self._send(source, chosen)

    def _free(self, source: QueueSource, position: int, end: int) -> list[tuple[int, int]]:
        """Return the next dead letters that are not leased, nor were sent before."""
        ranges: list[tuple[int, int]] = []
        room = _CHUNK_RECORDS
        position = max(position, self._subscriber.starts[source.number], source.partition.start_offset)
        if position >= end:
            return ranges
        for first, stop, value in self._subscriber.maps[source.number].runs(position, end):
            if value & STATE_MASK in (READY, UNKNOWN):
                taken = min(stop - first, room)
                ranges.append((first, first + taken))
                room -= taken
                if not room:
                    break
        return ranges

    async def _chosen(self, letters: Iterable[Record]) -> _Chosen:
        chosen: _Chosen = {}
        for letter in letters:
            origin = maybe_origin(letter)
            if origin is None or origin.queue != self._name or not self._where.matches(letter, origin):
                self._count(skipped=1)
                continue
            original = letter if origin.has_content else await self._original(origin)
            if original is None:
                self._count(failed=1)
            elif self._where.key not in (None, original.key):
                self._count(skipped=1)
            else:
                chosen[letter.offset] = (origin, redriven(original, origin, letter.headers))
        return chosen

    async def _original(self, origin: Origin) -> Record | None:
        """Return the record of a dead letter without content, if it is still there."""
        queue = self._registry.find(self._name)
        source = queue.source((origin.topic, origin.partition)) if queue is not None else None
        return await record_at(source, origin.offset) if source is not None else None

    def _count(self, *, moved: int = 0, skipped: int = 0, failed: int = 0) -> None:
        now = self.progress
        self.progress = replace(
            now, moved=now.moved + moved, skipped=now.skipped + skipped, failed=now.failed + failed
        )

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def _send(self, source: QueueSource, chosen: _Chosen) -> None:
        offsets = list(chosen)
        step = len(offsets)
        if self._per_second:
            step = max(1, min(step, int(self._per_second / _STEPS_PER_SECOND)))
        while offsets and not self._is_over:
            now = offsets[: min(step, self._room)]
            del offsets[: len(now)]
            await self._send_now(source, {offset: chosen[offset] for offset in now})
            await self._keep_pace()

    async def _keep_pace(self) -> None:
        if not self._per_second:
            return
        due_s = self._began_s + self.progress.moved / self._per_second
        wait_s = due_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            try:
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            except TimeoutError:
                pass

    async def _send_now(self, source: QueueSource, chosen: _Chosen) -> None:
        targets: dict[Partition, dict[int, Content]] = {}
        for offset, (origin, content) in chosen.items():
            target = self._target(origin, content)
            if target is None:
                self._count(failed=1)
            else:
                targets.setdefault(target, {})[offset] = content
        move_batches: list[MoveBatch] = []
        for target, contents in targets.items():
            free = self._start_redrive(source, contents)
            move_batches += packed(ONE_OF, source, free, target)
        if move_batches:
            await self._move(move_batches)
            self._dead.changed()
            self._dead.scanner.consumed()

    def _target(self, origin: Origin, content: Content) -> Partition | None:
        """Return the partition that the record came from, or another of its topic if that is gone;
        None: the topic is gone, or not the queue's.
        """
        queue = self._registry.find(self._name)
        topic = self._topics.find(origin.topic)
        if queue is None or topic is None or origin.topic not in queue.definition.topics:
            return None
        count = len(topic.partitions)
        if origin.partition < count:
            return topic.partitions[origin.partition]
        return topic.partitions[
            origin.partition % count if content.key is None else partition_for_key(content.key, count)
        ]

    def _start_redrive(self, source: QueueSource, contents: dict[int, Content]) -> dict[int, Content]:
        """Take those that are still free from the consumers."""
        free = [
            offset
            for first, end in ranges_of(list(contents))
            for a, b in self._subscriber.start_redrive(source.number, first, end)
            for offset in range(a, b)
        ]
        return {offset: contents[offset] for offset in free}

    async def _move(self, move_batches: list[MoveBatch]) -> None:
        try:
            outcomes = await self._dead_letters.mover.move(move_batches)
        except SparrowError:
            self._cancel_redrive(move_batches)
            raise
        refused: list[MoveBatch] = []
        returned: list[MoveBatch] = []
        for move_batch, error, is_settled in outcomes:
            if error is None:
                self._room -= len(move_batch.offsets)
                self._count(moved=len(move_batch.offsets))
            elif not is_settled:
                self._count(failed=len(move_batch.offsets))
                self._dead_letters.retry_unsettled(error.text)
                self._fail(error.text)
            elif is_content_refused(error) and len(move_batch.offsets) > 1:
                refused.append(move_batch)
            else:
                returned.append(move_batch)
                self._count(failed=len(move_batch.offsets))
                if not is_content_refused(error) and not isinstance(error, NotFound):
                    self._fail(error.text)
        if returned:
            self._cancel_redrive(returned)
        if refused:  # for one of its records
            await self._move([single for move_batch in refused for single in _singles(move_batch)])

    def _cancel_redrive(self, move_batches: Iterable[MoveBatch]) -> None:
        by_source: dict[int, list[tuple[int, int]]] = {}
        for move_batch in move_batches:
            by_source.setdefault(move_batch.source.number, []).extend(move_batch.ranges)
        for number, ranges in by_source.items():
            self._subscriber.cancel_redrive(number, ranges)
        self._dead.changed()


def _singles(move_batch: MoveBatch) -> Iterable[MoveBatch]:
    for offset, content in zip(move_batch.offsets, move_batch.contents, strict=True):
        yield move_batch._replace(offsets=(offset,), contents=(content,))
