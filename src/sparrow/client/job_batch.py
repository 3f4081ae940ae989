"""A batch of jobs, as `queue.lease(…)` returns it: settled by range; per-record objects are made
only on demand.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Generic, TypeVar

from sparrow.client.job import (
    OPEN,
    Job,
    LeasedRecord,
    delay_ms_of,
    extension_ms_of,
    settled_before,
    wire_text,
)
from sparrow.client.settlements import ACK, EXTEND, NACK, QUIET, REJECT, RELEASE, CountdownFuture

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from sparrow.base.errors import SparrowError
    from sparrow.client.lease import Lease, LeaseOwner
    from sparrow.records.record import Record

AnyJob = TypeVar("AnyJob", bound=LeasedRecord)


class LeasedBatch(Generic[AnyJob]):
    """The data of a batch, without the methods that settle it."""

    def __init__(
        self, owner: LeaseOwner, leases: list[Lease], make_job: Callable[[Lease, Record, int], AnyJob]
    ) -> None:
        self._owner = owner
        self._leases = leases
        self._make_job = make_job
        self._records: list[list[Record]] = []
        """Decoded records per lease; leases that are not decoded yet are missing at the end."""
        self._jobs: list[AnyJob] | None = None
        self._settled_by = OPEN

    def __len__(self) -> int:
        """Return the number of leased records."""
        return sum(lease.size for lease in self._leases)

    @property
    def records(self) -> list[Record]:
        """The messages. Raises CorruptBatch if they are damaged."""
        return [record for records in self._decoded() for record in records]

    @property
    def values(self) -> list[bytes | None]:
        """The messages' values, in the order of `records`."""
        return [record.value for records in self._decoded() for record in records]

    @property
    def jobs(self) -> list[AnyJob]:
        """A job for each record, in the order of `records`. Jobs settled one by one are skipped
        when the batch is settled.
        """
        if self._jobs is None:
            pairs = zip(self._leases, self._decoded(), strict=True)
            self._jobs = [
                job
                for lease, records in pairs
                for job in map(self._make_job, repeat(lease), records, lease.counts(records))
            ]
            if self._settled_by != OPEN:
                for job in self._jobs:
                    job.mark_settled(self._settled_by)
        return self._jobs

    def __iter__(self) -> Iterator[AnyJob]:
        return iter(self.jobs)

    @property
    def ranges(self) -> list[tuple[str, int, int, int, int]]:
        """The leased ranges: topic, partition, first offset, last offset, number of the
        delivery.
        """
        return [(lease.topic, lease.partition, *each) for lease in self._leases for each in lease.ranges]

    @property
    def deadline(self) -> float:
        """The time at which the first of the leases ends, monotonic seconds; 0 for an empty
        batch.
        """
        return min((lease.deadline for lease in self._leases), default=0.0)

    @property
    def is_settled(self) -> bool:
        """True once the batch was settled by another method than `extend`."""
        return self._settled_by != OPEN

    def __repr__(self) -> str:
        where = f"queue {self._owner.queue!r} of {self._owner.address}"
        state = "settled" if self._settled_by != OPEN else "leased"
        return f"<{type(self).__name__} of {len(self)} jobs of {where}, {state}>"

    def _decoded(self) -> list[list[Record]]:
        while len(self._records) < len(self._leases):
            self._records.append(self._leases[len(self._records)].records())
        return self._records

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def settle(self, verb: int, delay_ms: int, text: str, outcome: Callable[[int], object]) -> None:
        """Settle all jobs that are not settled. Loop thread only.

        Args:
            outcome: called with the number of parts; returns the object that waits for them.

        Raises:
            NotLeased: settled before, or the queue is closed.
            LeaseExpired: some records were delivered again meanwhile; nothing was settled.
        """
        parts = self.check()
        waiting = outcome(len(parts))
        for lease, first, last in parts:
            lease.owner.submit(lease, lease.key(verb, delay_ms, text), first, last, waiting)
        if verb != EXTEND:
            self._settled_by = verb
            for job in self._jobs or ():
                if not job.is_settled:
                    job.mark_settled(verb)

    def lengthen(self, seconds: float | None, outcome: Callable[[int], object]) -> None:
        """Ask for longer leases. Loop thread only. Raises as `settle`."""
        self.settle(EXTEND, extension_ms_of(seconds), "", outcome)
        for lease in self._leases:
            owner = lease.owner
            lease.deadline = owner.loop.time() + (owner.lease_s if seconds is None else seconds)
            lease.latest_deadline = max(lease.latest_deadline, lease.deadline)

    def check(self) -> list[tuple[Lease, int, int]]:
        """Return the unsettled records as ranges. Raises as `settle`."""
        parts = self._parts()
        for lease, first, last in parts:
            lease.check(first, last)
        return parts

    def report(self, verb: int, error: SparrowError) -> None:
        """Report a settlement of the whole batch that had no effect."""
        for lease in self._leases:
            for first, last, _ in lease.ranges:
                self._owner.report((lease.key(verb), first, last, None), error)

    def _parts(self) -> list[tuple[Lease, int, int]]:
        """Return all ranges, or single jobs if some were settled one by one."""
        if self._settled_by != OPEN:
            raise settled_before("the batch", self._settled_by)
        if self._jobs is None or not any(job.is_settled for job in self._jobs):
            return [(lease, first, last) for lease in self._leases for first, last, _ in lease.ranges]
        return [(job.lease, job.offset, job.offset) for job in self._jobs if not job.is_settled]

    def awaited(self) -> tuple[asyncio.Future[None], Callable[[int], object]]:
        """Return a future, and the `outcome` argument of `settle` that completes it."""
        future: asyncio.Future[None] = self._owner.loop.create_future()

        def outcome(parts: int) -> CountdownFuture:
            if not parts:
                future.set_result(None)
            return CountdownFuture(parts, future)

        return future, outcome

    def release_quietly(self) -> None:
        """Release the batch unless it is settled; an expired lease is no error. Loop thread
        only.
        """
        if self._settled_by == OPEN:
            self.settle(RELEASE, -1, "", lambda _: QUIET)


