"""The meta store on SQLite: one thread owns the database, the event loop never waits for the disk.

Calls on the loop put requests in a queue. The thread takes all waiting requests, applies all writes
in one transaction (group commit: one sync for all), then does the reads, then delivers all results
with one `call_soon_threadsafe`. The next group accumulates during the sync, so that no delay is
ever added for grouping.

A read sees every write that was requested before it. A cancelled caller stops waiting; its write
may happen nevertheless.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.base.errors import InternalError, Overloaded, SparrowError, StorageFailed
from sparrow.base.histogram import Histogram
from sparrow.meta.checks import check_write
from sparrow.meta.database import Database

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from sparrow.meta.files import Files
    from sparrow.meta.store import Entry, Write

log = logging.getLogger(__name__)


class _WriteRequest(Struct, eq=False):
    batch: tuple[Write, ...]
    future: asyncio.Future[None]


class _ReadRequest(Struct, eq=False):
    read: Callable[[], Any]
    future: asyncio.Future[Any]


_Request = _WriteRequest | _ReadRequest
_Result = tuple[_Request, Any, SparrowError | None]
"""(request, its result, its error)."""


class SqliteMetaStore:
    """A `MetaStore` in one SQLite file. Its methods belong to one event loop.

    Args:
        path: the database file (`meta.db` of the data directory); created when missing.
        max_bytes: maximum size of the file; None: no limit.
        wal_bytes: disk space kept for the write-ahead log.
        busy_timeout_ms: how long opening waits for another owner to release the file.
        max_waiting_bytes: writes above this sum of waiting values are refused with Overloaded.
        files: the file system; None: the operating system's.

    Raises what `Database` raises. Opening blocks for a few milliseconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        wal_bytes: int = 4 << 20,
        busy_timeout_ms: int = 1000,
        max_waiting_bytes: int = 256 << 20,
        files: Files | None = None,
    ) -> None:
        self._database = Database(
            str(path),
            max_bytes=max_bytes,
            wal_bytes=wal_bytes,
            busy_timeout_ms=busy_timeout_ms,
            files=files,
        )
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self.commit_times = Histogram()
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._closing: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._serve, name="sparrow-meta", daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        """Number of committed transactions since the store was opened; for metrics and tests."""
        return self._database.commits

    async def write(self, writes: Sequence[Write]) -> None:
        """Write as `MetaStore.write`. Also raises InvalidArgument (a name or value too large) and
        Overloaded.
        """
        batch = tuple(writes)
        size = sum(map(check_write, batch))
        if not batch:
            return
        if self._waiting_bytes + size > self._max_waiting_bytes:
            raise Overloaded("Too many changes wait for the meta store's disk; try again in a moment.")
        self._waiting_bytes += size
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._submit(_WriteRequest(batch, future))
            await future
        finally:
            self._waiting_bytes -= size

    async def get(self, kind: str, key: str) -> Entry | None:
        """Return an entry; see `MetaStore.get`."""
        entry: Entry | None = await self._read(lambda: self._database.get(kind, key))
        return entry

    async def scan(self, kind: str, prefix: str = "") -> list[Entry]:
        """Iterate over entries; see `MetaStore.scan`."""
        entries: list[Entry] = await self._read(lambda: self._database.scan(kind, prefix))
        return entries

    async def all(self) -> list[Entry]:
        """Return all entries, for what takes over the whole store."""
        entries: list[Entry] = await self._read(self._database.all)
        return entries

    async def close(self) -> None:
        """Close the store; see `MetaStore.close`. May be called again."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(asyncio.to_thread(self._finish))
        await asyncio.shield(self._closing)

    # ── on the loop ───────────────────────────────────────────────────────────────────────────────

    async def _read(self, read: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._submit(_ReadRequest(read, future))
        return await future

    def _submit(self, request: _Request) -> None:
        if self._closing is not None:
            raise StorageFailed(f"The meta store {self._database.path} is closed.")
        self._requests.put(request)

    def _finish(self) -> None:
        self._requests.put(None)
        self._thread.join()
        self._database.close()

    # ── on the store's thread ─────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        more = True
        while more:
            requests, more = self._take_waiting()
            if requests:
                _deliver(self._process(requests))
                self._database.checkpoint_when_due()

    def _take_waiting(self) -> tuple[list[_Request], bool]:
        """Return all waiting requests, at least one; and True if more may come."""
        taken: list[_Request] = []
        request = self._requests.get()
        while request is not None:
            taken.append(request)
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return taken, True
        return taken, False

    def _process(self, requests: list[_Request]) -> list[_Result]:
        writes = [request for request in requests if isinstance(request, _WriteRequest)]
        results: list[_Result] = []
        if writes:
            begun = perf_counter()
            outcomes = self._commit([request.batch for request in writes])
            self.commit_times.observe(perf_counter() - begun)
            results.extend((request, None, error) for request, error in zip(writes, outcomes, strict=True))
        results.extend(_read(request) for request in requests if isinstance(request, _ReadRequest))
        return results

    def _commit(self, batches: list[tuple[Write, ...]]) -> Sequence[SparrowError | None]:
        try:
            return self._database.commit(batches)
        except Exception:  # a bug must not leave callers waiting for ever
            log.exception("the meta store could not commit")
            return [InternalError("The meta store failed; the broker's log has the reason.")] * len(batches)


def _read(request: _ReadRequest) -> _Result:
    try:
        return request, request.read(), None
    except SparrowError as exc:
        return request, None, exc
    except Exception:  # see `_commit`
        log.exception("the meta store could not read")
        return request, None, InternalError("The meta store failed; the broker's log has the reason.")


def _deliver(results: list[_Result]) -> None:
    try:
        results[0][0].future.get_loop().call_soon_threadsafe(_settle, results)
    except RuntimeError:
        log.debug("the event loop ended before %d results of the meta store", len(results))


def _settle(results: list[_Result]) -> None:
    for request, result, error in results:
        future: asyncio.Future[Any] = request.future
        if future.done():
            continue  # the caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
