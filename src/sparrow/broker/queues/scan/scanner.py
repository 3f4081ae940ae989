"""Scans published records in order, and enters them in the queue's state.

It runs in short slices of the event loop, whenever a source has something new and the consumers are
not too far behind. While there is nothing to scan it costs nothing: no task, one entry at each
partition that waits.

Scanning one record costs as much as publishing it, scanning ten together hardly more. So a few
records that no consumer can have now are left until a consumer asks (`catch_up`): all consumers are
waiting for their last lease to be written. If a consumer waits and the queue's state can be
written, they are scanned at the append, so that the lease is written while the record is synced. If
the state cannot be written before other writes have ended, they are left until then (`go_on`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import OffsetOutOfRange, SparrowError, UnknownTopic
from sparrow.broker.queues.scan.record_headers import Interest, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.base.clock import Clock
    from sparrow.broker.queues.rules.state import QueueState
    from sparrow.broker.queues.scheduler import CooperativeScheduler
    from sparrow.broker.queues.source import QueueSource
    from sparrow.storage.store import Chunk

_LOG = logging.getLogger(__name__)

SCAN_AHEAD: Final = 1_000_000
"""Number of ready records to know ahead of the consumers. The rest of a backlog is scanned when
they get there.
"""
_PLAIN_BYTES: Final = 1 << 20
_LOOKED_INTO_BYTES: Final = 256 << 10
_SLICE_S: Final = 0.002
"""Length of one slice, roughly."""
_RETRY_S: Final = 1.0
_FEW_RECORDS: Final = 64
"""More records than these are scanned at once, as that takes its time."""
_LATEST_S: Final = 0.005
"""Delay after which records are scanned though no consumer asks: they may have a time of their own,
and count in the statistics.
"""


class Scanner:
    """Scanner of one queue. Loop thread only.

    Args:
        found: called after each slice in which something was found.
        is_awaited: returns True if a consumer waits for records.
        is_writing: returns True if the queue's state is being written.
        scheduler: shared with the other queues.
    """

    def __init__(
        self,
        state: QueueState,
        clock: Clock,
        *,
        committed: bool,
        found: Callable[[], None],
        is_awaited: Callable[[], bool],
        is_writing: Callable[[], bool],
        scheduler: CooperativeScheduler,
    ) -> None:
        self._state = state
        self._clock = clock
        self._committed = committed
        self._found = found
        self._is_awaited = is_awaited
        self._is_writing = is_writing
        self._scheduler = scheduler
        policy = state.policy
        self._interest = Interest(
            keys=policy.order == "key", ids=policy.order == "parented", ages=bool(policy.expiry_ms)
        )
        self._read_bytes = _LOOKED_INTO_BYTES if any(self._interest) else _PLAIN_BYTES
        self._queue: deque[QueueSource] = deque()
        self._resting: set[QueueSource] = set()
        """Sources that could not be read the last time."""
        self._is_scheduled = False
        self._is_closed = False
        self._is_behind = False
        self._timer: asyncio.TimerHandle | None = None
        """Runs while records are left for later."""
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if everything that is visible was scanned."""
        return not self._queue and not self._resting

    def add(self, source: QueueSource) -> None:
        """Add a source that may have something to scan."""
        if source not in self._queue and not self._is_closed:
            self._queue.append(source)
            self._schedule()

    def woken(self, source: QueueSource) -> None:
        """Scan a source again: something was appended."""
        if self._queue or self._is_closed or not self._has_few(source):
            self.add(source)
            return
        self._queue.append(source)
        if self._is_writing() or not self._is_awaited():
            self._timer = asyncio.get_running_loop().call_later(_LATEST_S, self._schedule)
        else:
            # A consumer waits: its lease is part of the sync that the record waits for.
            self._schedule(at_once=True)

    def _has_few(self, source: QueueSource) -> bool:
        try:
            return source.partition.visible_end - self._state.scanned[source.number] <= _FEW_RECORDS
        except UnknownTopic:  # deleted: the next slice handles it
            return False

    def catch_up(self, *, at_once: bool = False) -> None:
        """Scan the records that were left or are about to be scanned, because a consumer asks,
        unless others wait for them as well.

        Args:
            at_once: the consumer does not wait itself, so scan them now.
        """
        if not self._queue or self._reading is not None:
            return
        is_left = self._timer is not None or (self._is_scheduled and self._has_few(self._queue[0]))
        if (is_left or self._has_few(self._queue[0])) if at_once else (is_left and not self._is_awaited()):
            self._stop_timer()
            self._scan_slice()
            # the first slice found that retention took some
            if self._queue and self._reading is None:
                self._scan_slice()

    def go_on(self) -> None:
        """Scan what was left, if a consumer waits for it: a write of the queue's state has
        ended.
        """
        if self._timer is not None and self._is_awaited():
            self._schedule()

    def drop(self, source: QueueSource) -> None:
        """Drop a source that is gone."""
        source.stop_waiting()
        source.pieces = None
        self._resting.discard(source)
        if source in self._queue:
            self._queue.remove(source)

    def consumed(self) -> None:
        """Scan further if fewer records are ready than were."""
        if self._is_behind and not self._state.has_ready(SCAN_AHEAD):
            self._is_behind = False
            self._schedule()

    def close(self) -> None:
        """Stop scanning."""
        self._is_closed = True
        for source in self._queue:
            source.stop_waiting()
        self._queue.clear()
        self._stop_timer()
        if self._reading is not None:
            self._reading.cancel()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, *, at_once: bool = False) -> None:
        self._stop_timer()
        if not self._is_scheduled and not self._is_closed and self._reading is None:
            self._is_scheduled = True
            (self._scheduler.at_once if at_once else self._scheduler.soon)(self._scan_slice)

    def _scan_slice(self) -> None:
        """Scan a little of the first source, then let other tasks run."""
        self._is_scheduled = False
        if self._is_closed or not self._queue:
            return
        if self._state.has_ready(SCAN_AHEAD):
            self._is_behind = True
            return
        source = self._queue[0]
        try:
            self._look_at(source)
        except OffsetOutOfRange:
            self._state.lost(source.number, source.partition.start_offset)
            self._found()
        except UnknownTopic:  # deleted; the queue learns it from the topics
            self._queue.popleft()
        except SparrowError as error:
            _LOG.warning("a queue cannot read %s: %s", source.partition.id, error.text)
            self._rest(source)
        except Exception:  # noqa: BLE001 - a bug with one source must not stop the others
            _LOG.exception("a queue cannot look at %s", source.partition.id)
            self._rest(source)
        if self._queue:
            self._schedule()

    def _rest(self, source: QueueSource) -> None:
        """Try a source again later."""
        source.pieces = None
        self._queue.popleft()
        self._resting.add(source)
        asyncio.get_running_loop().call_later(_RETRY_S, self._again, source)

    def _again(self, source: QueueSource) -> None:
        if source in self._resting:
            self._resting.discard(source)
            self.add(source)

    def _look_at(self, source: QueueSource) -> None:
        if source.pieces is None and not self._read(source):
            return
        assert source.pieces is not None  # otherwise `_read` has refused
        now_s, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        now_ms = round(now_s * 1000)
        while True:
            piece = next(source.pieces, None)
            if piece is None:
                source.pieces = None
                if self._state.scanned[source.number] >= source.partition.visible_end:
                    self._queue.popleft()  # else it would take one more slice to find that out
                    source.wait()
                else:
                    self._queue.rotate(-1)
                break
            self._state.found(source.number, *piece, now_ms=now_ms, wall_ms=wall_ms)
            if self._clock.monotonic() > now_s + _SLICE_S:
                break
        self._found()

    def _read(self, source: QueueSource) -> bool:
        """Read the next chunk. Return False if there is none now."""
        end = source.visible_end(committed=self._committed)
        offset = self._state.next_unscanned(source.number, end)
        if offset >= end:
            self._queue.popleft()
            source.wait()
            return False
        chunk = source.partition.log.read_nowait(offset, self._read_bytes)
        if chunk is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_cold(source, offset))
            return False
        self._take(source, offset, end, chunk)
        return source.pieces is not None

    def _take(self, source: QueueSource, offset: int, end: int, chunk: Chunk) -> None:
        readable = source.committed(chunk, offset, end) if self._committed else chunk
        if readable.next_offset <= offset:  # the records there belong to an open transaction
            self._queue.popleft()
            source.wait()
            return
        source.measured(len(readable.data), readable.records)
        source.pieces = look(readable.data, offset, readable.next_offset, self._interest)

    async def _read_cold(self, source: QueueSource, offset: int) -> None:
        try:
            chunk = await source.partition.log.read(offset, self._read_bytes)
            if self._queue and self._queue[0] is source and self._state.scanned[source.number] == offset:
                self._take(source, offset, source.visible_end(committed=self._committed), chunk)
        except OffsetOutOfRange:
            pass  # the next slice finds it, too, and handles it
        except SparrowError as error:
            _LOG.warning("a queue cannot read %s: %s", source.partition.id, error.text)
            if self._queue and self._queue[0] is source:
                self._rest(source)
        finally:
            self._reading = None
            self._schedule()
