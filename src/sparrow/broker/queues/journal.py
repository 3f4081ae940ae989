"""Keeps what changed of a queue: one write for everybody who waits.

Changes gather while the store is busy with the last write, and go out together with the next one. Nothing is delayed for that: with
nothing under way a write begins after the next turn of the loop. Behind a write that has just ended the next one begins a few turns
later: whoever was told of the last leases again in these, and would else wait for a write that has only the acknowledgements before it.
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
"""How long after a failed write the next is tried, when nobody asks for one earlier."""
TURNS_BETWEEN = 2
"""Of the loop, from the end of a write to the next: what was leased is handed out and new records are looked at in the first, what is there
is leased in the second."""


class Journal:
    """Of one queue. Loop thread only.

    Args:
        collect: takes what must be written now; the changes count as written from then on.
        written: called after each write, whether it went well or not, behind those who waited for it.
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
        """Facts of others, and what could not be written last time."""
        self._writing: asyncio.Task[None] | None = None
        self._is_due = False
        self._is_closed = False
        self.is_writing = False
        """Whether the store is busy with a write: what changes now is written with the next one."""

    def add(self, writes: Sequence[Write]) -> None:
        """Facts of others that are to be written together with the next changes."""
        self._pending.update(((write.kind, write.key), write) for write in writes)

    def changed(self) -> None:
        """There is something to keep, which nobody waits for."""
        self._is_due = not self._is_closed
        if self._writing is None and self._is_due:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def flushed(self) -> asyncio.Future[None]:
        """Done when everything that has changed by now is on stable storage.

        It fails with DiskFull, StorageFailed or Overloaded when that could not be; the changes hold in memory, and are written with the next.
        With UnknownQueue, when nothing is kept any more.
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
        while self._writing is not None:  # whoever asks while it is waited for begins another
            await asyncio.wait([self._writing])
        self._is_closed = True
        self.add(self._collect())
        if self._pending:
            await self._meta.write(list(self._pending.values()))

    async def drop(self) -> None:
        """Write nothing any more: what it is about is being deleted."""
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
        turns = 1
        try:
            while self._is_due:
                # An acknowledgement may let others have records: what they lease now goes into the same write.
                for _ in range(turns):
                    await asyncio.sleep(0)
                turns = TURNS_BETWEEN
                self._is_due = False
                waiting, self._waiting = self._waiting, []
                self.is_writing = True
                error = await self._write_once()
                self.is_writing = False
                for future in waiting:
                    if future.done():  # cancelled: whoever waited is gone
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(error)
                        future.exception()  # nobody may look any more
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
        future.exception()  # nobody may look
