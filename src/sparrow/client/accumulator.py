"""The accumulator of a producer: chooses the partition of each message, and the batch that takes
it.

- A key chooses the partition as Kafka's clients do (murmur2), so that equal keys stay in order.
- Messages without a key stick to one partition until its batch is closed, then continue with the
  next (KIP-480): full batches at any rate, and an even spread. The first partition is random, so
  that many small producers do not all begin with partition 0.
- `partition=` takes precedence over both.

A batch is closed when the next message would take it over `batch_bytes`; `partition_queue.py`
closes one that is due. Where as many batches wait as may be in flight, the next ones are larger:
the broker, or its store, takes longer than it takes to fill them.

Pure: the number of partitions, times and deadlines come from the caller.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, UnknownPartition
from sparrow.client.partition_queue import MAX_IN_FLIGHT, PartitionQueue
from sparrow.records.partitioner import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.client.batch import ProducerBatch

UNPLACED = -1
"""The partition of messages that wait for the topic's partitions to be known."""


class TopicAccumulator:
    """One topic of a producer: its partition queues, and the one that currently takes messages
    without a key. Loop thread only.
    """

    __slots__ = (
        "_filled",
        "_is_idempotent",
        "_open_batch",
        "batch_bytes",
        "checked_at",
        "max_batch_bytes",
        "queues",
        "sticky",
        "topic",
        "unplaced",
        "wanted",
    )

    def __init__(
        self,
        topic: str,
        batch_bytes: int,
        max_batch_bytes: int,
        open_batch: Callable[[PartitionQueue], ProducerBatch],
        filled: Callable[[ProducerBatch], None],
        *,
        is_idempotent: bool,
    ) -> None:
        self._open_batch = open_batch
        self._filled = filled
        self._is_idempotent = is_idempotent
        self.topic = topic
        self.batch_bytes = batch_bytes
        self.max_batch_bytes = max_batch_bytes
        """Size to which batches may grow."""
        self.queues: list[PartitionQueue] = []
        self.sticky = self._new_queue(UNPLACED)
        """The queue for messages without a key; a real one as soon as partitions are known."""
        self.checked_at = 0.0
        """Monotonic time at which the number of partitions was last read."""
        self.unplaced: ProducerBatch | None = None
        """Messages accepted before the partitions were known."""
        self.wanted: list[int | None] = []
        """The partition that each of those asks for."""

    def shrink(self, batch_bytes: int) -> None:
        """Make smaller batches from here on: the broker accepts none of this size for this
        topic.
        """
        self.batch_bytes = max(1, min(self.batch_bytes, batch_bytes // 2))
        self.max_batch_bytes = self.batch_bytes

    def grow(self, partitions: int) -> None:
        """Add queues up to this number of partitions. Partitions never go away."""
        for number in range(len(self.queues), partitions):
            self.queues.append(self._new_queue(number))
        if self.sticky.partition == UNPLACED and self.queues:
            self.sticky = random.choice(self.queues)  # noqa: S311 - spreads load, keeps no secret

    def batch_for(self, key: bytes | None, partition: int | None, size_bytes: int) -> ProducerBatch:
        """Return the open batch that takes a message of that size; a new one if there is none or no
        room in it.

        Raises:
            UnknownPartition: the topic has no such partition.
            InvalidArgument: the partition is not a number.
        """
        if partition is not None:
            queue = self._queue_numbered(partition)
        elif key is not None:
            queue = self.queues[partition_for_key(key, len(self.queues))]
        else:
            batch = self.sticky.open
            if batch is not None:
                if batch.size_bytes + size_bytes <= self.batch_bytes:
                    return batch
                self._close(self.sticky, batch)
            # the batch of the sticky partition was closed or is full: on to the next one
            queue = self.sticky = self.queues[(self.sticky.partition + 1) % len(self.queues)]
        batch = queue.open
        if batch is not None:
            if batch.size_bytes + size_bytes <= self.batch_bytes:
                return batch
            self._close(queue, batch)
        batch = queue.open = self._open_batch(queue)
        return batch

    def _close(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Close the queue's open batch, which has no room."""
        queue.close_open()
        if len(queue.ready) >= MAX_IN_FLIGHT:
            self.batch_bytes = min(2 * self.batch_bytes, self.max_batch_bytes)
        self._filled(batch)

    def _queue_numbered(self, partition: int) -> PartitionQueue:
        if not isinstance(partition, int):
            raise InvalidArgument(f"partition is {partition!r}; it must be a whole number, or None")
        if not 0 <= partition < len(self.queues):
            raise UnknownPartition(
                f"topic {self.topic!r} has no partition {partition}; "
                f"it has {len(self.queues)}, counted from 0"
            )
        return self.queues[partition]

    def collect(self, partition: int | None) -> ProducerBatch:
        """Return the batch that takes messages while the partitions are not known; the next message
        asks for `partition`.
        """
        if self.unplaced is None:
            self.unplaced = self._open_batch(self._new_queue(UNPLACED))
            self.wanted = []
        self.wanted.append(partition)
        return self.unplaced

    def take_unplaced(self) -> tuple[ProducerBatch | None, list[int | None]]:
        """Return and remove the messages that `collect` took, and the partitions that they ask
        for.
        """
        batch, self.unplaced = self.unplaced, None
        wanted, self.wanted = self.wanted, []
        return batch, wanted

    def _new_queue(self, partition: int) -> PartitionQueue:
        return PartitionQueue(self.topic, partition, is_idempotent=self._is_idempotent)
