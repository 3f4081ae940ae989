"""A consumer that the broker pushes to: the jobs that were not handed out yet, and the credit that
bounds them.

Credit is counted in records: `prefetch` is the sum of what the broker may still push, what waits
here, and what is handed out and not settled. Credit is returned when records are settled, in lumps,
because each return costs the broker a lease: as soon as it is a third of what waits here or is to
come, and at once if a caller waits for a job. Settlements are sent before the credit that they
free.

Jobs that wait here are released when half of their lease has passed, so that slow work does not let
leases expire in a prefetch, and other consumers can have the records. When the last iteration ends,
everything that waits is released, and also what still arrives for credit given before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError
from sparrow.client.batch import copy_of
from sparrow.client.consumer import Consumer
from sparrow.client.job import wire_text
from sparrow.client.settlements import NACK, QUIET, RELEASE
from sparrow.protocol.native.messages import QueueCredit

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.client.consumer import OnFailure
    from sparrow.client.job import LeasedRecord
    from sparrow.client.lease import Lease
    from sparrow.client.options import QueueOptions
    from sparrow.client.session import Session
    from sparrow.records.record import Record

    MakeJob = Callable[[Lease, Record, int], Any]

_logger = logging.getLogger("sparrow.client")


class Prefetcher(Consumer):
    """A consumer that keeps a stock of jobs. Loop thread only, except that any thread may take from
    `jobs` (`popleft`).
    """

    is_pushed = True

    def __init__(
        self,
        session: Session,
        queue: str,
        options: QueueOptions,
        consumer_id: str,
        *,
        on_failure: OnFailure,
        make_job: MakeJob,
    ) -> None:
        super().__init__(session, queue, options, consumer_id, on_failure=on_failure)
        self.jobs: deque[Any] = deque()
        """Decoded and not handed out."""
        self._leases: deque[Lease] = deque()
        """Leases behind them, not decoded."""
        self._encoded = 0
        """Records of these leases."""
        self.is_stopped = False
        """True if the running iterations must end."""
        self._make_job = make_job
        self._iterations = 0
        """Number of running iterations."""
        self._outstanding = 0
        """Credit that the broker has."""
        self._free = 0
        """Credit that may be given."""
        self._arrivals: deque[asyncio.Future[None]] = deque()

    def forked(self, parent: int) -> None:
        super().forked(parent)
        self._drop_all()
        self._arrivals.clear()

    # ── taking jobs ───────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Register an iteration."""
        if not self._iterations:
            self.is_stopped = False
        self._iterations += 1
        self.give_credit()

    def end(self) -> None:
        """Unregister an iteration; after the last one release all jobs that were not handed out."""
        self._iterations -= 1
        if not self._iterations:
            self._release_waiting()

    def stop(self) -> None:
        """End the running iterations and release all jobs that were not handed out."""
        if self._iterations:
            self.is_stopped = True
            self._release_waiting()
            self._wake_all()

    def _release_waiting(self) -> None:
        if self.failure is not None:
            return
        while self._leases:
            self._release(self._next_lease())
        self._release_jobs(lambda _: True)

    def _next_lease(self) -> Lease:
        """Return and remove the oldest lease that is not decoded."""
        lease = self._leases.popleft()
        self._encoded -= lease.unsettled
        return lease

    def _drop_all(self) -> None:
        self.jobs.clear()
        self._leases.clear()
        self._encoded = 0

    def take_nowait(self, now: float) -> LeasedRecord | None:
        """Return the next job, if one is here."""
        jobs = self.jobs
        while jobs or (self._leases and self.refill()):
            try:
                job: LeasedRecord = jobs.popleft()
            except IndexError:  # another thread was faster
                continue
            if self._arrivals:
                if jobs or self._leases:
                    self._wake()
                elif 0 < self._free >= self._outstanding / 3 and not self._is_flushing:
                    # Others wait, and nobody else would ask for more.
                    self.loop.call_soon_threadsafe(self.give_credit)
            lease = job.lease
            if lease.latest_deadline > now and not (lease.lost and job.is_lost):
                return job
        return None

    async def arrival(self) -> bool:
        """Wait until there may be a job; return False if the iterations were ended. Raises the
        error that ended the consumer.
        """
        if self.failure is not None:
            raise copy_of(self.failure)
        if self.is_stopped or self.jobs or self._leases:
            return not self.is_stopped
        if not self._is_flushing:  # else it follows the settlements
            self.give_credit()
        future = self.loop.create_future()
        self._arrivals.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                with suppress(ValueError):  # woken in the same iteration
                    self._arrivals.remove(future)
            else:
                self._wake()
            raise
        if self.failure is not None:
            raise copy_of(self.failure)
        return not self.is_stopped

    def refill(self) -> bool:
        """Make jobs of the next lease; return False if there is none."""
        while self._leases:
            lease = self._next_lease()
            try:
                records = lease.records()
            except SparrowError as error:
                self._damaged(lease, error)
                continue
            self.jobs.extend(map(self._make_job, repeat(lease), records, lease.counts(records)))
            if self.jobs:
                return True
        return False

    def _damaged(self, lease: Lease, error: SparrowError) -> None:
        """Nack a lease that cannot be read: at the delivery limit its records become dead
        letters.
        """
        _logger.warning(
            "records of %s-%d from offset %d on cannot be read: %s",
            lease.topic,
            lease.partition,
            lease.ranges[0][0],
            error.text,
        )
        text = wire_text(f"{type(error).__name__}: {error.text}")
        self._settle_lease(lease, NACK, text)

    def wake_next(self) -> None:
        """Wake the next caller that waits, if there may be more jobs."""
        if self.jobs or self._leases:
            self._wake()

    def _wake(self) -> None:
        while self._arrivals:
            future = self._arrivals.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _wake_all(self) -> None:
        arrivals, self._arrivals = self._arrivals, deque()
        for future in arrivals:
            if not future.done():
                future.set_result(None)

    # ── releasing ─────────────────────────────────────────────────────────────────────────────────

    def stale(self, now: float) -> None:
        while self._leases and self._leases[0].stale_at <= now:
            self._release(self._next_lease())
        self._release_jobs(lambda job: job.lease.stale_at <= now)

    def _release_jobs(self, is_chosen: Callable[[Any], bool]) -> None:
        """Release jobs from the oldest on, as long as they are chosen."""
        jobs = self.jobs
        with suppress(IndexError):  # another thread takes, too
            while is_chosen(jobs[0]):
                jobs.popleft().release_quietly()

    def _release(self, lease: Lease) -> None:
        self._settle_lease(lease, RELEASE, "")

    def _settle_lease(self, lease: Lease, verb: int, text: str) -> None:
        for first, last, _ in list(lease.ranges):
            self.submit(lease, lease.key(verb, -1, text), first, last, QUIET)

    # ── callbacks of the channel ──────────────────────────────────────────────────────────────────

    def leased(self, lease: Lease) -> None:
        self._outstanding -= lease.unsettled
        if not self._iterations or self.is_stopped:
            self._release(lease)
            return
        self._leases.append(lease)
        self._encoded += lease.unsettled
        self._wake()

    def opened(self) -> None:
        self._outstanding = 0
        self._free = self.options.prefetch - self._lease_table.records
        self.give_credit()

    def settled(self, records: int) -> None:
        self._free += records

    def give_credit(self) -> None:
        free, connection = self._free, self.connection
        supply = self._outstanding + len(self.jobs) + self._encoded
        if free <= 0 or free * 3 < supply or not self._iterations or self.is_stopped:
            return
        if connection is not None and self.is_open and connection.may_send(QueueCredit, self.channel):
            connection.send(QueueCredit(free), self.channel)
            self._outstanding += free
            self._free = 0

    def ended(self) -> None:
        self._drop_all()
        self._wake_all()
