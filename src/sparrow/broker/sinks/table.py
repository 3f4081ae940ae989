"""All sinks, and their limit.

A single write has its own sink, which has no use after its driver has received the response to its
commit. It is forgotten a day later, so that people can look at it; or sooner, the oldest first,
where a job that writes all the time would fill the store.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded, UnknownSink
from sparrow.broker.sinks import persistence

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.base.clock import Clock
    from sparrow.broker.sinks.state import Sink
    from sparrow.meta.store import MetaStore

MAX_SINKS: Final = 10_000
KEPT_MS: Final = 86_400_000
"""Time for which a single write is kept after its last change."""
KEPT_AT_LEAST_MS: Final = 600_000
"""The shortest such time if there are too many sinks: a driver that lost the response to its commit
asks again.
"""
_FORGET_INTERVAL_S: Final = 60.0
_FORGOTTEN_AT_ONCE: Final = 1_000


class SinkTable:
    """All sinks. Memory follows the store: a caller that changes a sink writes its entry first,
    then calls `put` or `remove`. Loop thread only; call `load` first.

    Args:
        is_idle: returns True if a sink has no stages and no work is under way.
    """

    def __init__(self, meta: MetaStore, clock: Clock, is_idle: Callable[[str], bool]) -> None:
        self._meta = meta
        self._clock = clock
        self._is_idle = is_idle
        self._sinks: dict[str, Sink] = {}
        self._forgot_at = clock.monotonic()

    async def load(self) -> None:
        """Read the entries of earlier runs.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry cannot be read.
        """
        for entry in await self._meta.scan(persistence.SINK):
            self._sinks[entry.key] = persistence.read_sink(entry)

    def maybe(self, sink_id: str) -> Sink | None:
        """Return a sink, or None."""
        return self._sinks.get(sink_id)

    def get(self, sink_id: str) -> Sink:
        """Return a sink.

        Raises:
            UnknownSink
        """
        found = self._sinks.get(sink_id)
        if found is None:
            raise UnknownSink(f"there is no sink {sink_id[:250]!r}")
        return found

    def all(self) -> list[Sink]:
        """Return all sinks, by id."""
        return [self._sinks[each] for each in sorted(self._sinks)]

    def put(self, sink: Sink) -> None:
        """Set a sink."""
        self._sinks[sink.sink_id] = sink

    def remove(self, sink_id: str) -> None:
        """Remove a sink."""
        del self._sinks[sink_id]

    async def make_room(self) -> None:
        """Make room for a new sink: forget the oldest single writes if there are too many.

        Raises:
            Overloaded: too many cannot be forgotten. DiskFull, StorageFailed
        """
        if len(self._sinks) >= MAX_SINKS:
            await self._forget(KEPT_AT_LEAST_MS)
        if len(self._sinks) >= MAX_SINKS:
            raise Overloaded(
                f"there are {MAX_SINKS} sinks, as many as may be; delete those that are not used "
                "any more (sparrow sink delete)"
            )

    async def tick(self) -> None:
        """Forget old single writes. Raises DiskFull, StorageFailed."""
        if self._clock.monotonic() - self._forgot_at >= _FORGET_INTERVAL_S:
            self._forgot_at = self._clock.monotonic()
            await self._forget(KEPT_MS)

    async def _forget(self, kept_ms: int) -> None:
        """Forget the oldest single writes without a change for `kept_ms`."""
        before_ms = self._clock.wall_ms() - kept_ms
        those = [each for each in self._sinks.values() if self._is_forgettable(each, before_ms)]
        old = nsmallest(_FORGOTTEN_AT_ONCE, those, key=lambda each: each.updated_ms)
        if not old:
            return
        await self._meta.write([persistence.delete_sink(each.sink_id) for each in old])
        for each in old:
            if self._sinks.get(each.sink_id) is each:
                del self._sinks[each.sink_id]

    def _is_forgettable(self, sink: Sink, before_ms: int) -> bool:
        return sink.is_single_write and sink.updated_ms <= before_ms and self._is_idle(sink.sink_id)
