"""Blocking work in threads, so that a slow store does not block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundWork(Generic[T]):
    """Blocking work in a thread. The loop awaits its result, or blocks until the thread is done."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, work: Callable[[], T], end: Callable[[BackgroundWork[T]], None]
    ) -> None:
        """Start the work. `end` is called on the loop when it is done."""
        self._outcome: Future[T] = Future()
        self._done = loop.run_in_executor(None, self._run, work)
        self._done.add_done_callback(lambda _: end(self))

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - who asks for the result gets it
            self._outcome.set_exception(error)

    async def wait(self) -> None:
        """Wait until the work is done; cancelling this leaves the work alone."""
        await asyncio.wait([self._done])

    def result(self) -> T:
        """Return what the work returned, or raise what it raised; blocks until it is done."""
        return self._outcome.result()

    def failure(self) -> BaseException | None:
        """Return what the work raised; blocks until it is done."""
        return self._outcome.exception()
