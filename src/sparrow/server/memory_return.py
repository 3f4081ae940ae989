"""Return of memory to the system after a rush of clients.

The C library keeps what many small allocations have left, and thousands of connections leave much:
without this a broker stays as large as its worst minute. Buffers of large frames are not affected:
they come from the system one by one and return to it by themselves.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Final

from sparrow.broker.access.login_limits import network_of

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("sparrow.server")

INTERVAL_S: Final = 1.0
MIN_CONNECTIONS: Final = 100
"""Connections below which too little is left to be worth the work."""
LOAD_AT: Final = 10
"""Number of connections from which on the code that returns memory is loaded: not in the middle of
a rush, as one small object that stays keeps a MiB around it.
"""
FILL_FROM: Final = 1_000
"""Connections from which on `filled_pools` is worth its 8 MiB for some seconds."""
MIN_BYTES: Final = 32 << 20
"""Growth since the last time, in bytes, from which on the work is worth it, whatever caused it."""
AGAIN_S: Final = (5.0, 40.0)
"""Time after which memory is returned once more when most clients have gone: what responses and
time-outs still referred to is free by then.
"""
_POOL_STEP: Final = 16
_POOL_MOST: Final = 512
_BYTES_HEAD: Final = 33
"""Size of the head of a bytes object."""
_FILL_BYTES: Final = 256 << 10
"""Bytes of each size, more than the gaps of one size take."""
PAUSE_S: Final = 60.0
"""Least time between two looks that were caused by growth alone."""


class MemoryReturn:
    """Looks once a second whether to return memory. Loop thread only.

    Args:
        connections: returns how many clients are connected.
    """

    def __init__(self, connections: Callable[[], int]) -> None:
        self._connections = connections
        self._most = 0
        """Largest number of connections since memory was returned."""
        self._rss = 0
        self._last_s = 0.0
        self._again_at: list[float] = []
        self._is_loaded = False
        self._filling: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start looking."""
        self._rss = rss_bytes()
        self._look_later()

    async def stop(self) -> None:
        """Stop, and wait for a return that is under way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._working is not None:
            await asyncio.wait([self._working])

    def look(self) -> bool:
        """Start to return memory if most clients have gone, or much memory is in use; return True
        if it does.
        """
        now = asyncio.get_running_loop().time()
        connections = self._connections()
        self._most = max(self._most, connections)
        if not self._is_loaded and connections >= LOAD_AT:
            self._is_loaded = True
            load_trim()
        has_emptied = self._most >= MIN_CONNECTIONS and connections <= self._most // 2
        is_due = now - self._last_s > PAUSE_S and rss_bytes() > self._rss + MIN_BYTES
        is_again = bool(self._again_at) and now >= self._again_at[0]
        if self._working is not None or not (has_emptied or is_due or is_again):
            return False
        if has_emptied:
            self._again_at = [now + seconds for seconds in AGAIN_S]
        elif is_again:
            self._again_at.pop(0)
        is_large = has_emptied and self._most >= FILL_FROM
        self._most, self._last_s = connections, now
        self._filling.clear()
        network_of.cache_clear()  # one address that is kept keeps a MiB around it
        gc.collect()
        if is_large:
            self._filling = filled_pools()
        self._working = asyncio.get_running_loop().run_in_executor(None, trim)
        self._working.add_done_callback(self._done)
        return True

    def _done(self, _: asyncio.Future[None]) -> None:
        self._working = None
        before, self._rss = self._rss, rss_bytes()
        log.debug("memory given back: %d MiB are in use, %d before", self._rss >> 20, before >> 20)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._look_later()


def filled_pools() -> list[bytes]:
    """Return objects that fill the gaps which a rush left among Python's small objects; the caller
    drops them some seconds later.

    Python returns an arena of 1 MiB only when nothing is left in it. Small objects of the broker
    that come and go (timers, numbers) are put into gaps, and so into arenas that are otherwise
    empty, again and again. While the gaps are filled these objects move to the fullest arenas.
    """
    sizes = range(_POOL_STEP, _POOL_MOST + 1, _POOL_STEP)
    return [
        bytes(size - _BYTES_HEAD) for size in sizes if size > _BYTES_HEAD for _ in range(_FILL_BYTES // size)
    ]


def rss_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def load_trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None with another C library. Thread-safe."""
    import ctypes  # late: a broker that was never large does not load it

    try:
        give_back = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    give_back.argtypes, give_back.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = give_back
    return found


def trim() -> None:
    """Return free memory to the system by glibc's `malloc_trim`; no effect with another C library.
    Thread-safe.
    """
    give_back = load_trim()
    if give_back is not None:
        give_back(0)
