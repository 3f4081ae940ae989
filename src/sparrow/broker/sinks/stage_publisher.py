"""Publishing into a stage: a partition joins the stage's transaction before the first batch is
appended, and all batches are confirmed on stable storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidTopicName, NotInTransaction
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.publishes import ACKS_ALL
from sparrow.broker.topics.internal_topics import INTERNAL_TOPICS
from sparrow.records.batch import split

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

    from sparrow.broker.partition import Partition
    from sparrow.broker.publishes import Published
    from sparrow.broker.sinks.coordinator import SinkCoordinator
    from sparrow.broker.sinks.stage import Stage
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.records.batch import BatchHeader
    from sparrow.records.topic_partition import TopicPartition
    from sparrow.storage.store import LogId


class StagePublisher:
    """Publishes into one stage for one principal. Loop thread only.

    Args:
        require: raises NotAuthorized unless the principal may write to a topic.
    """

    def __init__(
        self,
        stage: Stage,
        coordinator: SinkCoordinator,
        topics: TopicRegistry,
        require: Callable[[str], None],
    ) -> None:
        self._stage = stage
        self._coordinator = coordinator
        self._topics = topics
        self._require = require
        self._joined: set[TopicPartition] = set()
        self._is_over = False
        coordinator.opened_channel(stage)

    @property
    def producer(self) -> ProducerIdentity:
        """The producer that all batches must name."""
        return self._stage.producer

    def has_joined(self, key: TopicPartition) -> bool:
        """Return True if the partition accepts publishes."""
        return key in self._joined

    def check(self, key: TopicPartition) -> Partition:
        """Return the partition, if the principal may publish to it and the stage is open.

        Raises:
            StageExpired, UnknownTopic, UnknownPartition, InvalidTopicName, NotAuthorized
        """
        topic, partition = key
        self._require(topic)
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicName(f"{topic} is internal and cannot be written to")
        self._coordinator.check_open(self._stage)
        return self._topics.get(topic).partition(partition)

    async def join(self, keys: Collection[TopicPartition]) -> None:
        """Add partitions that passed `check` to the transaction, durably.

        Raises:
            StageExpired, DiskFull, StorageFailed
        """
        self._coordinator.touch(self._stage)
        await self._coordinator.join(self._stage, keys)
        self._joined.update(keys)

    def publish(self, key: TopicPartition, data: bytes | memoryview) -> asyncio.Future[Published]:
        """Append a batch to a partition that has joined. The future is done when the batch is on
        stable storage.

        Raises:
            NotInTransaction: a batch is in no transaction: readers would see it at once, whatever
                becomes of the stage. ProducerMismatch, ProducerFenced, NotInTransaction,
                UnknownProducer, and what `check` and `Partition.publish` raise.
        """
        stage = self._stage
        if not all(header.is_transactional for header, _ in split(data)):
            raise NotInTransaction(
                f"a batch for {key[0]}-{key[1]} in stage {stage.stage_id!r} is in no transaction; "
                "mark it as transactional, with the"
                " producer id and the epoch of the stage"
            )
        future = self.check(key).publish(data, ACKS_ALL, self._admit)
        self._coordinator.touch(stage)
        if not future.done():
            stage.pending.add(future)
            future.add_done_callback(self._settled)
        return future

    def end(self, *, is_complete: bool) -> None:
        """Stop publishing. `is_complete`: the client has closed the stage itself; else it may come
        back for a while. Repeated: no effect.
        """
        if not self._is_over:
            self._is_over = True
            self._coordinator.ended_channel(self._stage, is_complete=is_complete)

    def _admit(self, header: BatchHeader, log_id: LogId) -> None:
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        self._coordinator.check_batch(self._stage, producer, (log_id.topic, log_id.partition))

    def _settled(self, future: asyncio.Future[Published]) -> None:
        self._stage.pending.discard(future)
        if not future.cancelled() and (failure := future.exception()) is not None:
            self._stage.failure = failure
