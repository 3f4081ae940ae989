"""Event loops in simulated time, which run one iteration at a time."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.crash.stories import WALL_MS


class SimulatedTime:
    """The time of the simulation; a `Clock`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall_ms(self) -> int:
        return WALL_MS + round(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


class _NoSelector:
    """The loops have no sockets."""

    def select(self, timeout: float | None) -> list[object]:
        return []

    def close(self) -> None:
        """Nothing to close."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop that runs when the test says so. Work for threads runs at once, on the loop."""

    def __init__(self, time: SimulatedTime) -> None:
        super().__init__()
        self._time = time
        self._selector = _NoSelector()
        self.errors: list[str] = []
        """Exceptions that nobody awaited, with what raised them."""
        self.set_exception_handler(self._note)

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            source = context.get("task") or context.get("future") or context.get("handle")
            self.errors.append(f"{error!r} of {source!r}")

    def time(self) -> float:
        return self._time.now

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """It is in no other thread."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    @property
    def has_work(self) -> bool:
        """True if an iteration would run something now."""
        return bool(self._ready) or self.next_at <= self._time.now

    @property
    def next_at(self) -> float:
        """The time of the next timer."""
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        return float(self._scheduled[0]._when) if self._scheduled else float("inf")

    def run_once(self) -> None:
        """Run one iteration."""
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            events._set_running_loop(None)
