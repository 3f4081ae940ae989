"""Group commit: one sync serves all callers that wait for it.

A log that needs a sync is queued once, however many callers request it. A thread takes it, notes
the log's end *then*, syncs, and reports how far the log is durable; requests that came while the
sync ran are served by the next one, which the same thread starts at once. A few threads let several
logs sync at the same time; one log is synced by one thread at a time.

The event loop gets one wake-up for all rounds that ended since the last one. It is sent before the
thread does the slower work of the round (`after_sync`), so that a caller waits for the sync and one
wake-up only.

Logs with appends and without a requested sync are synced `interval_ms` after the first such append,
a few at a time, so that they do not delay requested syncs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol

from sparrow.base.errors import InternalError, SparrowError
from sparrow.base.histogram import Histogram

_log = logging.getLogger(__name__)
BACKGROUND_LOGS = 8
BACKGROUND_PAUSE_SECONDS = 0.002


class Syncable(Protocol):
    """A log, as the flusher sees it."""

    def sync(self) -> int:
        """Sync everything appended so far. Return the offset before which all is durable now. In a
        thread.

        Raises:
            SparrowError: the sync failed.
        """
        ...

    def synced(self, durable_offset: int, error: SparrowError | None) -> None:
        """Take the result of a round. On the loop."""
        ...

    def after_sync(self) -> None:
        """Do the work that follows a good round and that no caller waits for. In the round's
        thread; does not raise.
        """
        ...


class _Round:
    """The state of one log: a request while it is running asks for another round."""

    __slots__ = ("again", "running")

    def __init__(self) -> None:
        self.running = False
        self.again = False


class Flusher:
    """The threads and their queue. `request` and `note_dirty` are called on the loop."""

    def __init__(self, threads: int, interval_ms: int) -> None:
        self.times = Histogram()
        """Durations of the successful syncs, in seconds."""
        self._threads_wanted = threads
        self._interval = interval_ms / 1000
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Syncable | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._rounds: dict[Syncable, _Round] = {}
        self._done: deque[tuple[Syncable, int, SparrowError | None]] = deque()
        self._wake_sent = False
        self._dirty: dict[Syncable, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def has_threads(self) -> bool:
        """False if it syncs on the loop itself."""
        return self._threads_wanted > 0

    def request(self, log: Syncable) -> None:
        """Sync `log` as soon as a thread is free."""
        self._dirty.pop(log, None)
        with self._lock:
            state = self._rounds.setdefault(log, _Round())
            state.again = state.running
            if state.running:
                return
            state.running = True
        self._start()
        if self._threads_wanted:
            self._queue.put(log)
        else:
            asyncio.get_running_loop().call_soon(self._run_rounds, log)

    def note_dirty(self, log: Syncable) -> None:
        """Sync `log`, which has unsynced bytes, some time later."""
        if self._interval and log not in self._dirty:
            self._dirty[log] = None
            if self._timer is None:
                self._arm(self._interval)

    def forget(self, log: Syncable) -> None:
        """Remove a log that is closed or deleted."""
        self._dirty.pop(log, None)

    def close(self) -> None:
        """End the threads; running rounds are finished."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    # ── the event loop's side ──

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        while len(self._threads) < self._threads_wanted and not self._closed:
            thread = threading.Thread(target=self._serve, name="sparrow-flusher", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _arm(self, delay: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay, self._flush_some)

    def _flush_some(self) -> None:
        self._timer = None
        for log in list(self._dirty)[:BACKGROUND_LOGS]:
            self.request(log)
        if self._dirty:
            self._arm(BACKGROUND_PAUSE_SECONDS)

    def _deliver(self) -> None:
        """Deliver the results to the logs. Many short rounds may have ended while the loop was
        busy: the last good one of a log is enough.
        """
        self._wake_sent = False
        good: dict[Syncable, int] = {}
        while self._done:
            log, offset, error = self._done.popleft()
            if error is None:
                good[log] = max(offset, good.get(log, offset))
                continue
            if log in good:
                log.synced(good.pop(log), None)
            log.synced(offset, error)
        for log, offset in good.items():
            log.synced(offset, None)

    # ── the threads' side ──

    def _serve(self) -> None:
        while (log := self._queue.get()) is not None:
            self._run_rounds(log)

    def _run_rounds(self, log: Syncable) -> None:
        while True:
            begun = perf_counter()
            offset, error = _sync(log)
            seconds = perf_counter() - begun
            self._done.append((log, offset, error))
            self._wake()
            if error is None:
                _follow(log)
            with self._lock:
                if error is None:
                    self.times.observe(seconds)
                state = self._rounds[log]
                if not state.again:
                    del self._rounds[log]
                    return
                state.again = False

    def _wake(self) -> None:
        if not self._wake_sent and self._loop is not None:
            self._wake_sent = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has ended, and with it all callers
                self._wake_sent = False


def _follow(log: Syncable) -> None:
    try:
        log.after_sync()
    except Exception:  # noqa: BLE001 - a bug with one log must not end the thread, on which others wait
        _log.exception("what follows a sync failed")


def _sync(log: Syncable) -> tuple[int, SparrowError | None]:
    try:
        return log.sync(), None
    except SparrowError as error:
        return -1, error
    except Exception as error:  # noqa: BLE001 - a bug must reach those who wait, and must not end the thread
        return -1, InternalError(f"the sync of a log failed in an unexpected way: {error!r}")
