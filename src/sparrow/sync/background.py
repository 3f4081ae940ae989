"""The thread that runs the async client, and how other threads wait for it.

A daemon thread: a program that ends without closing its client is not kept alive by it (what was not flushed is lost then, so close).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import ConnectionLost, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Background:
    """A loop in a thread of its own. All methods may be called from any thread but that one."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="sparrow client", daemon=True)
        self._thread.start()

    def run(self, doing: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine over there and wait for its result. When the wait is interrupted (Ctrl-C) or times out, it is cancelled.

        Raises:
            InvalidArgument: called on the background thread itself, as by a callback; it would wait for itself.
            ConnectionLost: the client is closed.
            TimeoutError: no result within `timeout_s`.
        """
        if threading.current_thread() is self._thread:
            doing.close()
            raise InvalidArgument(
                "a blocking call within a callback of the client would wait for itself; make the callback async"
            )
        if self._is_stopped:
            doing.close()
            raise ConnectionLost("the client is closed")
        future = asyncio.run_coroutine_threadsafe(doing, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise ConnectionLost("the client was closed by another thread") from None
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have something called over there, without waiting. Nothing happens once it is stopped."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._is_stopped:
                raise

    def stop(self) -> None:
        """End the thread; whoever still waits gets ConnectionLost. The second time nothing happens."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            self._is_stopped = True  # also where a callback raised SystemExit
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