class JobBatch(LeasedBatch[Job]):
    """A batch of the asyncio client. Loop thread only. An empty one is false.

    The methods are those of `Job`, for all jobs that are not settled one by one, and raise the
    same. A range that cannot be settled does not keep the others from it: the error is the first
    range's.
    """

    def ack(self) -> asyncio.Future[None]:
        """Acknowledge all jobs."""
        return self._settled(ACK)

    def nack(self, delay_s: float | None = None, *, error: str = "") -> asyncio.Future[None]:
        """Report a failure of all jobs: they are delivered again."""
        return self._settled(NACK, delay_ms_of(delay_s), error)

    def reject(self, reason: str = "") -> asyncio.Future[None]:
        """Reject all jobs: they become dead letters."""
        return self._settled(REJECT, -1, reason)

    def release(self) -> asyncio.Future[None]:
        """Release all jobs unused: they are ready again at once, and this delivery does not
        count.
        """
        return self._settled(RELEASE)

    def extend(self, seconds: float | None = None) -> asyncio.Future[None]:
        """Let the leases end `seconds` from now (None: the queue's lease time)."""
        future, outcome = self.awaited()
        self.lengthen(seconds, outcome)
        return future

    def ack_nowait(self) -> None:
        self.settle(ACK, -1, "", reported)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self.settle(NACK, delay_ms_of(delay_s), wire_text(error), reported)

    def _settled(self, verb: int, delay_ms: int = -1, text: str = "") -> asyncio.Future[None]:
        future, outcome = self.awaited()
        self.settle(verb, delay_ms, wire_text(text), outcome)
        return future


def reported(_parts: int) -> None:
    """Return no waiter: failures go to the queue."""
