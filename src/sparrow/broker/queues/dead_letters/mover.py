"""Moves records of a queue to another topic, each exactly once, even over crashes.

A move is one batch of copies, in three steps, each on stable storage before the next:

1. the intent (`move_intents.py`), in one write with the state of the records, which is MOVING;
2. the batch, in the target's log;
3. the records are DONE, and the intent is gone, in one write.

After a crash between 1 and 3 the target shows if 2 took place: the batch has a producer id that was
made for it alone. If it is there the move continues with step 3, else it never happened and the
records are still to be moved.

A move that fails has not taken place: nothing was appended. One whose batch was appended, but could
not be synced, is neither: it stays here as *unsettled* until the log can say more (or the broker is
restarted).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import BadInput, OffsetOutOfRange, SparrowError, UnknownPartition, UnknownTopic
from sparrow.broker.produced_batches import find_produced
from sparrow.broker.publishes import ACKS_LEADER
from sparrow.broker.queues.dead_letters import move_intents
from sparrow.broker.queues.dead_letters.move_intents import MoveIntent
from sparrow.broker.queues.rules.subscriber import DeadRecords
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.dead_letters.batches import MoveBatch
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.source import QueueSource
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.meta.store import MetaStore

_LOG = logging.getLogger(__name__)
NewProducerId = Callable[[], Awaitable[int]]


@dataclass(slots=True)
class _Move:
    move_batch: MoveBatch
    intent: MoveIntent
    batch: bytes
    next_offset: int = -1
    """Offset behind the batch; -1: it was not appended."""
    error: SparrowError | None = None


class Moved(NamedTuple):
    """Result of moving a batch."""

    move_batch: MoveBatch
    error: SparrowError | None
    """None: the records are done."""
    is_settled: bool = True
    """False: the copies are in the target, but it is not known if they will stay; the mover
    continues with them.
    """


class Mover:
    """Mover of one queue. Loop thread only.

    Args:
        new_producer_id: returns numbers that were never used before.
    """

    def __init__(
        self, queue: Queue, meta: MetaStore, topics: TopicRegistry, new_producer_id: NewProducerId
    ) -> None:
        self._queue = queue
        self._meta = meta
        self._topics = topics
        self._new_producer_id = new_producer_id
        self._unsettled: list[_Move] = []
        self._under_way: set[int] = set()
        """Producer ids of moves that have begun and not ended."""
        self._recovering = asyncio.Lock()
        self._is_recovered = False

    # ── moving ────────────────────────────────────────────────────────────────────────────────────

    async def move(self, move_batches: Sequence[MoveBatch]) -> list[Moved]:
        """Move batches whose records are MOVING, and return the results.

        Raises:
            DiskFull, StorageFailed, Overloaded: the intents could not be persisted; nothing was
                moved.
        """
        moves = [await self._prepared(move_batch) for move_batch in move_batches]
        under_way = {move.intent.producer_id for move in moves}
        self._under_way |= under_way
        try:
            done = await self._carry_out(moves)
        except SparrowError:
            raise
        except Exception:  # a bug: find out what was appended as after a crash
            self._is_recovered = False
            raise
        finally:
            self._under_way -= under_way
        return [
            Moved(
                move.move_batch,
                None if move in done else move.error,
                move in done or move.next_offset < 0,
            )
            for move in moves
        ]

    async def _carry_out(self, moves: list[_Move]) -> list[_Move]:
        """Carry out moves. Return those whose records are done."""
        writer = self._queue.writer
        writer.add([move.intent.put() for move in moves if move.error is None])
        try:
            await writer.flushed()
        except SparrowError:
            writer.add([move.intent.delete() for move in moves])
            raise
        await asyncio.gather(*(self._append(move) for move in moves if move.error is None))
        done = await self._settle([move for move in moves if move.next_offset >= 0])
        self._forget(move.intent for move in moves if move.next_offset < 0)
        return done

    def _forget(self, failed: Iterable[MoveIntent]) -> None:
        deletes = [intent.delete() for intent in failed]
        if deletes:
            self._queue.writer.add(deletes)
            self._queue.writer.changed()

    async def _prepared(self, move_batch: MoveBatch) -> _Move:
        await asyncio.sleep(0)  # building a batch takes its time
        source, target = move_batch.source.partition, move_batch.target
        producer_id = await self._new_producer_id()
        intent = MoveIntent(
            self._queue.definition.id,
            producer_id,
            move_batch.subscriber,
            source.id.topic_id,
            source.id.partition,
            move_batch.ranges,
            target.id.topic_id,
            target.id.partition,
            0,
        )
        move = _Move(move_batch, intent, b"")
        try:
            end = target.visible_end
            move.intent = replace(intent, target_offset=end)
            move.batch = self._batch(move_batch, producer_id)
        except SparrowError as error:  # the topic is gone, or it cannot be written as a batch
            move.error = error
        return move

    def _batch(self, move_batch: MoveBatch, producer_id: int) -> bytes:
        """Build a batch, compressed only if it would be too large else."""
        batch = b""
        for compression in (Compression.NONE, Compression.GZIP):
            batch = build_batch(
                [content.value for content in move_batch.contents],
                [content.key for content in move_batch.contents],
                [content.headers for content in move_batch.contents],
                self._queue.now()[1],
                compression,
                producer_id=producer_id,
                producer_epoch=0,
            )
            if len(batch) <= move_batch.target.config.max_message_bytes:
                break
        return batch

    @staticmethod
    async def _append(move: _Move) -> None:
        try:
            published = await move.move_batch.target.publish(move.batch, ACKS_LEADER, is_built_here=True)
            move.next_offset = published.last_offset + 1
        except SparrowError as error:
            move.error = error
        move.batch = b""

    async def _settle(self, moves: list[_Move]) -> list[_Move]:
        """Wait until appended batches are on stable storage, and finish their records. Return the
        moves for which both succeeded.

        The others are unsettled, or, where the target is gone, have not taken place.
        """
        await asyncio.gather(*(self._sync(move) for move in moves))
        done = [move for move in moves if move.error is None]
        self._unsettled += [move for move in moves if move.error is not None and move.next_offset >= 0]
        if done:
            await asyncio.gather(*(self._finish(move) for move in done))
        return done

    @staticmethod
    async def _sync(move: _Move) -> None:
        try:
            move.error = None
            await move.move_batch.target.log.durable(move.next_offset)
        except (UnknownTopic, OffsetOutOfRange) as error:  # the copies are gone, with their topic
            move.next_offset = -1
            move.error = error
        except SparrowError as error:
            move.error = error

    def _finish(self, move: _Move) -> Awaitable[None]:
        return self._finished(move.move_batch.subscriber, move.move_batch.source, move.intent)

    async def _finished(self, subscriber: str, source: QueueSource, intent: MoveIntent) -> None:
        records = [DeadRecords(source.number, first, end) for first, end in intent.ranges]
        kept = self._queue.finish_move(subscriber, records, [intent.delete()])
        try:
            await kept
        # the writer tries again; after a crash the intent leads here
        except SparrowError as error:
            _LOG.warning(
                "queue %r: that records were moved is not kept yet: %s", self._queue.name, error.text
            )

    async def settle_unsettled(self) -> list[Moved]:
        """Try to sync unsettled moves again, and return the results."""
        moves, self._unsettled = self._unsettled, []
        done = await self._settle(moves)
        gone = [move for move in moves if move.next_offset < 0]
        self._forget(move.intent for move in gone)
        return [Moved(move.move_batch, None if move in done else move.error) for move in done + gone]

    @property
    def has_unsettled(self) -> bool:
        return bool(self._unsettled)

    # ── after a restart ───────────────────────────────────────────────────────────────────────────

    async def recover(self) -> None:
        """Finish moves that a crash cut short, or forget them. Called once, before the first move.

        Raises:
            DirectoryUnreadable, NewerFormat: from the meta store.
            StorageFailed, Overloaded: a target cannot be read or synced now.
        """
        async with self._recovering:
            if self._is_recovered:
                return
            for entry in await self._meta.scan(move_intents.KIND, f"{self._queue.definition.id.hex}/"):
                intent = move_intents.decode(entry)
                unsettled = {move.intent.producer_id for move in self._unsettled}
                if intent.producer_id not in self._under_way | unsettled:
                    await self._recover(intent)
            self._is_recovered = True

    async def _recover(self, intent: MoveIntent) -> None:
        source = next((each for each in self._queue.sources if _is_source(each, intent)), None)
        target = self._target(intent)
        next_offset = -1 if target is None else await _find(target, intent)
        if target is None or source is None or next_offset < 0:
            self._forget([intent])
            return
        await target.log.durable(next_offset)
        await self._finished(intent.subscriber, source, intent)

    def _target(self, intent: MoveIntent) -> Partition | None:
        topic = self._topics.find_id(intent.target_topic_id)
        try:
            return topic.partition(intent.target_partition) if topic is not None else None
        except UnknownPartition:
            return None


def _is_source(source: QueueSource, intent: MoveIntent) -> bool:
    log_id = source.partition.id
    return not source.is_gone and (log_id.topic_id, log_id.partition) == (
        intent.source_topic_id,
        intent.source_partition,
    )


async def _find(target: Partition, intent: MoveIntent) -> int:
    """Return the offset behind the intent's batch; -1: it was never appended."""
    found = await find_produced(target.log, intent.producer_id, intent.target_offset)
    return found[0].next_offset if found else -1


def is_content_refused(error: SparrowError) -> bool:
    """Return True if the target refuses a batch for its content, so that a smaller one may be
    accepted.
    """
    return isinstance(error, BadInput) and not isinstance(error, OffsetOutOfRange)
