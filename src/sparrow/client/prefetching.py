"""A consumer to whom the broker pushes: what came and was not handed out, and the credit that bounds it.

Credit is counted in records: what the broker may still push, what waits here, and what is handed out and not settled are `prefetch` records together.
It is given back when records are settled, in lumps, as each costs the broker a lease: as soon as what is to be given back is a third of what waits here or
is to come, and at once where somebody waits for a job. Settlements leave before the credit that they free.

What waits here and nobody takes goes back to the queue when half of its lease has passed, so that slow work leaves no record to its end
in a prefetch, and others may have it. When nobody iterates any more, everything that waits goes back, and what still comes for credit given before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError
from sparrow.client.consumer import Consumer
from sparrow.client.delivery import repeated
from sparrow.client.job import wire_text
from sparrow.client.settling import NACK, QUIET, RETURN
from sparrow.protocol.native.messages import QueueCredit

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.client.connection import Connection
    from sparrow.client.consumer import OnFailure
    from sparrow.client.job import LeasedRecord
    from sparrow.client.lease import Lease
    from sparrow.client.options import QueueOptions
    from sparrow.records.record import Record

    MakeJob = Callable[[Lease, Record, int], Any]

_logger = logging.getLogger("sparrow.client")


class Prefetcher(Consumer):
    """Loop thread only, but that any thread may take from `jobs` (`popleft`)."""

    is_pushed = True

    def __init__(
        self,
        connection: Connection,
        queue: str,
        options: QueueOptions,
        consumer_id: str,
        *,
        on_failure: OnFailure,
        make_job: MakeJob,
    ) -> None:
        super().__init__(connection, queue, options, consumer_id, on_failure=on_failure)
        self.jobs: deque[Any] = deque()
        """Decoded and not handed out."""
        self._leases: deque[Lease] = deque()
        """Behind them, not decoded."""
        self.is_stopped = False
        """Whether those who iterate now shall end."""
        self._make_job = make_job
        self._takers = 0
        """Who iterates now."""
        self._outstanding = 0
        """Credit that the broker has."""
        self._free = 0
        """Credit to be given."""
        self._arrivals: deque[asyncio.Future[None]] = deque()

    # ── taking ────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Somebody iterates from now on."""
        if not self._takers:
            self.is_stopped = False
        self._takers += 1
        self._give_credit()

    def end(self) -> None:
        """Somebody iterates no more; when it was the last one, what was not handed out goes back."""
        self._takers -= 1
        if not self._takers:
            self._return_waiting()

    def stop(self) -> None:
        """Hand out nothing more to those who iterate now; what was not handed out goes back."""
        if self._takers:
            self.is_stopped = True
            self._return_waiting()
            self._wake_all()

    def _return_waiting(self) -> None:
        if self.failure is not None:
            return
        while self._leases:
            self._return(self._leases.popleft())
        self._return_jobs(lambda _: True)

    def take_nowait(self, now: float) -> LeasedRecord | None:
        """The next job, if one is here."""
        jobs = self.jobs
        while jobs or self.refill():
            try:
                job: LeasedRecord = jobs.popleft()
            except IndexError:  # another thread was faster
                continue
            if self._arrivals:
                self.wake_next()
            if job.lease.held_until > now and not job.is_lost:
                return job
        return None

    async def arrival(self) -> bool:
        """Wait until there may be a job; False: it was stopped. Raises what ended the consumer."""
        if self.failure is not None:
            raise repeated(self.failure)
        if self.is_stopped or self.jobs or self._leases:
            return not self.is_stopped
        self._give_credit()
        future = self.loop.create_future()
        self._arrivals.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._arrivals.remove(future)
            else:
                self._wake()
            raise
        if self.failure is not None:
            raise repeated(self.failure)
        return not self.is_stopped

    def refill(self) -> bool:
        """Make jobs of the next lease."""
        while self._leases:
            lease = self._leases.popleft()
            try:
                records = lease.records()
            except SparrowError as error:
                self._damaged(lease, error)
                continue
            make_job = self._make_job
            self.jobs.extend([make_job(lease, record, count) for record, count in lease.counted(records)])
            if self.jobs:
                return True
        return False

    def _damaged(self, lease: Lease, error: SparrowError) -> None:
        """What cannot be read is as good as failed: at the delivery limit it goes to the dead letters."""
        _logger.warning(
            "records of %s-%d from offset %d on cannot be read: %s",
            lease.topic,
            lease.partition,
            lease.ranges[0][0],
            error.text,
        )
        text = wire_text(f"{type(error).__name__}: {error.text}")
        self._give_back(lease, NACK, text)

    def wake_next(self) -> None:
        """Whoever found something wakes the next who waits, if there may be more."""
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

    # ── giving back ───────────────────────────────────────────────────────────────────────────────

    def stale(self, now: float) -> None:
        while self._leases and self._leases[0].stale_at <= now:
            self._return(self._leases.popleft())
        self._return_jobs(lambda job: job.lease.stale_at <= now)

    def _return_jobs(self, is_chosen: Callable[[Any], bool]) -> None:
        """Give jobs back from the oldest on, as long as they are chosen."""
        jobs = self.jobs
        with suppress(IndexError):  # another thread takes, too
            while is_chosen(jobs[0]):
                jobs.popleft().give_back()

    def _return(self, lease: Lease) -> None:
        self._give_back(lease, RETURN, "")

    def _give_back(self, lease: Lease, verb: int, text: str) -> None:
        for first, last, _ in list(lease.ranges):
            self.submit(lease, lease.key(verb, -1, text), first, last, QUIET)

    # ── what the channel tells ────────────────────────────────────────────────────────────────────

    def leased(self, lease: Lease) -> None:
        self._outstanding -= lease.unsettled
        if not self._takers or self.is_stopped:
            self._return(lease)
            return
        self._leases.append(lease)
        self._wake()
        self._give_credit()

    def opened(self) -> None:
        self._outstanding = 0
        self._free = self.options.prefetch - self._held.records
        self._give_credit()

    def settled(self, records: int) -> None:
        self._free += records

    def told(self) -> None:
        self._give_credit()

    @property
    def _supply(self) -> int:
        """Records that wait here, or that the broker may push."""
        return self._outstanding + len(self.jobs) + sum(lease.unsettled for lease in self._leases)

    def _give_credit(self) -> None:
        free, link = self._free, self.link
        if free <= 0 or free * 3 < self._supply or not self._takers or self.is_stopped:
            return
        if link is not None and self.is_open and link.may_send(QueueCredit, self.channel):
            link.send(QueueCredit(free), self.channel)
            self._outstanding += free
            self._free = 0

    def ended(self) -> None:
        self.jobs.clear()
        self._leases.clear()
        self._wake_all()
