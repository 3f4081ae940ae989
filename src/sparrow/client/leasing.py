"""A consumer that asks: each LEASE brings at most so many records, one LEASE at a time.

An ask whose asker went away goes on at the broker; the next asker takes it over. What comes while nobody asks goes back to the queue at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.client.consumer import Consumer
from sparrow.client.settling import QUIET, RETURN
from sparrow.protocol.native.messages import Lease as Ask
from sparrow.protocol.native.messages import LeaseDone

if TYPE_CHECKING:
    from sparrow.client.connection import Connection
    from sparrow.client.consumer import OnFailure
    from sparrow.client.lease import Lease
    from sparrow.client.options import QueueOptions
    from sparrow.protocol.native.messages import Head

_GRACE_S = 5.0
"""How long the answer may take beyond the wait."""


class Leaser(Consumer):
    """Loop thread only."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        options: QueueOptions,
        consumer_id: str,
        *,
        on_failure: OnFailure,
    ) -> None:
        super().__init__(connection, queue, options, consumer_id, on_failure=on_failure)
        self._turn = asyncio.Lock()
        self._ref = 0
        self._found: list[Lease] | None = None
        """What came for who asks; None: nobody does."""
        self._answer: asyncio.Future[None] | None = None
        """Done when the LEASE under way is answered or lost."""

    async def lease(self, max_records: int, wait_s: float, max_bytes: int) -> list[Lease]:
        """At most so many records, waiting at most `wait_s` for the first; [] is an answer. Without a link this waits as if nothing came.

        Raises:
            SparrowError: the consumer is over.
        """
        deadline = self.loop.time() + wait_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
            try:
                return await self._found_until(deadline, max_records, max_bytes)
            finally:
                self._turn.release()
        return []

    async def _found_until(self, deadline: float, max_records: int, max_bytes: int) -> list[Lease]:
        while True:
            if not self.is_open:
                async with asyncio.timeout_at(deadline):
                    await self.until_open()
            found = await self._answered_until(deadline, max_records, max_bytes)
            if found or self.loop.time() >= deadline:
                return found

    async def _answered_until(self, deadline: float, max_records: int, max_bytes: int) -> list[Lease]:
        """What one LEASE brought; [] also where its link was lost."""
        self._found = []
        try:
            if self._answer is None or self._answer.done():
                await self._ask(deadline, max_records, max_bytes)
                deadline += _GRACE_S
            if self._answer is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await asyncio.shield(self._answer)
            return self._trimmed(self._found, max_records)
        except BaseException:
            for lease in self._found:
                self._return(lease)
            raise
        finally:
            self._found = None

    async def _ask(self, deadline: float, max_records: int, max_bytes: int) -> None:
        link = self.link
        if link is None or not link.may_send(Ask, self.channel):
            await asyncio.sleep(0)  # the lost link is taken down first
            return
        wait_ms = max(0, round((deadline - self.loop.time()) * 1000))
        link.send(Ask(self._ref + 1, max_records, max_bytes, wait_ms), self.channel)
        self._ref += 1
        self._answer = self.loop.create_future()

    def _trimmed(self, found: list[Lease], max_records: int) -> list[Lease]:
        """What was asked for by another, who wanted more, is cut to what is wanted now."""
        room = max_records
        for lease in found:
            kept = []
            for first, last, count in lease.ranges:
                end = min(last, first + room - 1)
                if end < last:
                    self.submit(lease, lease.key(RETURN), end + 1, last, QUIET)
                if end >= first:
                    kept.append((first, end, count))
                    room -= end - first + 1
            lease.ranges = kept
        return [lease for lease in found if lease.ranges]

    def leased(self, lease: Lease) -> None:
        if self._found is None:
            self._return(lease)
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
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _return(self, lease: Lease) -> None:
        if self.failure is None:
            for first, last, _ in lease.ranges:
                self.submit(lease, lease.key(RETURN), first, last, QUIET)
