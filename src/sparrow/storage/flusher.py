"""Group commit: one sync serves all callers that wait for it.

A log that needs a sync is queued once, however many callers request it. A thread takes it, notes
the log's end *then*, syncs, and reports how far the log is durable; requests that came while the
sync ran are served by the next one, which the same thread starts at once. A few threads let several
logs sync at the same time; one log is synced by one thread at a time.

The event loop gets one wake-up for all rounds that ended since the last one. It is sent before the
thread does the slower work of the round (`after_sync`), so that a caller waits for the sync and one
wake-up only.

A flusher that may (`syncs_on_loop`) begins syncs on the loop: handing one to a thread and back
costs more than the 0.1 ms of a quick device. Where the system can (`direct_writes`), the device
works while the loop does (`starts`). Elsewhere the loop waits for what is short. It spends a share
of its time on that; under more load it is better to work while a thread waits for the device.
A call that takes longer than `SLOW_SECONDS` sends the next ones to the thread, for a time that
doubles until one is quick again: a slow device holds up the loop for one sync in two seconds at
most.

The loop syncs when an iteration has passed in which nobody asked, after `_ITERATIONS` at the
latest: what follows from each other, such as a record and its lease, or an acknowledgement and the
lease for which the client gives credit behind it, shares one sync.

Logs with appends and without a requested sync are synced `interval_ms` after the first such append,
a few at a time, so that they do not delay requested syncs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import InternalError, SparrowError
from sparrow.base.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    _Done = Callable[[int, SparrowError | None], None]

_log = logging.getLogger(__name__)
BACKGROUND_LOGS = 8
BACKGROUND_PAUSE_SECONDS = 0.002
SHORT_BYTES = 16 << 10
"""A sync of more bytes is not short."""
SLOW_SECONDS = 0.001
_SHARE = 0.4
"""Part of the time that the loop may spend on syncs."""
_SPENT_AT_ONCE_SECONDS = 0.005
_ITERATIONS = 4
_SHORTEST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 2.0


class Syncable(Protocol):
    """A log, as the flusher sees it."""

    @property
    def is_short(self) -> bool:
        """True if its next sync concerns one file and at most `SHORT_BYTES`. On the loop."""
        ...

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


class _LoopShare:
    """Decides whether the loop may sync now. Loop thread only."""

    def __init__(self) -> None:
        self._pause = _SHORTEST_PAUSE_SECONDS
        self._paused_until = 0.0
        self._spent = 0.0
        """Seconds in syncs beyond the share, as of `_seen`."""
        self._seen = 0.0

    def is_left(self, now: float) -> bool:
        self._spent = max(0.0, self._spent - _SHARE * (now - self._seen))
        self._seen = now
        return now >= self._paused_until and self._spent <= _SPENT_AT_ONCE_SECONDS

    def spend(self, seconds: float) -> None:
        """Note how long a sync on the loop took."""
        self._spent += seconds
        if seconds <= SLOW_SECONDS:
            self._pause = _SHORTEST_PAUSE_SECONDS
            return
        self._paused_until = perf_counter() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)


class Flusher:
    """The threads and their queue. `request` and `note_dirty` are called on the loop."""

    def __init__(self, threads: int, interval_ms: int, *, syncs_on_loop: bool = False) -> None:
        self.times = Histogram()
        """Durations of the successful syncs, in seconds."""
        self._threads_wanted = threads
        self._interval = interval_ms / 1000
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Syncable | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._rounds: dict[Syncable, bool] = {}
        """Logs that are being synced, by threads or by `starts`; True: once more when it ends."""
        self._asks_loop = syncs_on_loop or not threads
        self._iterations = _ITERATIONS if syncs_on_loop else 0
        self._share = _LoopShare() if syncs_on_loop and threads else None
        self._starts: Callable[[_Done], None] | None = None
        self._asking: dict[Syncable, int] = {}
        """Logs that the loop is about to sync, and the number of their requests."""
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

    def use_starts(self, starts: Callable[[_Done], None]) -> None:
        """Begin syncs by `starts` from now on: a sync of the one log of this flusher goes on
        without a thread, and reports its end on the loop, as to `Syncable.synced`. Nothing follows
        it (`Syncable.after_sync`).
        """
        self._starts = starts

    def request(self, log: Syncable) -> None:
        """Sync `log` as soon as a thread is free, or the loop."""
        if log in self._dirty:
            del self._dirty[log]
        if log in self._asking:
            self._asking[log] += 1
        elif self._asks_loop and log not in self._rounds:
            self._asking[log] = 1
            asyncio.get_running_loop().call_soon(self._look, log, 0, self._iterations)
        else:
            self._hand_over(log)

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

    def _look(self, log: Syncable, seen: int, iterations: int) -> None:
        """Sync `log` on the loop, unless more was requested since the last iteration, and some are
        left to wait for still more.
        """
        asked = self._asking[log]
        if iterations and asked != seen:
            asyncio.get_running_loop().call_soon(self._look, log, asked, iterations - 1)
            return
        del self._asking[log]
        share, begun = self._share, perf_counter()
        if share is None:
            self._sync_here(log, begun)
        elif not share.is_left(begun):
            self._hand_over(log)
        elif self._starts is not None:
            self._rounds[log] = False
            self._starts(partial(self._ended, log, begun))
            share.spend(perf_counter() - begun)
        elif log.is_short:
            share.spend(self._sync_here(log, begun))
        else:
            self._hand_over(log)

    def _sync_here(self, log: Syncable, begun: float) -> float:
        """Sync on the loop. Return the seconds that it took."""
        offset, error = _sync(log)
        seconds = perf_counter() - begun
        if error is None:
            with self._lock:
                self.times.observe(seconds)
        log.synced(offset, error)
        if error is None:
            _follow(log)
        return seconds

    def _ended(self, log: Syncable, begun: float, offset: int, error: SparrowError | None) -> None:
        """Take the result of a sync that `starts` began: no thread has a round meanwhile."""
        again = self._rounds.pop(log)
        if error is None:
            self.times.observe(perf_counter() - begun)
        log.synced(offset, error)
        if again and log not in self._asking:
            self._asking[log] = 1
            asyncio.get_running_loop().call_soon(self._look, log, 0, _ITERATIONS)

    def _hand_over(self, log: Syncable) -> None:
        with self._lock:
            is_running = log in self._rounds
            self._rounds[log] = is_running
            if is_running:
                return
        self._start()
        self._queue.put(log)

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
                if not self._rounds[log]:
                    del self._rounds[log]
                    return
                self._rounds[log] = False

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
