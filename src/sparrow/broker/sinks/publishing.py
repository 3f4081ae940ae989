"""How batches get into a stage: a partition joins the stage's transaction before the first one is appended, and all of them are confirmed on stable storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidTopicName
from sparrow.broker.internal_topics import INTERNAL_TOPICS
from sparrow.broker.partition import ACKS_ALL
from sparrow.broker.producer_ids import ProducerIdentity

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

    from sparrow.broker.partition import Partition, Published
    from sparrow.broker.sinks.coordinator import SinkCoordinator
    from sparrow.broker.sinks.stage import Stage
    from sparrow.broker.topics import Topics
    from sparrow.broker.transactions.state import Key
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import LogId


class StagePublishing:
    """How one principal publishes into one stage. Loop thread only.

    Args:
        require: raises NotAuthorized unless the principal may write to a topic.
    """

    def __init__(
        self, stage: Stage, coordinator: SinkCoordinator, topics: Topics, require: Callable[[str], None]
    ) -> None:
        self._stage = stage
        self._coordinator = coordinator
        self._topics = topics
        self._require = require
        self._joined: set[Key] = set()
        self._is_over = False
        coordinator.opened_channel(stage)

    @property
    def producer(self) -> ProducerIdentity:
        """Whose batches they must be."""
        return self._stage.producer

    def has_joined(self, key: Key) -> bool:
        """Whether `publish` may be called for the partition."""
        return key in self._joined

    def check(self, key: Key) -> Partition:
        """The partition, if the principal may publish to it, and the stage is open.

        Raises:
            StageExpired, UnknownTopic, UnknownPartition, InvalidTopicName, NotAuthorized
        """
        topic, partition = key
        self._require(topic)
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicName(f"{topic} is internal: nobody writes to it")
        self._coordinator.check_open(self._stage)
        return self._topics.get(topic).partition(partition)

    async def join(self, keys: Collection[Key]) -> None:
        """Let partitions that passed `check` take part; durable when it returns.

        Raises:
            StageExpired, DiskFull, StorageFailed
        """
        self._coordinator.touch(self._stage)
        await self._coordinator.join(self._stage, keys)
        self._joined.update(keys)

    def publish(self, key: Key, data: bytes | memoryview) -> asyncio.Future[Published]:
        """Append a batch to a partition that has joined; done when it is on stable storage.

        Raises:
            as `check`
            ProducerMismatch, ProducerFenced, NotInTransaction, and what `Partition.publish` raises.
        """
        stage = self._stage
        future = self.check(key).publish(data, ACKS_ALL, self._admit)
        self._coordinator.touch(stage)
        if not future.done():
            stage.pending.add(future)
            future.add_done_callback(self._settled)
        return future

    def end(self, *, is_complete: bool) -> None:
        """Nothing more is published. `is_complete`: the client has said so; else it may come back, for a while. Again: no effect."""
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
