"""A log store that appends late and sometimes refuses: the public fake of a store behind a network.

    store = LateLogStore(inner, seed=7, failing=0.1)
    ...                 # run a partition, or a broker, on it
    store.hold()        # no append is completed any more ...
    store.release(3)    # ... but the next three of each log, and again all after `release()`

It wraps any other store, which keeps the batches. An append waits for a few iterations of the event
loop, its bytes copied; then the inner log takes it, or the append and all behind it fail with
`DiskFull` or `Overloaded`, and the inner log never sees them. So it keeps the rules of the seam
(`store.py`).

Reads and opening can be slow as well: `cold` makes `read_nowait` say that it would block, and
`on_read` and `on_open` are called where a real store would wait for its network.

The same seed and the same calls give the same faults. Loop thread only, except `open`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import DiskFull, Overloaded, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import Appended, Chunk, LogConfig, LogId, LogStore, PartitionLog

Batch = tuple["BatchHeader", memoryview]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A pending append. `failure` is decided at the call, so that a seed decides all."""

    batches: list[Batch]
    leader_epoch: int
    promised: asyncio.Future[Appended]
    failure: SparrowError | None


class LateLog:
    """A `PartitionLog` whose appends are pending for a while. Created by `LateLogStore.open`.

    Everything but appends, reads and the end of the log is the inner log's.
    """

    def __init__(self, store: LateLogStore, inner: PartitionLog) -> None:
        self.inner = inner
        self._store = store
        self._pending: deque[_Pending] = deque()
        self._is_closed = False

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # an object that is being copied has none yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def pending(self) -> int:
        """Number of pending appends."""
        return len(self._pending)

    def append(self, batches: Sequence[Batch], *, leader_epoch: int = 0) -> asyncio.Future[Appended]:
        """Append as `PartitionLog.append`. The future is never done at once."""
        if self._is_closed:
            raise StorageFailed(f"the log {self.inner.id} is closed; open it again")
        copies = [(header, memoryview(bytes(data))) for header, data in batches]
        promised: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._pending.append(
            _Pending(copies, leader_epoch, promised, self._store.draw_failure(self.inner.id))
        )
        self._store.complete_later(self)
        return promised

    def complete(self, count: int = 1) -> None:
        """Complete the next `count` pending appends; at the first that is to fail, fail it and all
        behind it.
        """
        while self._pending and count > 0:
            count -= 1
            each = self._pending[0]
            try:
                if each.failure is not None:
                    raise each.failure
                appended = self.inner.append(each.batches, leader_epoch=each.leader_epoch).result()
            except (DiskFull, Overloaded, StorageFailed) as error:
                self.fail(error)
                return
            self._pending.popleft()
            each.promised.set_result(appended)

    def fail(self, error: SparrowError) -> None:
        """Fail everything that is pending."""
        while self._pending:
            self._pending.popleft().promised.set_exception(error)

    def close(self) -> None:
        """Complete what is pending, as far as it does not fail, and take no more."""
        self._is_closed = True
        self.complete(len(self._pending))

    def abandon(self) -> None:
        """Fail what is pending: the log is deleted."""
        self._is_closed = True
        self.fail(StorageFailed(f"the log {self.inner.id} is closed; open it again"))

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        """See `PartitionLog.read_nowait`."""
        is_inside = self.inner.start_offset <= offset < self.inner.end_offset
        if is_inside and self._store.draw_cold():
            return None
        return self.inner.read_nowait(offset, max_bytes)

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        """See `PartitionLog.read`."""
        await self._store.on_read(self.inner.id)
        return await self.inner.read(offset, max_bytes)


class LateLogStore:
    """A `LogStore` over another one.

    Attributes:
        failing: probability that an append fails when its time comes.
        cold: probability that a read has to wait.
        on_read: awaited before each read that waits.
        on_open: called with each log that is opened, in the thread that opens it.
    """

    def __init__(
        self,
        inner: LogStore,
        *,
        seed: int = 0,
        max_iterations: int = 4,
        failing: float = 0.0,
        cold: float = 0.0,
    ) -> None:
        self.inner = inner
        self.failing = failing
        self.cold = cold
        self.on_read: Callable[[LogId], Awaitable[None]] = _no_wait
        self.on_open: Callable[[LogId], None] = lambda _: None
        self._max_iterations = max_iterations
        self._random = random.Random(seed)  # noqa: S311 - faults must be repeatable
        self._is_on_hold = False
        self._logs: list[LateLog] = []

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # an object that is being copied has none yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:
        """See `LogStore.open`."""
        self.on_open(log_id)
        log = LateLog(self, self.inner.open(log_id, config))
        self._logs.append(log)
        return log

    def open_nowait(self, log_id: LogId, config: LogConfig) -> PartitionLog | None:  # noqa: ARG002
        """Return None, see `LogStore.open_nowait`: every log needs `open`."""
        return None

    async def delete(self, log: PartitionLog) -> None:
        """Delete as `LogStore.delete`. Pending appends fail."""
        assert isinstance(log, LateLog)
        log.abandon()
        self._logs.remove(log)
        await self.inner.delete(log.inner)

    async def close(self) -> None:
        """Close as `LogStore.close`. Pending appends are completed, or fail as they would have."""
        for log in self._logs:
            log.close()
        await self.inner.close()

    def hold(self) -> None:
        """Complete no append until `release`."""
        self._is_on_hold = True

    def release(self, count: int | None = None) -> None:
        """Complete the next `count` appends of each log; None: all, and later ones after a few
        iterations of the loop.
        """
        self._is_on_hold = count is not None
        for log in self._logs:
            log.complete(log.pending if count is None else count)

    # ── for its logs ──

    def draw_failure(self, log_id: LogId) -> SparrowError | None:
        """Return the error with which the next append is to fail; None: it succeeds."""
        if self._random.random() >= self.failing:
            return None
        if self._random.random() < 0.5:
            return DiskFull(f"no space is left for {log_id}")
        return Overloaded(f"the store of {log_id} does not answer; try again")

    def draw_cold(self) -> bool:
        """Return True if a read has to wait."""
        return self.cold > 0 and self._random.random() < self.cold

    def complete_later(self, log: LateLog) -> None:
        """Complete an append of `log` after a few iterations of the loop."""
        self._wait(log, self._random.randint(1, self._max_iterations))

    def _wait(self, log: LateLog, iterations: int) -> None:
        loop = asyncio.get_running_loop()
        if iterations:
            loop.call_soon(self._wait, log, iterations - 1)
        elif not self._is_on_hold:
            log.complete()


async def _no_wait(_: LogId) -> None:
    await asyncio.sleep(0)
