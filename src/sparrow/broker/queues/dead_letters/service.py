"""Moves records that a queue could not deliver to its dead-letter topic.

Records become MOVING in the queue's state and wait here, as ranges, for the next round. A round
takes up to `MAX_RECORDS` of them, reads them, and gives the `Mover` copies of them. Rounds of a
queue follow one another; records that die meanwhile go with the next one.

Records that cannot be moved now stay MOVING, and are tried again after a delay that grows to half a
minute: a full disk, a topic that is missing and may not be made, a record that is too large for it.
Others are moved meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import (
    CorruptBatch,
    PolicyViolation,
    SparrowError,
    TopicExists,
    UnknownTopic,
)
from sparrow.broker.configs.topic import DEAD_LETTERS_ENABLE
from sparrow.broker.queues.dead_letters.batches import MAX_BYTES, MoveBatch, packed
from sparrow.broker.queues.dead_letters.format import Style
from sparrow.broker.queues.dead_letters.mover import Moved, Mover, is_content_refused
from sparrow.broker.queues.dead_letters.writer import dying, write_dead_letters
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.rules.record_state import MOVING

if TYPE_CHECKING:
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.queues.rules.subscriber import DeadRecords
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.meta.store import MetaStore
    from sparrow.records.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)

MAX_RECORDS: Final = 1000
_TOGETHER: Final = 1
_SINGLY: Final = 2
"""Each in a batch of its own: one of them is refused."""
_SINGLE_COST: Final = 10
"""A batch costs about as much as this many records."""
_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 30.0
_HEADERS_BYTES: Final = 64 << 10
"""Maximum size by which a batch of dead letters may exceed its records."""


@dataclass(frozen=True, slots=True)
class DeadLetterService:
    """Dead letters of all queues, and the parts of the broker that they need."""

    registry: QueueRegistry
    meta: MetaStore
    topics: TopicRegistry
    new_producer_id: Callable[[], Awaitable[int]]
    makes_missing: bool
    """True if the broker makes missing topics by itself."""
    style_of: Callable[[Queue], Style] = lambda _: Style.SPARROW
    refusal_of: Callable[[Queue, str], str | None] = lambda _queue, _topic: None
    """Returns why a queue may not write to this topic now; None: it may, and may make it."""

    def attach(self, queue: Queue) -> None:
        """Attach to a queue that begins to run (`QueueRegistry.made`)."""
        queue.dead_letters = QueueDeadLetters(queue, self)


class _Piece(NamedTuple):
    """Records of one source that are moved in one round."""

    key: TopicPartition
    ranges: list[tuple[int, int]]
    is_single: bool

    @property
    def subscriber(self) -> str:
        return self.key[0]

    @property
    def records(self) -> int:
        return sum(end - first for first, end in self.ranges)


class QueueDeadLetters:
    """Records of one queue on their way to the dead letters. Loop thread only."""

    def __init__(self, queue: Queue, around: DeadLetterService) -> None:
        self._queue = queue
        self._around = around
        self.mover = Mover(queue, around.meta, around.topics, around.new_producer_id)
        self._pending: dict[TopicPartition, RangeMap] = {}
        self._resting: dict[TopicPartition, RangeMap] = {}
        """Records that could not be moved the last time."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._delay_s = 0.0
        self._failed_at = 0.0
        self._is_stopped = False
        self._is_recovered = False
        self._no_queue = ""
        """The reason why the dead-letter topic has no queue, once it was logged."""
        self.jobs: set[asyncio.Task[None]] = set()
        """Tasks that move records of this queue for others, and end with it."""

    def take(self, dead_records: Sequence[tuple[str, DeadRecords]]) -> None:
        """Move records. See `DeadLetterMover.take`."""
        for subscriber, (source, first, end) in dead_records:
            _add(self._pending, (subscriber, source), [(first, end)], _TOGETHER)
        self._begin()

    def stop(self) -> None:
        """Stop. See `DeadLetterMover.stop`. Moves that are cut short are resolved at the next
        start.
        """
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._task, *self.jobs):
            if task is not None:
                task.cancel()

    async def recover(self) -> None:
        """Finish what a crash cut short, before anything else is moved.

        Raises:
            SparrowError: not now.
        """
        await self.mover.recover()
        if not self._is_recovered:
            self._is_recovered = True
            self._cancel_restored()

    def _cancel_restored(self) -> None:
        """Make records ready again that were in a redrive before a restart."""
        for subscriber in self._queue.state.subscribers.values():
            for source, runs in enumerate(subscriber.maps):
                found = [run for page in runs.pages() for run in runs.page_runs(page)]
                aside = [(first, end) for first, end, value in found if subscriber.is_redriving(value)]
                if aside:
                    subscriber.cancel_redrive(source, aside)
        self._queue.changed()

    # ── rounds ────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._pending:
                await self._round()
        finally:
            self._task = None

    async def _round(self) -> None:
        taken: list[_Piece] = []
        try:
            await self.recover()
            taken = self._pick()
            if taken:
                await self._move(taken)
        except SparrowError as error:
            self._rest(taken or self._pick(), error.text)
        except Exception as error:  # noqa: BLE001 - a bug must not lose records, nor end the work
            _LOG.exception("dead letters of queue %r", self._queue.name)
            self._rest(taken or self._pick(), repr(error))

    def _pick(self) -> list[_Piece]:
        """Take the records of the next round from those that wait, source by source."""
        pieces: list[_Piece] = []
        room = MAX_RECORDS
        while self._pending and room > 0:
            key = next(iter(self._pending))
            waiting = self._pending.pop(key)
            piece = _first_of(key, waiting, room)
            for first, end in piece.ranges:
                waiting.set(first, end, 0)
            if waiting.pages():
                self._pending[key] = waiting
            room -= piece.records * (_SINGLE_COST if piece.is_single else 1)
            still = self._still_moving(piece)
            if still.ranges:
                pieces.append(still)
        return pieces

    def _still_moving(self, piece: _Piece) -> _Piece:
        subscriber = self._queue.state.subscribers[piece.subscriber]
        ranges = [(first, end) for first, end, _ in dying(subscriber, piece.key[1], piece.ranges)]
        return piece._replace(ranges=ranges)

    async def _move(self, pieces: list[_Piece]) -> None:
        name = self._queue.definition.policy.dead_letters_of(self._queue.name)
        if name is None:
            self._drop(pieces)
            return
        topic = await self._topic(name)
        style = self._around.style_of(self._queue)
        move_batches: list[MoveBatch] = []
        room = MAX_BYTES
        for piece in pieces:
            if room <= 0:
                self._again(piece.key, piece.ranges)
                continue
            source = self._queue.sources[piece.key[1]]
            try:
                dead_letters, left = await write_dead_letters(
                    self._queue, piece.subscriber, source, piece.ranges, style=style, max_bytes=room
                )
            except CorruptBatch:
                _add(self._pending, piece.key, piece.ranges, _SINGLY)
                continue
            except SparrowError as error:
                self._rest([piece], error.text)
                continue
            self._again(piece.key, left)
            await asyncio.sleep(0)  # writing them takes its time
            target = topic.partition(source.index % len(topic.partitions))
            made = list(packed(piece.subscriber, source, dead_letters, target, is_single=piece.is_single))
            room -= sum(move_batch.size_bytes for move_batch in made)
            move_batches += made
        try:
            outcomes = await self.mover.move(move_batches)
        except SparrowError as error:
            self._rest([_piece_of(move_batch) for move_batch in move_batches], error.text)
            return
        for outcome in outcomes:
            self._conclude(outcome)

    def _drop(self, pieces: Iterable[_Piece]) -> None:
        """Drop records: after they became dead letters, the policy was changed to have none."""
        for piece in pieces:
            subscriber = self._queue.state.subscribers[piece.subscriber]
            for first, end in piece.ranges:
                subscriber.tally.dropped += subscriber.discard(piece.key[1], first, end, (MOVING,))
        self._queue.changed()

    def _conclude(self, outcome: Moved) -> None:
        error = outcome.error
        if error is None:
            return
        move_batch = outcome.move_batch
        key = (move_batch.subscriber, move_batch.source.number)
        if not outcome.is_settled:
            self._retry_later(len(move_batch.offsets), error.text)
        elif isinstance(error, UnknownTopic):
            self._again(key, move_batch.ranges)
        elif is_content_refused(error) and len(move_batch.offsets) > 1:
            _add(self._pending, key, move_batch.ranges, _SINGLY)  # one of them is refused
        else:
            self._rest([_piece_of(move_batch)], error.text)

    def _again(self, key: TopicPartition, ranges: Iterable[tuple[int, int]]) -> None:
        _add(self._pending, key, ranges, _TOGETHER)

    # ── trying again ──────────────────────────────────────────────────────────────────────────────

    def _rest(self, pieces: Sequence[_Piece], why: str) -> None:
        """Try these again later."""
        for piece in pieces:
            _add(self._resting, piece.key, piece.ranges, _SINGLY if piece.is_single else _TOGETHER)
        if pieces:
            self._retry_later(sum(piece.records for piece in pieces), why)

    def _retry_later(self, records: int, why: str) -> None:
        if self._timer is not None or self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._failed_at > 2 * _LONGEST_DELAY_S:
            self._delay_s = 0.0
        self._failed_at = loop.time()
        self._delay_s = min(max(self._delay_s * 2, _FIRST_DELAY_S), _LONGEST_DELAY_S)
        self._timer = loop.call_later(self._delay_s, self._retry)
        _LOG.warning(
            "records of queue %r (%d) cannot be moved to the dead letters: %s; they stay, and are "
            "tried again in %.1f s",
            self._queue.name,
            records,
            why,
            self._delay_s,
        )

    def _retry(self) -> None:
        self._timer = None
        resting, self._resting = self._resting, {}
        for key, waiting in resting.items():
            for page in waiting.pages():
                for first, end, how in waiting.page_runs(page):
                    _add(self._pending, key, [(first, end)], how)
        if self.mover.has_unsettled:
            self.jobs.add(task := asyncio.get_running_loop().create_task(self._settle()))
            task.add_done_callback(self.jobs.discard)
        if self._pending:
            self._begin()

    def retry_unsettled(self, why: str) -> None:
        """Try again later to sync a batch that could not be synced."""
        self._retry_later(0, why)

    async def _settle(self) -> None:
        for move_batch, error, _ in await self.mover.settle_unsettled():
            if error is not None:  # the copies are gone with their topic
                source = move_batch.source.number
                self._queue.state.subscribers[move_batch.subscriber].cancel_redrive(source, move_batch.ranges)
                self._again((move_batch.subscriber, source), move_batch.ranges)
        self._queue.changed()
        if self.mover.has_unsettled:
            self._retry_later(0, "what was written is not on stable storage")
        if self._pending:
            self._begin()

    # ── the topic ─────────────────────────────────────────────────────────────────────────────────

    async def _topic(self, name: str) -> Topic:
        """Return the dead-letter topic, with its queue. It is made if it is missing and may be.

        Raises:
            UnknownTopic, PolicyViolation, DiskFull, StorageFailed, InvalidTopicName
        """
        around, queue = self._around, self._queue
        refusal = around.refusal_of(queue, name)
        if refusal is not None:
            raise PolicyViolation(refusal)
        topic = around.topics.find(name)
        if topic is None:
            if not around.makes_missing and not queue.is_share_group:
                raise UnknownTopic(
                    f"there is no topic {name!r} for the dead letters of queue {queue.name!r}, and "
                    "the broker makes no topics"
                    f" by itself; `sparrow topic create {name}` makes it"
                )
            topic = await self._make_topic(name)
        if around.registry.find(name) is None:
            try:
                await around.registry.of_dead_letters(name)
            except SparrowError as error:  # the dead letters matter more
                if error.text != self._no_queue:
                    _LOG.warning("there is no queue on the dead-letter topic %r: %s", name, error.text)
                self._no_queue = error.text
        return topic

    async def _make_topic(self, name: str) -> Topic:
        topics = self._around.topics
        origins = [topics.find(each) for each in self._queue.definition.topics]
        known = [origin for origin in origins if origin is not None]
        room = max((origin.config.max_message_bytes for origin in known), default=1 << 20) + _HEADERS_BYTES
        config = {"max.message.bytes": str(min(room, (1 << 31) - 1))}
        if self._queue.is_share_group:
            config[DEAD_LETTERS_ENABLE] = "true"
        try:
            return await topics.create(name, max((len(each.partitions) for each in known), default=1), config)
        except TopicExists:  # made by another at the same time
            return topics.get(name)


def _add(
    to: dict[TopicPartition, RangeMap], key: TopicPartition, ranges: Iterable[tuple[int, int]], how: int
) -> None:
    for first, end in ranges:
        to.setdefault(key, RangeMap()).set(first, end, how)


def _first_of(key: TopicPartition, waiting: RangeMap, max_records: int) -> _Piece:
    """Return the first records, all to be moved together, or each by itself."""
    ranges: list[tuple[int, int]] = []
    how = 0
    for page in waiting.pages():
        for first, end, value in waiting.page_runs(page):
            how = how or value
            if value != how or max_records <= 0:
                return _Piece(key, ranges, how == _SINGLY)
            taken = min(end - first, max_records)
            max_records -= taken
            ranges.append((first, first + taken))
    return _Piece(key, ranges, how == _SINGLY)


def _piece_of(move_batch: MoveBatch) -> _Piece:
    return _Piece(
        (move_batch.subscriber, move_batch.source.number),
        list(move_batch.ranges),
        len(move_batch.offsets) == 1,
    )
