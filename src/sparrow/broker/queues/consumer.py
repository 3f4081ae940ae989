"""A consumer of a queue, as a door holds it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from sparrow.base.errors import InvalidArgument, Overloaded, SparrowError, StaleMember, UnknownQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.fetch import ReadMemory
    from sparrow.broker.queues.queue import Key, Queue
    from sparrow.broker.queues.settlement import Leased, Settlement

T = TypeVar("T")

MAX_RECORDS = 1_000_000


class QueueConsumer:
    """Made by `QueueVerbs.open_consumer`. Loop thread only.

    Args:
        prefetch: how many records it may hold leased; 0: as the queue's policy says.
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
        """Why it is closed, where it did not close itself."""
        self.takes_by_offset = False
        """Whether it wants what it gets of a partition in one piece, instead of the more urgent first."""
        self.principal: Principal | None = None
        """Who must be allowed to read as long as it is open; None: whoever made it asks."""
        self.ended: Callable[[SparrowError], None] | None = None
        """Told why the broker closed it."""
        self._is_open = True

    @property
    def queue_name(self) -> str:
        return self.queue.name

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def lease_ms(self) -> int:
        """How long records are leased."""
        return self.queue.definition.policy.lease_ms

    @property
    def leased(self) -> int:
        """How many records it holds."""
        lane = self.queue.state.lanes.get(self.subscriber)
        return lane.holders.get(self.id, 0) if lane is not None else 0

    def check_open(self) -> None:
        """Raise StaleMember, or why it was closed."""
        if not self._is_open:
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
        sources: Collection[Key] | None = None,
        memory: ReadMemory | None = None,
    ) -> list[Leased]:
        """Records for this consumer, the more urgent first, of one priority and partition by offset; durably leased when it returns.

        Args:
            max_records: no more than these.
            max_bytes: about so many bytes of batches, but at least one record.
            wait_ms: how long to wait while there is nothing.
            sources: (topic, partition) to take from; default: all.
            memory: is asked before each read, and given back what it granted when that is done.

        Raises:
            UnknownQueue: deleted. StaleMember: the consumer was closed, or opened elsewhere. NotAuthorized: it may not read any more.
            DiskFull, StorageFailed, CorruptBatch: the records stay ready.
        """
        if max_records < 1 or max_bytes < 1 or wait_ms < 0:
            raise InvalidArgument(
                f"a lease of {max_records} records and {max_bytes} bytes with a wait of {wait_ms} ms; the first two must be"
                " positive, the third not negative"
            )
        limit = min(max_records, MAX_RECORDS)
        return await self._on_queue(
            lambda queue: queue.lease(self, limit, max_bytes, wait_ms=wait_ms, sources=sources, memory=memory)
        )

    async def wait(self, wait_ms: int) -> bool:
        """Until `lease` may find something, at most `wait_ms`: for who must look for room before it leases. False when the time is over.

        Raises:
            UnknownQueue, StaleMember, NotAuthorized: as `lease`.
        """
        return await self._on_queue(lambda queue: queue.wait(self, wait_ms))

    def pass_on(self) -> None:
        """After `wait`, when nothing will be leased now: somebody else may."""
        if not self.queue.is_closed:
            self.queue.wake()

    async def _on_queue(self, work: Callable[[Queue], Awaitable[T]]) -> T:
        """Work on the queue; when its state is replaced meanwhile, on the one that took its place."""
        queue = self.queue
        while True:
            try:
                return await work(queue)
            except UnknownQueue:
                if queue.successor is None:
                    raise
                queue = await asyncio.shield(queue.successor)

    def settle(self, settlements: Sequence[Settlement]) -> asyncio.Future[list[SparrowError | None]]:
        """Say what became of leased records. It holds at once; the future is done when it is on stable storage.

        The result has an entry per settlement: None, or why it had no effect: NotLeased, LeaseExpired, LeasedByAnother.

        Raises:
            UnknownQueue, StaleMember
            Overloaded: the queue's policy is being changed.
        """
        self.check_open()
        if self.queue.is_closed and self.queue.successor is not None:
            raise Overloaded(f"queue {self.queue.name!r} is being changed; try again in a moment")
        return self.queue.settle(self, settlements)

    def refusal_of(self, settlements: Sequence[Settlement]) -> SparrowError | None:
        """Why one of these would have no effect now; None: all would have one."""
        return self.queue.refusal_of(self, settlements)

    async def close(self, *, give_back: bool, counts: bool = False) -> None:
        """Take nothing any more.

        Args:
            give_back: what it holds is ready again at once; else when its leases end.
            counts: the deliveries of what is given back count, so that what its consumers do not survive reaches the delivery limit.
        """
        if not self._is_open:
            return
        self.ended = None
        self.end(None)
        if give_back:
            await self.queue.give_back(self, counts=counts)

    def end(self, refusal: SparrowError | None) -> None:
        """Close it from the broker's side; who waits in `lease` learns why."""
        self._is_open = False
        self.refusal = refusal
        if self.queue.consumers.get(self.id) is self:
            del self.queue.consumers[self.id]
        self.queue.wake_all()
        ended, self.ended = self.ended, None
        if ended is not None:
            ended(self._why_closed())
