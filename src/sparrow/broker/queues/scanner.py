"""Looks at what was published, in order, and tells the queue's state what is there.

It runs in short turns of the loop, whenever a source has something new and the consumers are not too far behind. While there is nothing
to look at it costs nothing: no task, one entry at each partition that waits.

To look at one record costs as much as to publish it, to look at ten together hardly more. So a few records that nobody can have now are left until
somebody asks (`catch_up`): all consumers are waiting for their last lease to be written. And where somebody waits while the queue's state is
being written, until that has ended (`go_on`): what he leases would be kept by the next write in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import OffsetOutOfRange, SparrowError, UnknownTopic
from sparrow.broker.queues.facts import Interest, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.base.clock import Clock
    from sparrow.broker.queues.source import Source
    from sparrow.broker.queues.state import QueueState
    from sparrow.broker.queues.turns import Turns
    from sparrow.storage.store import Chunk

_LOG = logging.getLogger(__name__)

SCAN_AHEAD: Final = 1_000_000
"""So many ready records are known ahead of the consumers; the rest of a backlog is looked at when they get there."""
_PLAIN_BYTES: Final = 1 << 20
_LOOKED_INTO_BYTES: Final = 256 << 10
_TURN_S: Final = 0.002
"""About how long one turn may take."""
_RETRY_S: Final = 1.0
_FEW_RECORDS: Final = 64
"""More than these are looked at at once, as that takes its time."""
_LATEST_S: Final = 0.005
"""How long records are left when nobody asks: they may have a time of their own, and count in the statistics."""


class Scanner:
    """Of one queue. Loop thread only.

    Args:
        found: called after each turn in which something was found.
        is_awaited: whether a consumer waits for records.
        is_writing: whether the queue's state is being written.
        turns: shared with the other queues.
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
        turns: Turns,
    ) -> None:
        self._state = state
        self._clock = clock
        self._committed = committed
        self._found = found
        self._is_awaited = is_awaited
        self._is_writing = is_writing
        self._turns = turns
        policy = state.policy
        self._interest = Interest(
            keys=policy.order == "key", ids=policy.order == "parented", ages=bool(policy.expiry_ms)
        )
        self._read_bytes = _LOOKED_INTO_BYTES if any(self._interest) else _PLAIN_BYTES
        self._queue: deque[Source] = deque()
        self._resting: set[Source] = set()
        """Those that could not be read the last time."""
        self._is_scheduled = False
        self._is_closed = False
        self._is_behind = False
        self._timer: asyncio.TimerHandle | None = None
        """Runs while records are left for later."""
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything that is visible was looked at."""
        return not self._queue and not self._resting

    def add(self, source: Source) -> None:
        """There may be something to look at in this source."""
        if source not in self._queue and not self._is_closed:
            self._queue.append(source)
            self._schedule()

    def woken(self, source: Source) -> None:
        """Something was appended to this source, at whose end the scanner is."""
        if self._queue or self._is_closed or not self._may_wait(source):
            self.add(source)
        else:
            self._queue.append(source)
            self._timer = asyncio.get_running_loop().call_later(_LATEST_S, self._schedule)

    def _may_wait(self, source: Source) -> bool:
        return (self._is_writing() or not self._is_awaited()) and self._has_few(source)

    def _has_few(self, source: Source) -> bool:
        try:
            return source.partition.visible_end - self._state.scanned[source.number] <= _FEW_RECORDS
        except UnknownTopic:  # it was deleted: the turn deals with it
            return False

    def catch_up(self, *, at_once: bool = False) -> None:
        """Somebody asks for records: look at those that were left, unless others wait for them as well.

        Args:
            at_once: he does not wait himself, so it is now or never.
        """
        if not self._queue or self._reading is not None:
            return
        is_left = self._timer is not None
        if (is_left or self._has_few(self._queue[0])) if at_once else (is_left and not self._is_awaited()):
            self._stop_timer()
            self._turn()
            if self._queue and self._reading is None:  # the first turn found that retention took some
                self._turn()

    def go_on(self) -> None:
        """A write of the queue's state has ended: look at what was left, if somebody waits for it."""
        if self._timer is not None and self._is_awaited():
            self._schedule()

    def drop(self, source: Source) -> None:
        """The source is gone."""
        source.stop_waiting()
        source.pieces = None
        self._resting.discard(source)
        if source in self._queue:
            self._queue.remove(source)

    def consumed(self) -> None:
        """Fewer records may be ready than were: there may be room to look further."""
        if self._is_behind and self._state.ready < SCAN_AHEAD:
            self._is_behind = False
            self._schedule()

    def close(self) -> None:
        """Look at nothing more."""
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

    def _schedule(self) -> None:
        self._stop_timer()
        if not self._is_scheduled and not self._is_closed and self._reading is None:
            self._is_scheduled = True
            self._turns.soon(self._turn)

    def _turn(self) -> None:
        """Look at a little of the source at the head, then let others have the loop."""
        self._is_scheduled = False
        if self._is_closed or not self._queue:
            return
        if self._state.ready >= SCAN_AHEAD:
            self._is_behind = True
            return
        source = self._queue[0]
        try:
            self._look_at(source)
        except OffsetOutOfRange:
            self._state.lost(source.number, source.partition.start_offset)
            self._found()
        except UnknownTopic:  # deleted; the queue is told by the topics
            self._queue.popleft()
        except SparrowError as error:
            _LOG.warning("a queue cannot read %s: %s", source.partition.id, error.text)
            self._rest(source)
        except Exception:  # noqa: BLE001 - a bug with one source must not stop the others
            _LOG.exception("a queue cannot look at %s", source.partition.id)
            self._rest(source)
        if self._queue:
            self._schedule()

    def _rest(self, source: Source) -> None:
        """Try a source again later."""
        source.pieces = None
        self._queue.popleft()
        self._resting.add(source)
        asyncio.get_running_loop().call_later(_RETRY_S, self._again, source)

    def _again(self, source: Source) -> None:
        if source in self._resting:
            self._resting.discard(source)
            self.add(source)

    def _look_at(self, source: Source) -> None:
        if source.pieces is None and not self._read(source):
            return
        assert source.pieces is not None  # else `_read` said no
        now_ms, wall_ms = round(self._clock.monotonic() * 1000), self._clock.wall_ms()
        until = self._clock.monotonic() + _TURN_S
        while True:
            piece = next(source.pieces, None)
            if piece is None:
                source.pieces = None
                if self._state.scanned[source.number] >= source.partition.visible_end:
                    self._queue.popleft()  # else it would take one more turn to find that out
                    source.wait()
                else:
                    self._queue.rotate(-1)
                break
            self._state.found(source.number, *piece, now_ms=now_ms, wall_ms=wall_ms)
            if self._clock.monotonic() > until:
                break
        self._found()

    def _read(self, source: Source) -> bool:
        """Take the next chunk; False if there is none now."""
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
        self._take(source, offset, chunk)
        return source.pieces is not None

    def _take(self, source: Source, offset: int, chunk: Chunk) -> None:
        readable = source.readable(chunk, offset, committed=self._committed)
        if readable.next_offset <= offset:  # what is there belongs to an open transaction
            self._queue.popleft()
            source.wait()
            return
        source.measured(len(readable.data), readable.records)
        source.pieces = look(readable.data, offset, readable.next_offset, self._interest)

    async def _read_cold(self, source: Source, offset: int) -> None:
        try:
            chunk = await source.partition.log.read(offset, self._read_bytes)
            if self._queue and self._queue[0] is source and self._state.scanned[source.number] == offset:
                self._take(source, offset, chunk)
        except OffsetOutOfRange:
            pass  # the next turn finds it, too, and deals with it
        except SparrowError as error:
            _LOG.warning("a queue cannot read %s: %s", source.partition.id, error.text)
            if self._queue and self._queue[0] is source:
                self._rest(source)
        finally:
            self._reading = None
            self._schedule()
