"""A consumer that asks: each LEASE frame brings a limited number of records, one LEASE at a time.

A LEASE whose caller was cancelled stays open at the broker; the next caller takes it over. Records
that arrive while there is no caller are released at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.client.consumer import Consumer
from sparrow.client.settlements import QUIET, RELEASE
from sparrow.protocol.native.messages import Lease as Ask
from sparrow.protocol.native.messages import LeaseDone

if TYPE_CHECKING:
    from sparrow.client.consumer import OnFailure
    from sparrow.client.lease import Lease
    from sparrow.client.options import QueueOptions
    from sparrow.client.session import Session
    from sparrow.protocol.native.messages import Head

_GRACE_S = 5.0
"""Longest time that the response may take beyond the wait."""


class Leaser(Consumer):
    """A consumer that leases on demand. Loop thread only."""

    def __init__(
        self,
        session: Session,
        queue: str,
        options: QueueOptions,
        consumer_id: str,
        *,
        on_failure: OnFailure,
    ) -> None:
        super().__init__(session, queue, options, consumer_id, on_failure=on_failure)
        self._lock = asyncio.Lock()
        self._ref = 0
        self._found: list[Lease] | None = None
        """Leases that arrived for the current caller; None: there is no caller."""
        self._reply: asyncio.Future[None] | None = None
        """Done when the LEASE under way is answered or lost."""

    async def lease(self, max_records: int, wait_s: float, max_bytes: int) -> list[Lease]:
        """Lease at most `max_records`, waiting at most `wait_s` seconds for the first; [] if none
        came. Without a connection this waits as if no record came.

        Raises:
            SparrowError: the consumer has ended.
        """
        deadline = self.loop.time() + wait_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
            try:
                return await self._lease_until(deadline, max_records, max_bytes)
            finally:
                self._lock.release()
        return []

    async def _lease_until(self, deadline: float, max_records: int, max_bytes: int) -> list[Lease]:
        while True:
            if not self.is_open:
                async with asyncio.timeout_at(deadline):
                    await self.until_open()
            found = await self._lease_once(deadline, max_records, max_bytes)
            if found or self.loop.time() >= deadline:
                return found

    async def _lease_once(self, deadline: float, max_records: int, max_bytes: int) -> list[Lease]:
        """Return the leases that one LEASE brought; [] also if its connection was lost."""
        self._found = []
        try:
            if self._reply is None or self._reply.done():
                await self._ask(deadline, max_records, max_bytes)
                deadline += _GRACE_S
            if self._reply is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await asyncio.shield(self._reply)
            return self._trimmed(self._found, max_records)
        except BaseException:
            for lease in self._found:
                self._release(lease)
            raise
        finally:
            self._found = None

    async def _ask(self, deadline: float, max_records: int, max_bytes: int) -> None:
        connection = self.connection
        if connection is None or not connection.may_send(Ask, self.channel):
            await asyncio.sleep(0)  # let the lost connection be removed first
            return
        wait_ms = max(0, round((deadline - self.loop.time()) * 1000))
        connection.send(Ask(self._ref + 1, max_records, max_bytes, wait_ms), self.channel)
        self._ref += 1
        self._reply = self.loop.create_future()

    def _trimmed(self, found: list[Lease], max_records: int) -> list[Lease]:
        """Cut leases to `max_records` and release the rest: an earlier caller may have asked for
        more.
        """
        room = max_records
        for lease in found:
            kept = []
            for first, last, count in lease.ranges:
                end = min(last, first + room - 1)
                if end < last:
                    self.submit(lease, lease.key(RELEASE), end + 1, last, QUIET)
                if end >= first:
                    kept.append((first, end, count))
                    room -= end - first + 1
            lease.ranges = kept
        return [lease for lease in found if lease.ranges]

    def leased(self, lease: Lease) -> None:
        if self._found is None:
            self._release(lease)
        else:
            self._found.append(lease)

    def other(self, head: Head) -> None:
        if isinstance(head, LeaseDone) and head.ref == self._ref:
            self._done()

    def interrupted(self) -> None:
        self._done()

    def ended(self) -> None:
        self._done()

    def _done(self) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(None)

    def _release(self, lease: Lease) -> None:
        if self.failure is None:
            for first, last, _ in lease.ranges:
                self.submit(lease, lease.key(RELEASE), first, last, QUIET)
