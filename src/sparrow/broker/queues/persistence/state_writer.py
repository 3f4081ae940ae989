"""Persists the changes of a queue: one record of the journal for all callers that wait.

Changes are collected in the iteration of the event loop after the first one: what consumers lease
because of an acknowledgement or of a new record is in the same record of the journal. Two records
may be under way: the one that is being synced, and the one of the next sync, which so begins
without waiting for the loop. Changes that come meanwhile are collected when one of them is on
stable storage.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from sparrow.base.errors import InternalError, SparrowError, UnknownQueue
from sparrow.base.futures import end_future

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.broker.queues.persistence.state_store import StateStore
    from sparrow.meta.store import Write

_LOG = logging.getLogger(__name__)
RETRY_S: Final = 1.0
"""Delay after a failed write until the next, if no caller asks for one earlier."""
_UNDER_WAY: Final = 2
"""Records of the journal that are not on stable storage."""

_Result = TypeVar("_Result")
_Waiting = list[tuple["asyncio.Future[Any]", object]]
"""Futures, and their results."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A write that is not on stable storage."""

    waiting: _Waiting
    """Its callers."""
    entries: dict[tuple[str, str], Write]


class StateWriter:
    """Writer of one queue's changes. Loop thread only.

    Args:
        collect: returns what must be written now; the changes count as written from then on.
        written: called after each write, successful or not, after the callers that waited for it.
    """

    def __init__(
        self,
        store: StateStore,
        collect: Callable[[], Sequence[Write]],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._collect = collect
        self._written = written
        self._waiting: _Waiting = []
        self._pending: dict[tuple[str, str], Write] = {}
        """Entries of other parts."""
        self._failed: dict[tuple[str, str], Write] = {}
        """Entries that could not be written; those of `_pending` are newer."""
        self._under_way: list[_UnderWay] = []
        """Writes in their order; they may end in another one."""
        self._ended_one: asyncio.Future[None] | None = None
        """Done when a write ends, for `close` and `drop`."""
        self._is_due = False
        """True if a write is scheduled, or comes behind one that is under way."""
        self._is_scheduled = False
        self._is_closed = False

    @property
    def is_writing(self) -> bool:
        """True while later changes have to wait for a write."""
        return len(self._under_way) >= _UNDER_WAY

    def add(self, writes: Sequence[Write]) -> None:
        """Write entries of other parts together with the next changes."""
        for write in writes:
            self._pending[write.kind, write.key] = write

    def changed(self) -> None:
        """Write a change that no caller waits for."""
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._schedule()

    @overload
    def flushed(self) -> asyncio.Future[None]: ...

    @overload
    def flushed(self, result: _Result) -> asyncio.Future[_Result]: ...

    def flushed(self, result: object = None) -> asyncio.Future[Any]:
        """Return a future that has the result when everything that has changed by now is on stable
        storage.

        It fails with DiskFull, StorageFailed or Overloaded if the write failed; the changes stay in
        memory, and are written with the next. It fails with UnknownQueue after `drop`.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            _refuse(future)
            return future
        self._waiting.append((future, result))
        if not self._is_due:
            self._is_due = True
            self._schedule()
        return future

    async def close(self) -> None:
        """Write what is left.

        Raises:
            DiskFull, StorageFailed: it could not be written.
        """
        while self._under_way or self._is_scheduled:
            await self._settled()
        self._is_closed = True
        self.add(self._collect())
        left = self._failed | self._pending
        if left:
            await self._store.append(list(left.values()))

    async def drop(self) -> None:
        """Write nothing any more: the queue is being deleted."""
        self._is_closed = True
        self._is_due = False
        while self._under_way:
            await self._settled()
        self._collect()
        self._pending.clear()
        self._failed.clear()
        waiting, self._waiting = self._waiting, []
        for future, _ in waiting:
            _refuse(future)

    async def _settled(self) -> None:
        if self._under_way:
            if self._ended_one is None or self._ended_one.done():
                self._ended_one = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._ended_one])
        await asyncio.sleep(0)

    def _schedule(self) -> None:
        if not self._is_scheduled and len(self._under_way) < _UNDER_WAY:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._is_scheduled = False
        if self._is_closed or not self._is_due:
            return
        self._is_due = False
        waiting, self._waiting = self._waiting, []
        try:
            self.add(self._collect())
            entries = self._failed | self._pending
            if entries or not self._under_way:
                write = _UnderWay(waiting, entries)
                if entries:
                    self._store.append_then(list(entries.values()), partial(self._ended, write))
                else:
                    asyncio.get_running_loop().call_soon(self._ended, write, None)
                self._failed, self._pending = {}, {}
                self._under_way.append(write)
            else:  # what changed is under way already
                self._under_way[-1].waiting.extend(waiting)
        except SparrowError as error:
            self._fail(waiting, error)
        except Exception:  # noqa: BLE001 - a bug must not leave consumers waiting for ever
            _LOG.exception("the state of a queue could not be kept")
            self._fail(
                waiting,
                InternalError("The state of the queue could not be kept; the broker's log has the reason."),
            )

    def _ended(self, write: _UnderWay, error: SparrowError | None) -> None:
        number = self._under_way.index(write)
        # An older write that fails must not be tried again over what this one has.
        for older in self._under_way[:number]:
            older.entries = {key: each for key, each in older.entries.items() if key not in write.entries}
        del self._under_way[number]
        if error is None:
            for future, result in write.waiting:
                if not future.done():  # else the caller is gone
                    future.set_result(result)
        else:
            newer = [each.entries for each in self._under_way[number:]]
            for key, entry in write.entries.items():
                if not any(key in entries for entries in newer):
                    self._failed[key] = entry
            self._fail(write.waiting, error)
        if self._ended_one is not None:
            end_future(self._ended_one, None)
        self._written()
        if self._is_due:
            self._schedule()

    def _fail(self, waiting: _Waiting, error: SparrowError) -> None:
        _LOG.warning("the state of a queue could not be kept: %s", error.text)
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # the future may have no reader any more
        asyncio.get_running_loop().call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        if not self._is_closed and (self._failed or self._pending):
            self.changed()


def _refuse(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(
            UnknownQueue("The queue was deleted, or is being changed; nothing of it is kept any more.")
        )
        future.exception()  # the future may have no reader
