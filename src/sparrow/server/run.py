"""A server as a process: event loop, signals, exit.

The first SIGTERM or SIGINT drains and ends with exit code 0; the second ends the process at once (nothing that was
acknowledged is lost by that, the next start only has to recover).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparrow.server.files import allow_connections
from sparrow.server.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.server.config import ServerConfig

log = logging.getLogger("sparrow.server")


LATE_LOADING_S = 1.0
"""How often to look whether modules were loaded."""


def run(config: ServerConfig) -> None:
    """Serve until a signal says stop.

    Raises:
        SparrowError: the start failed; see `Server.start`.
    """
    allow_connections(config)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it exists, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(config: ServerConfig) -> None:
    server = Server(config)
    with _signals() as stopped:
        await _run_until(stopped, server, config)


async def _run_until(stopped: asyncio.Future[str], server: Server, config: ServerConfig) -> None:
    ready = await server.start()
    # What lives now lives until the end: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    freezing = asyncio.get_running_loop().create_task(_freeze_what_is_loaded_later())
    print(server.banner(), file=sys.stderr, flush=True)
    log.info("ready", extra={"url": ready.url, "data_dir": ready.data_dir})
    name = await stopped
    freezing.cancel()
    log.info("stopping", extra={"signal": name, "drain_timeout_ms": config.drain_timeout_ms})
    await server.stop()
    log.info("stopped")


async def _freeze_what_is_loaded_later() -> None:
    """Doors load their libraries when they are first used; a collection that looks at all of those holds the loop for 10 ms and more."""
    modules = len(sys.modules)
    while True:
        await asyncio.sleep(LATE_LOADING_S)
        if len(sys.modules) != modules:
            modules = len(sys.modules)
            gc.freeze()


@contextmanager
def _signals() -> Iterator[asyncio.Future[str]]:
    """A future that is done at the first SIGTERM or SIGINT; the second ends the process. Afterwards signals mean what they meant."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()

    def arrived(number: signal.Signals) -> None:
        if stopped.done():
            print(
                "sparrow: stopped at once by a second signal; the next start recovers",
                file=sys.stderr,
                flush=True,
            )
            os._exit(128 + number)
        stopped.set_result(number.name)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, arrived, number)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
