"""Messages become batches: which partition a message goes to, and which batch takes it.

- A key chooses the partition as Kafka's clients do (murmur2), so that equal keys stay in order.
- Without a key messages stick to one partition until its batch is closed, then go on with the next (KIP-480): full batches at any rate,
  and an even spread. The first partition is random, so that many small producers do not all begin with partition 0.
- `partition=` wins over both.

A batch is closed when the next message would take it over `batch_bytes`; `line.py` closes one that is due.

Pure: the number of partitions, times and deadlines come from the caller.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, UnknownPartition
from sparrow.client.line import Line
from sparrow.records.partitioner import partition_for_key

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sparrow.client.delivery import Batch

UNPLACED = -1
"""The partition of messages that wait for the topic's partitions to be known."""


class Lane:
    """One topic of a producer: its lines, and the line that messages without a key go to now. Loop thread only."""

    __slots__ = (
        "_filled",
        "_is_idempotent",
        "_loop",
        "_open_batch",
        "batch_bytes",
        "checked_at",
        "lines",
        "sticky",
        "topic",
        "unplaced",
        "wanted",
    )

    def __init__(
        self,
        topic: str,
        loop: asyncio.AbstractEventLoop,
        batch_bytes: int,
        open_batch: Callable[[Line], Batch],
        filled: Callable[[Batch], None],
        *,
        is_idempotent: bool,
    ) -> None:
        self._loop = loop
        self._open_batch = open_batch
        self._filled = filled
        self._is_idempotent = is_idempotent
        self.topic = topic
        self.batch_bytes = batch_bytes
        self.lines: list[Line] = []
        self.sticky = self._line(UNPLACED)
        """The line for messages without a key; a real one as soon as partitions are known."""
        self.checked_at = 0.0
        """Monotonic time at which the number of partitions was asked for."""
        self.unplaced: Batch | None = None
        """Messages taken before the partitions were known."""
        self.wanted: list[int | None] = []
        """The partition that each of those names."""

    def shrink(self, batch_bytes: int) -> None:
        """The broker takes no batches as large as that for this topic: make smaller ones from here on."""
        self.batch_bytes = max(1, min(self.batch_bytes, batch_bytes // 2))

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions. Partitions never go away."""
        for number in range(len(self.lines), partitions):
            self.lines.append(self._line(number))
        if self.sticky.partition == UNPLACED and self.lines:
            self.sticky = random.choice(self.lines)  # noqa: S311 - spreads load, keeps no secret

    def batch_for(self, key: bytes | None, partition: int | None, size_bytes: int) -> Batch:
        """The open batch that takes a message of that size; a new one where there is none or no room in it.

        Raises:
            UnknownPartition: the topic has no such partition.
            InvalidArgument: the partition is no number.
        """
        if partition is not None:
            return self._batch_of(self._line_numbered(partition), size_bytes)
        if key is not None:
            return self._batch_of(self.lines[partition_for_key(key, len(self.lines))], size_bytes)
        batch = self.sticky.open
        if batch is not None and batch.size_bytes + size_bytes <= self.batch_bytes:
            return batch
        return self._next_sticky_batch(size_bytes)

    def _next_sticky_batch(self, size_bytes: int) -> Batch:
        """The batch of the sticky line was closed, or is full: on to the next partition."""
        self._close(self.sticky)
        self.sticky = self.lines[(self.sticky.partition + 1) % len(self.lines)]
        return self._batch_of(self.sticky, size_bytes)

    def _batch_of(self, line: Line, size_bytes: int) -> Batch:
        batch = line.open
        if batch is not None and batch.size_bytes + size_bytes <= self.batch_bytes:
            return batch
        self._close(line)
        batch = line.open = self._open_batch(line)
        return batch

    def _close(self, line: Line) -> None:
        """There is no room in the line's open batch."""
        batch = line.open
        if batch is not None:
            line.close_open()
            self._filled(batch)

    def _line_numbered(self, partition: int) -> Line:
        if not isinstance(partition, int):
            raise InvalidArgument(f"partition is {partition!r}; it must be a whole number, or None")
        if not 0 <= partition < len(self.lines):
            raise UnknownPartition(
                f"topic {self.topic!r} has no partition {partition}; it has {len(self.lines)}, counted from 0"
            )
        return self.lines[partition]

    def collect(self, partition: int | None) -> Batch:
        """The batch that takes messages while the partitions are not known; the next one names `partition`."""
        if self.unplaced is None:
            self.unplaced = self._open_batch(self._line(UNPLACED))
            self.wanted = []
        self.wanted.append(partition)
        return self.unplaced

    def take_unplaced(self) -> tuple[Batch | None, list[int | None]]:
        """What was collected, and which partitions it names; it is the caller's now."""
        batch, self.unplaced = self.unplaced, None
        wanted, self.wanted = self.wanted, []
        return batch, wanted

    def _line(self, partition: int) -> Line:
        return Line(self.topic, partition, self._loop, is_idempotent=self._is_idempotent)
