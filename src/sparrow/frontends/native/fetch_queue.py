"""FETCH: reading by offset without a channel. The broker remembers nothing between fetches, so a
client can continue on any connection.

Fetches of one connection are answered one after the other, in order. The next one is read only when
the connection can be written to, so a connection needs memory for one response besides the unsent
bytes, however many fetches wait. Waiting fetches count as waiting requests. The data of a partition
is sent as it was read, without a copy.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import (
    FrameTooLarge,
    InvalidArgument,
    OffsetOutOfRange,
    RecordTooLarge,
    SparrowError,
)
from sparrow.broker.access.authz import Operation
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.frontends.isolation import READ_COMMITTED, check_isolation
from sparrow.frontends.native.failures import failure_of, translate
from sparrow.frontends.native.work_queue import WorkQueue
from sparrow.protocol.native.messages import Fetch, Fetched

if TYPE_CHECKING:
    from sparrow.broker.reading import fetch
    from sparrow.frontends.native.context import SessionContext
    from sparrow.frontends.transport.send_budget import Reservation

MAX_WAIT_MS: Final = 5000
"""Limit of the wait: later fetches of the connection wait behind this one."""
MEASURED_AS: Final = "FETCH"


class FetchQueue:
    """The fetches of one connection. Loop thread only."""

    __slots__ = ("_may_wait", "_queue", "_session", "_stop")

    def __init__(self, session: SessionContext) -> None:
        self._session = session
        self._queue = WorkQueue(1, session.may_work, session.work_changed)
        self._stop: asyncio.Future[None] | None = None
        self._may_wait = not session.is_draining

    @property
    def is_idle(self) -> bool:
        """True if no response is pending."""
        return self._queue.is_idle

    def add(self, head: Fetch) -> None:
        """Queue a fetch."""
        self._queue.add(partial(self._respond, head))

    def resume(self) -> None:
        """Continue: the connection can be written to again."""
        self._queue.resume()

    def interrupt(self) -> None:
        """Wait no longer for records: one side said goodbye. All fetches are answered at once from
        now on.
        """
        self._may_wait = False
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    def cancel(self) -> None:
        """Drop all fetches: the connection is lost."""
        self._queue.cancel()

    async def _respond(self, head: Fetch) -> None:
        session, measures = self._session, self._session.measures
        await session.throttle.wait_to_deliver()
        started = perf_counter()
        try:
            with session.reserve() as reservation:
                found = await self._read(head, reservation)
                size_bytes = found.size_bytes
                self._send(head, found)
                session.throttle.delivered(size_bytes)
                reservation.sent()
        except Exception as error:  # noqa: BLE001 - one fetch fails, nothing else
            measures.failed(MEASURED_AS)
            self._fail(head, translate(error, "FETCH", session.logger))
        measures.observe(MEASURED_AS, perf_counter() - started)
        session.flush()

    async def _read(self, head: Fetch, memory: Reservation) -> fetch.Fetched:
        """Read from the partition.

        Raises:
            SparrowError: the partition cannot be read.
        """
        _check(head)
        session = self._session
        max_bytes = session.throttle.max_delivery_bytes(min(head.max_bytes, session.max_fetch_bytes))
        request = FetchRequest(head.topic, head.partition, head.offset, max_bytes, _id_of(head))
        (found,) = await session.broker.records.fetch(
            [request],
            max_bytes=max_bytes,
            max_wait_ms=min(head.wait_ms, MAX_WAIT_MS) if self._may_wait else 0,
            committed=head.isolation == READ_COMMITTED,
            stop=self._waiting() if head.wait_ms else None,
            memory=memory,
            principal=session.principal,
        )
        if found.error is not None:
            raise found.error
        return found

    def _waiting(self) -> asyncio.Future[None]:
        self._stop = asyncio.get_running_loop().create_future()
        return self._stop

    def _send(self, head: Fetch, found: fetch.Fetched) -> None:
        chunk = found.chunk
        if self._session.is_lost:
            return
        response = Fetched(
            head.ref,
            None,
            head.offset if chunk is None else max(head.offset, chunk.next_offset),
            found.log_start_offset,
            found.high_watermark,
            found.last_stable_offset,
            [(each.producer_id, each.first_offset) for each in found.aborted],
        )
        try:
            self._session.send(response, batches=b"" if chunk is None else chunk.data)
        except FrameTooLarge:
            raise RecordTooLarge(
                f"A batch of {found.size_bytes} bytes at offset {head.offset} of "
                f"{head.topic!r}-{head.partition} exceeds the frame "
                "limit of this listener; raise the broker's max_frame_bytes, or start after this batch."
            ) from None

    def _fail(self, head: Fetch, error: SparrowError) -> None:
        if self._session.is_lost:
            return
        start, end, stable = self._bounds(head) if isinstance(error, OffsetOutOfRange) else (-1, -1, -1)
        self._session.send(Fetched(head.ref, failure_of(error), -1, start, end, stable), batches=b"")

    def _bounds(self, head: Fetch) -> tuple[int, int, int]:
        """Return start, end and last stable offset for a client whose offset was outside the
        log.
        """
        with suppress(SparrowError):  # the topic was deleted meanwhile
            partition = self._session.broker.topics.partition(
                head.topic, head.partition, operation=Operation.READ, principal=self._session.principal
            )
            return partition.start_offset, partition.visible_end, partition.last_stable_offset
        return -1, -1, -1


def _check(head: Fetch) -> None:
    check_isolation(head.isolation)
    if head.offset < 0 or head.max_bytes < 1 or head.wait_ms < 0:
        raise InvalidArgument(
            f"FETCH with offset {head.offset}, max_bytes {head.max_bytes}, wait_ms {head.wait_ms}; "
            "the second must be positive, the"
            " others not negative."
        )


def _id_of(head: Fetch) -> uuid.UUID | None:
    if not head.topic_id:
        return None
    try:
        return uuid.UUID(head.topic_id)
    except ValueError:
        raise InvalidArgument(
            f"FETCH with topic_id {head.topic_id[:80]!r}, which is no UUID; leave it empty, or "
            "take the id from topic.describe."
        ) from None
