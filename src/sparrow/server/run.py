"""A server as a process: event loop, signals, exit.

The first SIGTERM or SIGINT drains and ends with exit code 0; the second ends the process at once
(nothing that was acknowledged is lost by that, the next start only has to recover).

SIGHUP loads certificates, tokens and the log level again, also where the process was started with
SIGHUP ignored (`nohup`). One exception: a broker that was started on a terminal, without `nohup`,
ends as by SIGTERM when the terminal is gone, as every program in the foreground does.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidConfig, SparrowError
from sparrow.records.validation import IS_COMPILED
from sparrow.server.files import allow_connections
from sparrow.server.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from sparrow.server.config import ServerConfig
    from sparrow.server.ready import Ready
    from sparrow.server.standby_listeners import StandbyListeners

log = logging.getLogger("sparrow.server")


LATE_LOADING_S = 1.0
"""Interval between two looks for modules that were loaded meanwhile."""


def run(
    config: ServerConfig,
    read_again: Callable[[], ServerConfig] | None = None,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Serve until a signal says stop. `read_again` reads the configuration again for SIGHUP;
    `sources` says where each option comes from.

    Raises:
        SparrowError: the start failed; see `Server.start`.
    """
    allow_connections(config)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, read_again, sources))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of uvloop's event loop where uvloop is installed, else of asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(
    config: ServerConfig,
    read_again: Callable[[], ServerConfig] | None,
    sources: Mapping[str, str] | None,
) -> None:
    if config.cluster.is_on:
        await _serve_in_cluster(config, read_again)
        return
    server = Server(config, read_again=read_again, sources=sources)
    with _signals(partial(_reload, server)) as stopped:
        await _run_until(stopped, server, config)


async def _serve_in_cluster(config: ServerConfig, read_again: Callable[[], ServerConfig] | None) -> None:
    try:
        from sparrow.server.cluster import ClusterServer
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"cluster.ledger needs the package {error.name}; install it with: "
            "pip install 'sparrow-broker[cluster]'"
        ) from None
    cluster = ClusterServer(config, read_again, _tell_ready)

    async def reload() -> None:
        if cluster.server is not None:
            await _reload(cluster.server)
        elif cluster.listeners is not None:
            await _reload_standby(cluster.listeners)

    with _signals(reload) as stopped:
        freezing = asyncio.get_running_loop().create_task(_freeze_what_is_loaded_later())
        await cluster.run(stopped)
        freezing.cancel()
    log.info("stopped")


async def _run_until(stopped: asyncio.Future[str], server: Server, config: ServerConfig) -> None:
    ready = await server.start()
    # Objects that exist now live until the end, so the garbage collector need not look at them
    # again.
    gc.freeze()
    gc.enable()
    freezing = asyncio.get_running_loop().create_task(_freeze_what_is_loaded_later())
    _tell_ready(server, ready)
    name = await stopped
    freezing.cancel()
    log.info("stopping", extra={"signal": name, "drain_timeout_ms": config.drain_timeout_ms})
    await server.stop()
    log.info("stopped")


def _tell_ready(server: Server, ready: Ready) -> None:
    print(server.banner(), file=sys.stderr, flush=True)
    checks = "compiled code" if IS_COMPILED else "Python code"
    log.info("ready", extra={"url": ready.url, "data_dir": ready.data_dir, "records_are_checked_by": checks})


async def _freeze_what_is_loaded_later() -> None:
    """Exempt modules that were loaded since the start from garbage collection: frontends load their
    libraries when they are first used, and a collection that looks at all of those blocks the loop
    for 10 ms and more.
    """
    modules = len(sys.modules)
    while True:
        await asyncio.sleep(LATE_LOADING_S)
        if len(sys.modules) != modules:
            modules = len(sys.modules)
            gc.freeze()


async def _reload(server: Server) -> None:
    if server.ready is None:  # the start reads the newest files anyway
        return
    try:
        await server.reload()
    except SparrowError as error:
        log.error("the configuration is not loaded again, all stays as it was: %s", error.text)  # noqa: TRY400 - no bug
    except Exception:
        log.exception("a bug in loading the configuration again; all stays as it was")


async def _reload_standby(listeners: StandbyListeners) -> None:
    try:
        await asyncio.to_thread(listeners.reload)
    except SparrowError as error:
        log.error("the configuration is not loaded again, all stays as it was: %s", error.text)  # noqa: TRY400 - no bug


def _has_terminal() -> bool:
    """Return True if the process belongs to a terminal that still exists."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@contextmanager
def _signals(reload: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[asyncio.Future[str]]:
    """Return a future that is done at the first SIGTERM or SIGINT; the second ends the process.
    SIGHUP runs `reload`. The former handlers are restored afterwards.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()
    ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
    reloads: set[asyncio.Task[None]] = set()

    def hung_up() -> None:
        if ends_with_terminal and not _has_terminal():
            if not stopped.done():
                stopped.set_result(signal.SIGHUP.name)
            return
        task = loop.create_task(reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    def arrived(number: signal.Signals) -> None:
        if stopped.done():
            print(
                "sparrow: stopped at once by a second signal; the next start recovers",
                file=sys.stderr,
                flush=True,
            )
            os._exit(128 + number)
        stopped.set_result(number.name)

    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in handled}
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, arrived, number)
    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
