"""Jobs for threads: the verbs of `Job` and `JobBatch`, blocking.

Used by `sparrow.sync`, and by workers whose function is a plain one. What is said without waiting crosses to the loop in one go with everything else that is said
before the loop looks.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import ConnectionLost, InvalidArgument, SparrowError
from sparrow.client.job import LeasedRecord, delay_ms_of, extension_ms_of, wire_text
from sparrow.client.job_batch import LeasedBatch, reported
from sparrow.client.settling import ACK, EXTEND, NACK, REJECT, RETURN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.client.lease import Lease, Owner
    from sparrow.client.settling import Key
    from sparrow.records.record import Record

T = TypeVar("T")


class Crossing:
    """How other threads reach the loop. Any thread but the loop's own."""

    def __init__(
        self,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`run` runs a coroutine over there and waits for it; `call_soon` has something called there."""
        self._run = run
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_called = False

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        result: T = self._run(doing)
        return result

    def post(self, callback: Callable[[], None]) -> None:
        """Have something called on the loop, in order, without waiting. Raises ConnectionLost: it is closed."""
        self._waiting.append(callback)
        if not self._is_called:
            self._is_called = True
            try:
                self._call_soon(self._empty)
            except RuntimeError:
                raise ConnectionLost("the event loop of the client is closed") from None

    def _empty(self) -> None:
        self._is_called = False  # before looking: what comes from here on calls once more
        with suppress(IndexError):
            while True:
                self._waiting.popleft()()


def crossing_to(loop: asyncio.AbstractEventLoop) -> Crossing:
    """A crossing to the loop that runs in this thread."""
    loop_thread = threading.get_ident()

    def run(doing: Coroutine[Any, Any, Any]) -> Any:
        if threading.get_ident() == loop_thread:
            doing.close()
            raise InvalidArgument(
                "a blocking verb on the event loop would wait for itself; make the function async"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(doing, loop)
        except RuntimeError:
            doing.close()
            raise ConnectionLost("the event loop of the client is closed") from None
        return future.result()

    return Crossing(run, loop.call_soon_threadsafe)


class BlockingJob(LeasedRecord):
    """A job for threads: as `Job`, but that the verbs wait until the broker has them on stable storage. Any thread, one at a time."""

    __slots__ = ("_crossing",)

    def __init__(self, crossing: Crossing, lease: Lease, record: Record, delivery_count: int) -> None:
        super().__init__(lease, record, delivery_count)
        self._crossing = crossing

    def ack(self) -> None:
        """Done with it: it is never delivered again."""
        self._crossing.run(self._settled(self.lease.ack_key))

    def nack(self, delay_s: float | None = None, *, error: str = "") -> None:
        """It failed: deliver it again, after `delay_s` seconds (None: the queue's backoff)."""
        self._crossing.run(self._settled(self.nack_key(delay_s, error)))

    def reject(self, reason: str = "") -> None:
        """It is of no use: move it to the dead letters now."""
        self._crossing.run(self._settled(self.reject_key(reason)))

    def release(self) -> None:
        """It was not worked at: ready again at once, and this delivery does not count."""
        self._crossing.run(self._settled(self.lease.key(RETURN)))

    def extend(self, seconds: float | None = None) -> None:
        """The lease ends so many seconds from now (None: the queue's lease time)."""
        self._crossing.run(self._extended(seconds))

    def ack_nowait(self) -> None:
        self._post(self.lease.ack_key)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self._post(self.nack_key(delay_s, error))

    def reject_nowait(self, reason: str = "") -> None:
        self._post(self.reject_key(reason))

    def release_nowait(self) -> None:
        self._post(self.lease.key(RETURN))

    def extend_nowait(self, seconds: float | None = None) -> None:
        self.check()
        extension_ms_of(seconds)
        self._crossing.post(lambda: self._extend_later(seconds))

    async def _settled(self, key: Key) -> None:
        future = self.lease.owner.loop.create_future()
        self.settle(key, future)
        await future

    async def _extended(self, seconds: float | None) -> None:
        future = self.lease.owner.loop.create_future()
        self.lengthen(seconds, future)
        await future

    def _post(self, key: Key) -> None:
        self.check()
        self._crossing.post(lambda: self._settle_later(key))

    def _settle_later(self, key: Key) -> None:
        try:
            self.settle(key, None)
        except SparrowError as error:
            self.lease.owner.report((key, self.offset, self.offset, None), error)

    def _extend_later(self, seconds: float | None) -> None:
        try:
            self.lengthen(seconds, None)
        except SparrowError as error:
            self.lease.owner.report((self.lease.key(EXTEND), self.offset, self.offset, None), error)


class BlockingJobBatch(LeasedBatch[BlockingJob]):
    """A batch for threads: as `JobBatch`, but that the verbs wait. One thread at a time."""

    def __init__(self, crossing: Crossing, owner: Owner, leases: list[Lease]) -> None:
        super().__init__(
            owner, leases, lambda lease, record, count: BlockingJob(crossing, lease, record, count)
        )
        self._crossing = crossing

    def ack(self) -> None:
        """Done with all of it."""
        self._crossing.run(self._settled(ACK))

    def nack(self, delay_s: float | None = None, *, error: str = "") -> None:
        """It failed: deliver it again."""
        self._crossing.run(self._settled(NACK, delay_ms_of(delay_s), error))

    def reject(self, reason: str = "") -> None:
        """Move it to the dead letters."""
        self._crossing.run(self._settled(REJECT, -1, reason))

    def release(self) -> None:
        """It was not worked at: ready again at once, and this delivery does not count."""
        self._crossing.run(self._settled(RETURN))

    def extend(self, seconds: float | None = None) -> None:
        """The leases end so many seconds from now (None: the queue's lease time)."""
        self._crossing.run(self._extended(seconds))

    def ack_nowait(self) -> None:
        self._post(ACK)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self._post(NACK, delay_ms_of(delay_s), error)

    def _post(self, verb: int, delay_ms: int = -1, text: str = "") -> None:
        self.check()
        self._crossing.post(lambda: self._settle_later(verb, delay_ms, wire_text(text)))

    def _settle_later(self, verb: int, delay_ms: int, text: str) -> None:
        try:
            self.settle(verb, delay_ms, text, reported)
        except SparrowError as error:
            self.report(verb, error)

    async def _settled(self, verb: int, delay_ms: int = -1, text: str = "") -> None:
        future, outcome = self.awaited()
        self.settle(verb, delay_ms, wire_text(text), outcome)
        await future

    async def _extended(self, seconds: float | None) -> None:
        future, outcome = self.awaited()
        self.lengthen(seconds, outcome)
        await future

    def _decoded(self) -> list[list[Record]]:
        # On the loop: offsets without a record are acknowledged when they are found.
        if len(self._records) < len(self._leases):
            self._crossing.run(self._decode())
        return self._records

    async def _decode(self) -> None:
        super()._decoded()
