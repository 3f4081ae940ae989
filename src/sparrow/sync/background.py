"""The thread that runs the async client, and the calls by which other threads wait for it.

It is a daemon thread: a program that ends without closing its client is not kept alive by it.
Messages that were not flushed are lost then, so close the client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import ConnectionLost, InvalidArgument, UsedAfterFork
from sparrow.base.forks import used_after_fork, watch
from sparrow.client.blocking_jobs import LoopBridge

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
_SLICE_S = 0.2


class Background:
    """An event loop in its own thread. All methods may be called from any other thread."""

    def __init__(self, address: str = "a broker") -> None:
        """Start the thread. `address` is the broker's, for errors."""
        self._address = address
        self._forked: UsedAfterFork | None = None
        self._loop = _new_loop()
        self._is_stopped = False
        self.bridge = LoopBridge(self.run, self.post)
        """The way of jobs to the loop."""
        self._thread = threading.Thread(target=self._run, name="sparrow client", daemon=True)
        self._thread.start()
        watch(self)

    def forked(self, parent: int) -> None:
        """Handle a fork (see `sparrow.base.forks`): the child process does not have the thread."""
        self._forked = used_after_fork(f"the client of {self._address}", parent)
        for task in asyncio.all_tasks(self._loop):
            # They are the parent's tasks: this process need not warn about them at its end.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001

    @property
    def is_forked(self) -> bool:
        """True in a child of the process that connected: nothing can be done there, and nothing
        needs to be closed.
        """
        return self._forked is not None

    def check_process(self) -> None:
        """Raise UsedAfterFork in a child of the process that connected."""
        if self._forked is not None:
            raise UsedAfterFork(self._forked.text)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the background thread and return its result. It is cancelled when the
        wait is interrupted (Ctrl-C) or times out.

        Raises:
            InvalidArgument: called on the background thread itself, as by a callback; it would wait
                for itself.
            ConnectionLost: the client is closed.
            UsedAfterFork: this is a child of the process that connected.
            TimeoutError: no result within `timeout_s`.
        """
        if self._forked is not None:
            coroutine.close()
            self.check_process()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise InvalidArgument(
                "a blocking call within a callback of the client would wait for itself; make the "
                "callback async"
            )
        if self._is_stopped:
            coroutine.close()
            raise ConnectionLost("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise ConnectionLost("the client was closed by another thread") from None
        except BaseException:
            future.cancel()
            raise

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that takes long, as `run` does; Python's signal handlers run meanwhile.

        The wait is cut into slices: Windows does not interrupt a wait for a signal, and Linux gives
        a signal that comes while another is pending to any thread, which does not wake this one.
        """
        self.check_process()
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        while not future.done():
            concurrent.futures.wait([future], _SLICE_S)
        return future.result()

    def run_last(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a closing coroutine as `run` does; do nothing in a child of the process that
        connected.
        """
        if self._forked is not None:
            coroutine.close()
        else:
            self.run(coroutine)

    def post(self, callback: Callable[[], None]) -> None:
        """Schedule a callback as `call_soon` does. Raises UsedAfterFork in a child of the process
        that connected.
        """
        self.check_process()
        self.call_soon(callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Schedule a callback on the background thread, without waiting. Do nothing once it is
        stopped, or in a child process.
        """
        if self._forked is not None:
            return
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._is_stopped:
                raise

    def stop(self) -> None:
        """End the thread; callers that still wait get ConnectionLost. Do nothing if it is
        stopped.
        """
        if self._is_stopped or self._forked is not None:
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
            self._is_stopped = True  # also if a callback raised SystemExit
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
