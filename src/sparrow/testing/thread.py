"""A broker in a daemon thread of this process, with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument
from sparrow.server.run import loop_factory
from sparrow.server.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.server.config import ServerConfig
    from sparrow.server.ready import Ready

_DRAIN_TIMEOUT_S = 2.0


class ThreadHost:
    """Runs a `Server` in a thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended: Future[None] = Future()

    def start(self, config: ServerConfig, given: Mapping[str, object]) -> Ready:  # noqa: ARG002 - the protocol's names
        """Start the broker, and return once clients can connect."""
        started: Future[Ready] = Future()
        self._ended = Future()
        self._thread = threading.Thread(
            target=self._run, args=(config, started), name="sparrow-test-broker", daemon=True
        )
        self._thread.start()
        try:
            return started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def _run(self, config: ServerConfig, started: Future[Ready]) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve(config, started))
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits
            (self._ended if started.done() else started).set_exception(error)

    async def _serve(self, config: ServerConfig, started: Future[Ready]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = Server(config)
        started.set_result(await server.start())
        await self._stop.wait()
        await server.stop(_DRAIN_TIMEOUT_S)

    def stop(self) -> None:
        """Drain and stop; raises what went wrong in the broker's thread."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        self._ended.result()

    def kill(self) -> None:
        """Raise, as a thread cannot be killed.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(
            "a broker in a thread cannot be killed without its process; make it with process=True"
        )
