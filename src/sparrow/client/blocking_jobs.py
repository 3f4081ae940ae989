"""Jobs for threads: `Job` and `JobBatch` with blocking methods.

Used by `sparrow.sync`, and by workers whose function is a plain one. Settlements made without
waiting cross to the loop together, up to the moment at which the loop takes them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import ConnectionLost, InvalidArgument, SparrowError, UsedAfterFork
from sparrow.base.forks import watch
from sparrow.client.job import LeasedRecord, delay_ms_of, extension_ms_of, wire_text
from sparrow.client.job_batch import LeasedBatch, reported
from sparrow.client.settlements import ACK, EXTEND, NACK, REJECT, RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.lease import Lease, LeaseOwner
    from sparrow.client.settlements import SettlementKey
    from sparrow.records.record import Record

T = TypeVar("T")


class LoopBridge:
    """The way of other threads to the loop. Any thread but the loop's own."""

    def __init__(
        self,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """Create a bridge. `run` runs a coroutine on the loop and waits for it; `call_soon`
        schedules a callback there.
        """
        self._run = run
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_called = False
        watch(self)

    def forked(self, parent: int) -> None:  # noqa: ARG002 - the protocol's
        """Drop what waits in a child process; the next call raises the reason."""
        self._waiting = deque()
        self._is_called = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        result: T = self._run(coroutine)
        return result

    def post(self, callback: Callable[[], None]) -> None:
        """Schedule a callback on the loop, in order, without waiting. Raises ConnectionLost if the
        loop is closed.
        """
        self._waiting.append(callback)
        if not self._is_called:
            self._is_called = True
            try:
                self._call_soon(self._empty)
            except UsedAfterFork:
                self._is_called = False
                raise
            except RuntimeError:
                raise ConnectionLost("the event loop of the client is closed") from None

    def _empty(self) -> None:
        # first, so that a callback posted from here on schedules another run
        self._is_called = False
        with suppress(IndexError):
            while True:
                self._waiting.popleft()()


def bridge_to(loop: asyncio.AbstractEventLoop, check: Callable[[], None] = lambda: None) -> LoopBridge:
    """Return a bridge to the loop that runs in this thread. `check` is called first, and raises
    where nothing may cross.
    """
    loop_thread = threading.get_ident()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            check()
        except BaseException:
            coroutine.close()
            raise
        if threading.get_ident() == loop_thread:
            coroutine.close()
            raise InvalidArgument(
                "a blocking verb on the event loop would wait for itself; make the function async"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:
            coroutine.close()
            raise ConnectionLost("the event loop of the client is closed") from None
        return future.result()

    def call_soon(callback: Callable[[], None]) -> None:
        check()
        loop.call_soon_threadsafe(callback)

    return LoopBridge(run, call_soon)


class BlockingJob(LeasedRecord):
    """A job for threads: as `Job`, but its methods wait until the broker has the settlement on
    stable storage. Any thread, one at a time.
    """

    __slots__ = ("_bridge",)

    def __init__(self, bridge: LoopBridge, lease: Lease, record: Record, delivery_count: int) -> None:
        super().__init__(lease, record, delivery_count)
        self._bridge = bridge

    def ack(self) -> None:
        """Acknowledge the job: it is never delivered again."""
        self._bridge.run(self._settled(self.lease.ack_key))

    def nack(self, delay_s: float | None = None, *, error: str = "") -> None:
        """Report a failure: the job is delivered again after `delay_s` seconds (None: the queue's
        backoff), or becomes a dead letter at the delivery limit.
        """
        self._bridge.run(self._settled(self.nack_key(delay_s, error)))

    def reject(self, reason: str = "") -> None:
        """Reject the job: it becomes a dead letter now."""
        self._bridge.run(self._settled(self.reject_key(reason)))

    def release(self) -> None:
        """Release the job unused: it is ready again at once, and this delivery does not count."""
        self._bridge.run(self._settled(self.lease.key(RELEASE)))

    def extend(self, seconds: float | None = None) -> None:
        """Let the lease end `seconds` from now (None: the queue's lease time)."""
        self._bridge.run(self._extended(seconds))

    def reply(
        self,
        value: bytes | None,
        *,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Reply to the request that the job is (`Client.request`). The job is settled as any
        other.
        """
        return self._bridge.run(self._publish_reply(value, headers))

    def progress(self, fraction: float, text: str = "") -> None:
        """Report the progress of a task's job; jobs of this class have none. Raises as the async
        `progress`.
        """
        raise InvalidArgument(
            f"a progress of {fraction} {text!r} was reported for a job that no task runs; it is for tasks "
            "with results=True"
        )

    def ack_nowait(self) -> None:
        self._post(self.lease.ack_key)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self._post(self.nack_key(delay_s, error))

    def reject_nowait(self, reason: str = "") -> None:
        self._post(self.reject_key(reason))

    def release_nowait(self) -> None:
        self._post(self.lease.key(RELEASE))

    def extend_nowait(self, seconds: float | None = None) -> None:
        self.check()
        extension_ms_of(seconds)
        self._bridge.post(lambda: self._extend_later(seconds))

    async def _settled(self, key: SettlementKey) -> None:
        future = self.lease.owner.loop.create_future()
        self.settle(key, future)
        await future

    async def _extended(self, seconds: float | None) -> None:
        future = self.lease.owner.loop.create_future()
        self.lengthen(seconds, future)
        await future

    def _post(self, key: SettlementKey) -> None:
        self.check()
        self._bridge.post(lambda: self._settle_later(key))

    def _settle_later(self, key: SettlementKey) -> None:
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
    """A batch for threads: as `JobBatch`, but its methods wait. One thread at a time."""

    def __init__(self, bridge: LoopBridge, owner: LeaseOwner, leases: list[Lease]) -> None:
        super().__init__(
            owner, leases, lambda lease, record, count: BlockingJob(bridge, lease, record, count)
        )
        self._bridge = bridge

    def ack(self) -> None:
        """Acknowledge all jobs."""
        self._bridge.run(self._settled(ACK))

    def nack(self, delay_s: float | None = None, *, error: str = "") -> None:
        """Report a failure of all jobs: they are delivered again."""
        self._bridge.run(self._settled(NACK, delay_ms_of(delay_s), error))

    def reject(self, reason: str = "") -> None:
        """Reject all jobs: they become dead letters."""
        self._bridge.run(self._settled(REJECT, -1, reason))

    def release(self) -> None:
        """Release all jobs unused: they are ready again at once, and this delivery does not
        count.
        """
        self._bridge.run(self._settled(RELEASE))

    def extend(self, seconds: float | None = None) -> None:
        """Let the leases end `seconds` from now (None: the queue's lease time)."""
        self._bridge.run(self._extended(seconds))

    def ack_nowait(self) -> None:
        self._post(ACK)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self._post(NACK, delay_ms_of(delay_s), error)

    def _post(self, verb: int, delay_ms: int = -1, text: str = "") -> None:
        self.check()
        self._bridge.post(lambda: self._settle_later(verb, delay_ms, wire_text(text)))

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
        # On the loop, because offsets without a record are acknowledged when they are found.
        if len(self._records) < len(self._leases):
            self._bridge.run(self._decode())
        return self._records

    async def _decode(self) -> None:
        super()._decoded()
