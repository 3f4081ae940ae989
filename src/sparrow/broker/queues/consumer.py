"""A consumer of a queue, as frontends use it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, Overloaded, SparrowError, StaleMember, UnknownQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.rules.settlement import Leased, Settlement
    from sparrow.broker.reading.fetch import ReadMemory
    from sparrow.records.topic_partition import TopicPartition

MAX_RECORDS = 1_000_000


class QueueConsumer:
    """A consumer of one queue. Made by `QueueService.open_consumer`. Loop thread only.

    Args:
        prefetch: maximum number of records that it may have leased; 0: the queue's policy decides.
    """

    def __init__(
        self, queue: Queue, consumer_id: str, client_name: str, subscriber: str, prefetch: int
    ) -> None:
        self.queue = queue
        self.id = consumer_id
        self.client_name = client_name
        self.subscriber = subscriber
        self.prefetch = prefetch
        self.refusal: SparrowError | None = None
        """The reason why the broker closed it; None if it closed itself."""
        self.takes_by_offset = False
        """True if the records of a partition are wanted in one piece by offset, instead of by
        priority.
        """
        self.principal: Principal | None = None
        """The principal that must be allowed to read as long as the consumer is open; None: the
        caller checks.
        """
        self.ended: Callable[[SparrowError], None] | None = None
        """Called with the reason when the broker closes the consumer."""
        self.is_open = True

    @property
    def queue_name(self) -> str:
        return self.queue.name

    @property
    def lease_ms(self) -> int:
        """Length of a lease."""
        return self.queue.definition.policy.lease_ms

    @property
    def syncs_leases(self) -> bool:
        """True if leases are on stable storage when `lease` returns records."""
        return self.queue.definition.policy.lease_durability == "synced"

    @property
    def leased(self) -> int:
        """Number of records that it has leased."""
        subscriber = self.queue.state.subscribers.get(self.subscriber)
        return subscriber.leases.leased_counts.get(self.id, 0) if subscriber is not None else 0

    def check_open(self) -> None:
        """Raise StaleMember, or the reason why it was closed."""
        if not self.is_open:
            raise self._why_closed()

    def _why_closed(self) -> SparrowError:
        return self.refusal or StaleMember(
            f"consumer {self.id!r} of queue {self.queue.name!r} was closed, or opened elsewhere"
        )

    async def lease(
        self,
        max_records: int,
        *,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        sources: Collection[TopicPartition] | None = None,
        memory: ReadMemory | None = None,
    ) -> list[Leased]:
        """Return records for this consumer, by priority, and of one priority and partition by
        offset. They are durably leased when it returns.

        Args:
            max_records: maximum number of records.
            max_bytes: maximum size of their batches, roughly, but at least one record.
            wait_ms: how long to wait while there is nothing.
            sources: (topic, partition) to take from; default: all.
            memory: taken before each read, and holds what was read when this returns; the caller
                gives it back.

        Raises:
            UnknownQueue: deleted. StaleMember: the consumer was closed, or opened elsewhere.
                NotAuthorized: it may not read any more.
            DiskFull, StorageFailed, CorruptBatch: the records stay ready.
        """
        if max_records < 1 or max_bytes < 1 or wait_ms < 0:
            raise InvalidArgument(
                f"a lease of {max_records} records and {max_bytes} bytes with a wait of {wait_ms} "
                "ms; the first two must be"
                " positive, the third not negative"
            )
        limit = min(max_records, MAX_RECORDS)
        queue = self.queue
        while True:
            try:
                return await queue.lease(
                    self, limit, max_bytes, wait_ms=wait_ms, sources=sources, memory=memory
                )
            except UnknownQueue:
                if queue.successor is None:
                    raise
                queue = await asyncio.shield(queue.successor)

    async def wait(self, wait_ms: int) -> bool:
        """Wait until `lease` may find something, at most `wait_ms`: for callers that need room
        before they lease. Return False at the timeout.

        Raises:
            UnknownQueue, StaleMember, NotAuthorized: as `lease`.
        """
        queue = self.queue
        while True:
            try:
                return await queue.wait(self, wait_ms)
            except UnknownQueue:
                if queue.successor is None:
                    raise
                queue = await asyncio.shield(queue.successor)

    def wake_another(self) -> None:
        """Wake another consumer, if after `wait` nothing will be leased now."""
        if not self.queue.is_closed:
            self.queue.wake()

    def settle(self, settlements: Sequence[Settlement]) -> asyncio.Future[list[SparrowError | None]]:
        """Settle leased records. The effect is immediate; the future is done when it is on stable
        storage.

        The result has an entry per settlement: None, or why it had no effect: NotLeased,
        LeaseExpired, LeasedByAnother.

        Raises:
            UnknownQueue, StaleMember
            Overloaded: the queue's policy is being changed.
        """
        if not self.is_open:
            raise self._why_closed()
        queue = self.queue
        if queue.is_closed and queue.successor is not None:
            raise Overloaded(f"queue {queue.name!r} is being changed; try again in a moment")
        return queue.settle(self, settlements)

    def refusal_of(self, settlements: Sequence[Settlement]) -> SparrowError | None:
        """Return why one of these settlements would have no effect now; None: all would have
        one.
        """
        return self.queue.refusal_of(self, settlements)

    async def close(self, *, release: bool, counts: bool = False) -> None:
        """Close the consumer.

        Args:
            release: True: its leased records are ready again at once; False: when their leases end.
            counts: True if the deliveries of released records count, so that a record that its
                consumers do not survive reaches the delivery limit.
        """
        if not self.is_open:
            return
        self.ended = None
        self.end(None)
        if release:
            await self.queue.release_all(self, counts=counts)

    def end(self, refusal: SparrowError | None) -> None:
        """Close the consumer from the broker's side. A caller that waits in `lease` gets the
        reason.
        """
        self.is_open = False
        self.refusal = refusal
        if self.queue.consumers.get(self.id) is self:
            del self.queue.consumers[self.id]
        self.queue.wake_all()
        ended, self.ended = self.ended, None
        if ended is not None:
            ended(self._why_closed())
