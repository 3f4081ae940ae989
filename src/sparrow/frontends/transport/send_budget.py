"""The memory of responses with records, from reading the records until the socket has taken them,
shared by all listeners.

Records are read into memory, and they stay there while a client does not read its socket. So memory
is reserved before records are read. If there is none, the read waits; waiting reads are served in
order. One response gets at most an eighth of the free memory, so many slow readers make responses
smaller before any read has to wait. A quarter of the budget is kept for fast connections: those
that have taken `QUICK_BYTES`, more than the kernel buffers for them, and have not stalled since.
They may use it for one response at a time. Half of that quarter is also open to small reads of
other connections. A crowd of slow readers cannot use it up, so well-behaved clients still make
progress.

A connection that takes nothing for `STALL_S` while others wait is closed, or it would keep its
share forever. No connection is closed while no read waits. Taking nothing means to take less than a
twentieth of its backlog.

Nothing is counted while a socket is written to. A connection's bytes are compared with its write
buffer only when memory is short. A piece counts in full until its last byte is taken, as the loop
keeps it in full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from sparrow.base.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable

STALL_S: Final = 10.0
LEAST_BYTES: Final = 64 << 10
"""The least that a read waits for, unless it wants less."""
BATCH_BYTES: Final = 1 << 20
"""The least for a read that cannot be repeated: the default size limit of a batch."""
QUICK_BYTES: Final = 16 << 20
_STILL_S: Final = 1.0
"""A fast connection may take nothing for this long."""
_SHARE: Final = 8
_PROGRESS_SHARE: Final = 20
_PIECE_BYTES: Final = 64 << 10
"""Smaller pieces are counted as one, to keep few numbers."""
_REFRESH_INTERVAL_S: Final = 0.02
_REFRESH_SHARE: Final = 20
"""Refreshing all connections takes at most this part of the time: a twentieth."""


class SendBudget:
    """Bytes that are being read for clients or wait to be sent. Loop thread only."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.reserved_bytes = 0
        """An upper bound: bytes that were taken since the last refresh still count."""
        self._backlogs: set[Backlog] = set()
        """Backlogs that are not empty."""
        self._quick: deque[_Waiter] = deque()
        self._others: deque[_Waiter] = deque()
        self._waiting_since = 0.0
        self._refreshed_at = 0.0
        self._refresh_interval_s = _REFRESH_INTERVAL_S
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_tight(self) -> bool:
        """Return True if more than half of the budget is reserved or a read waits."""
        return self.reserved_bytes > self.total_bytes // 2 or bool(self._quick or self._others)

    @property
    def waiting(self) -> int:
        """Number of reads that wait for memory."""
        return len(self._quick) + len(self._others)

    def used_bytes(self) -> int:
        """Refresh all backlogs and return the reserved bytes."""
        self.refresh()
        return self.reserved_bytes

    def backlog(self, unsent: Callable[[], int], close: Callable[[str], None]) -> Backlog:
        """Create the account of one connection.

        Args:
            unsent: returns the number of bytes that the socket has not taken.
            close: closes the connection; the argument is the reason.
        """
        return Backlog(self, unsent, close)

    def refresh(self) -> None:
        """Subtract the bytes that sockets have taken and serve waiting reads."""
        now = asyncio.get_running_loop().time()
        self._refresh_backlogs(now)
        self._serve()

    # ── called by reservations ────────────────────────────────────────────────────────────────────

    def _grant(self, backlog: Backlog, wanted_bytes: int, least_bytes: int) -> int:
        """Reserve memory as far as there is room; return 0 if there is less than `least_bytes`."""
        kept_bytes = self.total_bytes // 4
        if not backlog.reserved_bytes and (backlog.is_quick or least_bytes <= LEAST_BYTES):
            kept_bytes = 0 if backlog.is_quick else kept_bytes // 2
        free = self.total_bytes - kept_bytes - self.reserved_bytes
        if least_bytes > free and self.reserved_bytes:
            return 0
        granted = max(least_bytes, min(wanted_bytes, free // _SHARE))
        self.reserved_bytes += granted
        return granted

    def _grant_now(self, backlog: Backlog, wanted_bytes: int, least_bytes: int) -> int:
        """Reserve as `_grant` does, but behind the reads that wait already."""
        if self._quick or self._others or self.reserved_bytes > self.total_bytes // 2:  # is_tight
            self._make_room(backlog)
            if self._quick or (self._others and not backlog.is_quick):
                return 0
        return self._grant(backlog, wanted_bytes, least_bytes)

    def _make_room(self, backlog: Backlog) -> None:
        now = asyncio.get_running_loop().time()
        backlog.refresh(now)
        is_stale = now - self._refreshed_at > self._refresh_interval_s
        if is_stale and self.reserved_bytes > self.total_bytes // 2:
            self._refresh_backlogs(now)
            self._serve()

    async def _wait(self, backlog: Backlog, wanted_bytes: int, least_bytes: int) -> int:
        loop = asyncio.get_running_loop()
        waiting = _Waiter(backlog, wanted_bytes, least_bytes, loop.create_future())
        if not self.waiting:
            self._waiting_since = loop.time()
        (self._quick if backlog.is_quick else self._others).append(waiting)
        if self._timer is None:
            self._timer = loop.call_later(self._refresh_interval_s, self._refresh_later)
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self._release(waiting.granted.result())
            raise

    def _release(self, size_bytes: int) -> None:
        self.reserved_bytes -= size_bytes
        if self._quick or self._others:
            self._serve()

    def _serve(self) -> None:
        """Grant waiting reads, in order."""
        for queue in (self._quick, self._others):
            while queue:
                first = queue[0]
                if not first.granted.done():
                    granted = self._grant(first.backlog, first.wanted_bytes, first.least_bytes)
                    if not granted:
                        break
                    first.granted.set_result(granted)
                queue.popleft()

    def _refresh_later(self) -> None:
        self._timer = None
        self.refresh()
        if self.waiting:
            self._timer = asyncio.get_running_loop().call_later(self._refresh_interval_s, self._refresh_later)

    def _refresh_backlogs(self, now: float) -> None:
        loop = asyncio.get_running_loop()
        for backlog in [*self._backlogs]:
            backlog.refresh(now)
            if self._quick or self._others:
                stalled_s = now - max(backlog.progress_at, self._waiting_since)
                if backlog.reserved_bytes and stalled_s > STALL_S:
                    backlog.end("it does not read its responses, and other clients wait for the memory")
        self._refreshed_at = loop.time()
        self._refresh_interval_s = max(_REFRESH_INTERVAL_S, (self._refreshed_at - now) * _REFRESH_SHARE)


class _Waiter:
    """One read that waits."""

    __slots__ = ("backlog", "granted", "least_bytes", "wanted_bytes")

    def __init__(
        self, backlog: Backlog, wanted_bytes: int, least_bytes: int, granted: asyncio.Future[int]
    ) -> None:
        self.backlog = backlog
        self.wanted_bytes = wanted_bytes
        self.least_bytes = least_bytes
        self.granted = granted


class Backlog:
    """Bytes that were sent on one connection and not taken by its peer. Loop thread only."""

    __slots__ = (
        "_added_bytes",
        "_budget",
        "_close",
        "_is_closed",
        "_progress_bytes",
        "_sizes",
        "_taken_bytes",
        "_unsent",
        "progress_at",
        "reserved_bytes",
    )

    def __init__(self, budget: SendBudget, unsent: Callable[[], int], close: Callable[[str], None]) -> None:
        self._budget = budget
        self._unsent = unsent
        self._close = close
        self._sizes: deque[int] = deque()
        self._added_bytes = self._progress_bytes = 0
        self._is_closed = False
        self._taken_bytes = 0
        """Counted since the last stall."""
        self.reserved_bytes = 0
        self.progress_at = 0.0

    @property
    def is_quick(self) -> bool:
        """Return True if the peer has taken many bytes since its last stall."""
        return self._taken_bytes >= QUICK_BYTES

    def reservation(self, patience_s: float | None = None) -> Reservation:
        """Create an empty reservation for one response; `patience_s` limits the wait for memory."""
        return Reservation(self, patience_s)

    def add(self, size_bytes: int) -> None:
        """Move bytes that were written to the socket from a reservation to the backlog."""
        budget = self._budget
        if self._is_closed:
            budget._release(size_bytes)  # noqa: SLF001 - one module
        elif size_bytes:
            if not self.reserved_bytes:
                budget._backlogs.add(self)  # noqa: SLF001
                self.progress_at = asyncio.get_running_loop().time()
            if self._sizes and self._sizes[-1] < _PIECE_BYTES:
                self._sizes[-1] += size_bytes
            else:
                self._sizes.append(size_bytes)
            self._added_bytes += size_bytes
            self.reserved_bytes += size_bytes

    def refresh(self, now: float) -> None:
        """Subtract the bytes that the socket has taken."""
        if not self.reserved_bytes:
            return
        unsent = self._unsent()
        taken = self._added_bytes - unsent
        if unsent and taken < self._progress_bytes + max(1, self.reserved_bytes // _PROGRESS_SHARE):
            if now - self.progress_at > _STILL_S:
                self._taken_bytes = 0
        else:
            self._progress_bytes, self.progress_at = taken, now
        if not unsent:
            self._forget(self.reserved_bytes)
            self._sizes.clear()
            return
        freed = 0
        while self.reserved_bytes - freed - self._sizes[0] >= unsent:
            freed += self._sizes.popleft()
        if freed:
            self._forget(freed)

    def end(self, why: str) -> None:
        """Close the connection; `why` is logged."""
        self._close(why)

    def close(self) -> None:
        """Release everything after the connection was lost."""
        if not self._is_closed:
            self._is_closed = True
            self._forget(self.reserved_bytes)
            self._sizes.clear()
            # break the reference cycle: the connection is freed without the garbage collector
            self._unsent, self._close = _nothing_unsent, _nothing_to_close

    def _forget(self, size_bytes: int) -> None:
        self.reserved_bytes -= size_bytes
        self._taken_bytes += size_bytes
        if not self.reserved_bytes:
            self._budget._backlogs.discard(self)  # noqa: SLF001
        self._budget._release(size_bytes)  # noqa: SLF001


def _nothing_unsent() -> int:
    return 0


def _nothing_to_close(_: str) -> None:
    """Do nothing: the connection is closed already."""


class Reservation:
    """Memory for the records of one response; implements `broker.fetch.ReadMemory`. Its creator
    must either send or release it.

    As a context manager it releases what was not sent.
    """

    __slots__ = ("_backlog", "_patience_s", "size_bytes")

    def __init__(self, backlog: Backlog, patience_s: float | None) -> None:
        self._backlog = backlog
        self._patience_s = patience_s
        self.size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    async def take(self, wanted_bytes: int, least_bytes: int = 0) -> int:
        """Replace the reservation by a new one, waiting until there is memory. Return the number of
        bytes that may be read.

        Args:
            wanted_bytes: the most that is useful.
            least_bytes: less is useless; default: 64 KiB, or all that is wanted.

        Raises:
            Overloaded: no memory became free within `patience_s`.
        """
        if self.size_bytes:
            self.resize(0)
        backlog = self._backlog
        least_bytes = max(1, least_bytes, min(wanted_bytes, LEAST_BYTES))
        budget = backlog._budget  # noqa: SLF001 - one module
        granted = budget._grant_now(backlog, wanted_bytes, least_bytes)  # noqa: SLF001
        if not granted:
            try:
                async with asyncio.timeout(self._patience_s):
                    granted = await budget._wait(backlog, wanted_bytes, least_bytes)  # noqa: SLF001
            except TimeoutError:
                raise Overloaded(
                    "responses that other clients have not read yet use up the memory for responses "
                    "(send_budget); try again later"
                ) from None
        self.size_bytes = granted
        return granted

    def keep(self, size_bytes: int) -> bool:
        """Replace the granted size by the size that was read.

        Returns:
            False: more was read than granted, and there is no room for it; nothing is reserved any
                more.
        """
        budget = self._backlog._budget  # noqa: SLF001
        missing_bytes = size_bytes - self.size_bytes
        if missing_bytes > 0:
            if not budget._grant(self._backlog, missing_bytes, missing_bytes):  # noqa: SLF001
                self.give_back()
                return False
            self.size_bytes = size_bytes
        else:
            self.resize(size_bytes)
        return True

    def resize(self, size_bytes: int) -> None:
        """Set the reserved size without checking for room, as the bytes are in memory already."""
        change, self.size_bytes = size_bytes - self.size_bytes, size_bytes
        budget = self._backlog._budget  # noqa: SLF001
        budget.reserved_bytes += change
        if change < 0 and (budget._quick or budget._others):  # noqa: SLF001
            budget._serve()  # noqa: SLF001

    def add(self, size_bytes: int) -> None:
        """Add bytes without checking for room."""
        self.resize(self.size_bytes + size_bytes)

    def sent(self, size_bytes: int = -1) -> None:
        """Move bytes (default: all) to the backlog after they were written to the socket; they
        count until the peer has taken them.
        """
        if size_bytes < 0:
            size_bytes = self.size_bytes
        self.size_bytes -= size_bytes
        self._backlog.add(size_bytes)

    def give_back(self) -> None:
        """Release the reservation unused."""
        if self.size_bytes:
            self.resize(0)
