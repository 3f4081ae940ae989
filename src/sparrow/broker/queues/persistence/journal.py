"""Persists the changes of a queue: one write for all callers that wait.

Changes are collected while the store is busy with the last write, and go out together with the next
one. Nothing is delayed for that: if no write is running, one begins in the next iteration of the
event loop. After a write the next one begins a few iterations later: consumers that got the
responses to the last write lease again in these, and would else wait for a write that has only the
acknowledgements before it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sparrow.base.errors import InternalError, SparrowError, UnknownQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.meta.store import MetaStore, Write

_LOG = logging.getLogger(__name__)
RETRY_S = 1.0
"""Delay after a failed write until the next, if no caller asks for one earlier."""
ITERATIONS_BETWEEN = 2
"""Iterations of the event loop from the end of a write to the next: in the first, leases are handed
out and new records are scanned; in the second, these are leased.
"""


class Journal:
    """Writer of one queue's changes. Loop thread only.

    Args:
        collect: returns what must be written now; the changes count as written from then on.
        written: called after each write, successful or not, after the callers that waited for it.
    """

    def __init__(
        self,
        meta: MetaStore,
        collect: Callable[[], Sequence[Write]],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._meta = meta
        self._collect = collect
        self._written = written
        self._waiting: list[asyncio.Future[None]] = []
        self._pending: dict[tuple[str, str], Write] = {}
        """Entries of other parts, and what could not be written last time."""
        self._writing: asyncio.Task[None] | None = None
        self._is_due = False
        self._is_closed = False
        self.is_writing = False
        """True while a write is running: later changes go into the next one."""

    def add(self, writes: Sequence[Write]) -> None:
        """Write entries of other parts together with the next changes."""
        self._pending.update(((write.kind, write.key), write) for write in writes)

    def changed(self) -> None:
        """Write a change that no caller waits for."""
        self._is_due = not self._is_closed
        if self._writing is None and self._is_due:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def flushed(self) -> asyncio.Future[None]:
        """Return a future that is done when everything that has changed by now is on stable
        storage.

        It fails with DiskFull, StorageFailed or Overloaded if the write failed; the changes stay in
        memory, and are written with the next. It fails with UnknownQueue after `drop`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            _refuse(future)
            return future
        self._waiting.append(future)
        self.changed()
        return future

    async def close(self) -> None:
        """Write what is left.

        Raises:
            DiskFull, StorageFailed: it could not be written.
        """
        while self._writing is not None:  # a caller of `flushed` meanwhile begins another
            await asyncio.wait([self._writing])
        self._is_closed = True
        self.add(self._collect())
        if self._pending:
            await self._meta.write(list(self._pending.values()))

    async def drop(self) -> None:
        """Write nothing any more: the queue is being deleted."""
        self._is_closed = True
        self._is_due = False
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._collect()
        self._pending.clear()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            _refuse(future)

    async def _write(self) -> None:
        iterations = 1
        try:
            while self._is_due:
                # An acknowledgement may let other consumers have records: what they lease now goes
                # into the same write.
                for _ in range(iterations):
                    await asyncio.sleep(0)
                iterations = ITERATIONS_BETWEEN
                self._is_due = False
                waiting, self._waiting = self._waiting, []
                self.is_writing = True
                error = await self._write_once()
                self.is_writing = False
                for future in waiting:
                    if future.done():  # cancelled: the caller is gone
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(error)
                        future.exception()  # the future may have no reader any more
                self._written()
                if error is not None:
                    asyncio.get_running_loop().call_later(RETRY_S, self._retry)
        finally:
            self._writing, self.is_writing = None, False

    def _retry(self) -> None:
        if not self._is_closed and self._pending:
            self.changed()

    async def _write_once(self) -> SparrowError | None:
        pending = self._pending
        try:
            self.add(self._collect())
            self._pending = {}
            if pending:
                await self._meta.write(list(pending.values()))
        except SparrowError as error:
            self._pending = pending | self._pending
            _LOG.warning("the state of a queue could not be kept: %s", error.text)
            return error
        except Exception:  # noqa: BLE001 - a bug must not leave consumers waiting for ever
            self._pending = pending | self._pending
            _LOG.exception("the state of a queue could not be kept")
            return InternalError("The state of the queue could not be kept; the broker's log has the reason.")
        return None


def _refuse(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(
            UnknownQueue("The queue was deleted, or is being changed; nothing of it is kept any more.")
        )
        future.exception()  # the future may have no reader
