"""The client for threads: each method runs its async namesake on the background thread."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ParamSpec, Self

from sparrow.client.blocking_jobs import BlockingJob
from sparrow.client.client import Client as AsyncClient
from sparrow.client.client import connect as connect_async
from sparrow.client.signals import listening
from sparrow.sync.admin import Admin
from sparrow.sync.background import Background
from sparrow.sync.msbq_channel import Channel
from sparrow.sync.part import BlockingPart, blocking, direct, wrapped
from sparrow.sync.producer import Producer
from sparrow.sync.queue import Queue
from sparrow.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from sparrow.client.client import Connecting
    from sparrow.client.worker import Shutdown

P = ParamSpec("P")
_CALLBACKS = "Callbacks run on the client's thread and must not block."


class Client(BlockingPart[AsyncClient]):
    """A connected client, made by `connect`. Any thread may use it."""

    def __init__(self, background: Background, client: AsyncClient) -> None:
        super().__init__(background, client)
        client.make_job = functools.partial(BlockingJob, background.bridge)
        self._closing = threading.Lock()
        self._is_closed = False
        self.admin = Admin(background, client.admin)

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return self._inner.address

    @property
    def is_connected(self) -> bool:
        """True while there is a connection. While there is none, the client tries to connect
        again.
        """
        return self._inner.is_connected

    publish = blocking(AsyncClient.publish)
    publish_once = blocking(AsyncClient.publish_once)
    request = blocking(AsyncClient.request)
    producer = wrapped(AsyncClient.producer, Producer, _CALLBACKS)
    subscribe = wrapped(AsyncClient.subscribe, Subscription, _CALLBACKS)
    queue = wrapped(AsyncClient.queue, Queue, _CALLBACKS)
    worker = direct(AsyncClient.worker, "`run_workers` calls it, in `concurrency` threads.")
    stop_workers = blocking(AsyncClient.stop_workers)

    def run_workers(self, *, shutdown_timeout_s: float = 30.0, handle_signals: bool = True) -> None:
        """Run all declared workers until `stop_workers` from another thread, or a signal.

        In the main thread SIGTERM and SIGINT (Ctrl-C) end the run: no new job is started, running
        jobs may finish within `shutdown_timeout_s`, and are then released, which does not count as
        a delivery. A second signal releases them at once. Raises as the async `run_workers`.
        """
        background = self._background
        background.check_process()
        shutdown = self._inner.shutdown(shutdown_timeout_s)
        with ExitStack() as stack:
            if handle_signals:
                on_signal = functools.partial(_signal, background, shutdown)
                stack.enter_context(listening(on_signal))
            working = background.run(_start(shutdown))
            try:
                end = background.wait(_until_done(working))
            except KeyboardInterrupt:
                self.stop_workers(shutdown_timeout_s)
                raise
        if end is not None:
            raise end

    def channel(self) -> Channel:
        """Return a channel with queues in the style of msbq."""
        return Channel(self._background, self._background.run(self._inner.channel()))

    def close(self) -> None:
        """Flush, say goodbye, and end the thread; do nothing if closed. Raises as the async
        `close`.
        """
        self._end(self._inner.close)

    def drop(self) -> None:
        """Cut the connection without a goodbye, as a crash would: leases last until they expire."""
        self._end(self._inner.drop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._inner.close if error is None else self._inner.abandon)

    def _end(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._background.is_forked:
            return
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._background.run(ending())
        finally:
            self._background.stop()


def _blocking_connect(connect: Callable[P, Connecting]) -> Callable[P, Client]:
    @functools.wraps(connect)
    def connect_and_wait(*args: P.args, **kwargs: P.kwargs) -> Client:
        connecting = connect(*args, **kwargs)
        background = Background(connecting.address)
        try:
            return Client(background, background.run(_connected(connecting)))
        except BaseException:
            background.stop()
            raise

    connect_and_wait.__doc__ = (
        "Connect to a broker; use the client as `with`, or close it. Raises as the async `connect`."
    )
    connect_and_wait.__module__ = __name__
    signature = inspect.signature(connect).replace(return_annotation="Client")
    connect_and_wait.__signature__ = signature  # type: ignore[attr-defined]
    return connect_and_wait


connect = _blocking_connect(connect_async)


def _signal(background: Background, shutdown: Shutdown, name: str) -> None:
    background.call_soon(lambda: shutdown.signalled(name))


async def _start(shutdown: Shutdown) -> asyncio.Task[SystemExit | None]:
    return asyncio.create_task(_worked(shutdown))


async def _worked(shutdown: Shutdown) -> SystemExit | None:
    """Run the workers. Return a SystemExit for the caller to raise: raised here it would end the
    background thread.
    """
    try:
        await shutdown.run()
    except SystemExit as end:
        return end
    return None


async def _until_done(working: asyncio.Task[SystemExit | None]) -> SystemExit | None:
    return await asyncio.shield(working)


async def _connected(connecting: Connecting) -> AsyncClient:
    return await connecting
