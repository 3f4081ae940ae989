"""The client for threads: each method runs its async namesake on the background thread."""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, Unpack

from sparrow.client.blocking_jobs import BlockingJob, LoopBridge
from sparrow.client.client import DEFAULT_URL
from sparrow.client.client import connect as connect_async
from sparrow.client.policy import queue_options
from sparrow.client.signals import listening
from sparrow.sync.admin import Admin
from sparrow.sync.background import Background
from sparrow.sync.msbq_channel import Channel
from sparrow.sync.producer import Producer
from sparrow.sync.queue import Queue
from sparrow.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.client import Client as AsyncClient
    from sparrow.client.client import Connecting
    from sparrow.client.options import Acks, CommitMode, Isolation, Mode, OnRefused, StartAt
    from sparrow.client.policy import Policy
    from sparrow.client.queue import OnFailure
    from sparrow.client.schedule import Schedule
    from sparrow.client.subscription import OnAssigned, OnRevoked
    from sparrow.client.worker import AnyHandler, RetryDelay, Shutdown
    from sparrow.records.compression import Compression
    from sparrow.records.readable import OnCorrupt


class Client:
    """A connected client, made by `connect`. Any thread may use it."""

    def __init__(self, background: Background, client: AsyncClient) -> None:
        self._background = background
        self._client = client
        self._bridge = LoopBridge(background.run, background.post)
        self._closing = threading.Lock()
        self._is_closed = False
        self.admin = Admin(background, client.admin)

    def __repr__(self) -> str:
        return f"<blocking {repr(self._client)[1:]}"

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return self._client.address

    @property
    def is_connected(self) -> bool:
        """True while there is a connection. While there is none, the client tries to connect
        again.
        """
        return self._client.is_connected

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        acks: Acks = "all",
        **schedule: Unpack[Schedule],
    ) -> RecordMetadata:
        """Publish one message, wait until it is stored, and return its position. Raises as the
        async `publish`.
        """
        return self._background.run(
            self._client.publish(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
                acks=acks,
                **schedule,
            )
        )

    def producer(
        self,
        *,
        acks: Acks = "all",
        linger_ms: float = 5.0,
        batch_bytes: int = 128 << 10,
        compression: str | Compression = "none",
        idempotent: bool | None = None,
        max_pending_bytes: int = 32 << 20,
        delivery_timeout_s: float = 120.0,
        on_refused: OnRefused | None = None,
    ) -> Producer:
        """Return a producer for streams of messages; use it as `with`. `on_refused` is called on
        the client's thread and must not block.
        """
        producer = self._client.producer(
            acks=acks,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            idempotent=idempotent,
            max_pending_bytes=max_pending_bytes,
            delivery_timeout_s=delivery_timeout_s,
            on_refused=on_refused,
        )
        return Producer(self._background, producer)

    def subscribe(
        self,
        *topics: str,
        start: StartAt = "end",
        group: str | None = None,
        commit: CommitMode = "manual",
        auto_commit_interval_s: float = 5.0,
        mode: Mode = "push",
        prefetch_bytes: int = 4 << 20,
        session_timeout_s: float = 45.0,
        rebalance_timeout_s: float = 60.0,
        isolation: Isolation = "read_uncommitted",
        on_corrupt: OnCorrupt = "fail",
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Subscription:
        """Return a subscription; iterate over it, best within `with`. The callbacks run on the
        client's thread and must not block.
        """
        subscription = self._client.subscribe(
            *topics,
            start=start,
            group=group,
            commit=commit,
            auto_commit_interval_s=auto_commit_interval_s,
            mode=mode,
            prefetch_bytes=prefetch_bytes,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            isolation=isolation,
            on_corrupt=on_corrupt,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        return Subscription(self._background, subscription)

    def queue(
        self,
        name: str,
        *,
        prefetch: int = 100,
        subscriber: str | None = None,
        create: bool = True,
        policy: Policy | None = None,
        on_failure: OnFailure | None = None,
    ) -> Queue:
        """Return a queue; use it as `with`, iterate over it, or lease from it. `on_failure` runs on
        the client's thread and must not block.
        """
        queue = self._client.queue_with(
            name,
            queue_options(prefetch, subscriber, policy, create=create),
            on_failure=on_failure,
            make_job=functools.partial(BlockingJob, self._bridge),
        )
        return Queue(self._background, self._bridge, queue)

    def worker(
        self,
        queue: str,
        *,
        concurrency: int = 1,
        prefetch: int | None = None,
        timeout_s: float | None = None,
        retry_delay_s: RetryDelay = None,
        reject_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        subscriber: str | None = None,
        create: bool = True,
        policy: Policy | None = None,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Return a decorator that declares a function to be called with each job of a queue.
        `run_workers` calls it, in `concurrency` threads.
        """
        return self._client.worker(
            queue,
            concurrency=concurrency,
            prefetch=prefetch,
            timeout_s=timeout_s,
            retry_delay_s=retry_delay_s,
            reject_on=reject_on,
            subscriber=subscriber,
            create=create,
            policy=policy,
        )

    def run_workers(self, *, shutdown_timeout_s: float = 30.0, handle_signals: bool = True) -> None:
        """Run all declared workers until `stop_workers` from another thread, or a signal.

        In the main thread SIGTERM and SIGINT (Ctrl-C) end the run: no new job is started, running
        jobs may finish within `shutdown_timeout_s`, and are then released, which does not count as
        a delivery. A second signal releases them at once. Raises as the async `run_workers`.
        """
        background = self._background
        background.check_process()
        shutdown = self._client.shutdown(shutdown_timeout_s)
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

    def stop_workers(self, grace_s: float = 30.0) -> None:
        """Start no new jobs, let running ones finish within `grace_s` seconds, then release them.
        Return when all workers have ended.
        """
        self._background.run(self._client.stop_workers(grace_s))

    def channel(self) -> Channel:
        """Return a channel with queues in the style of msbq."""
        return Channel(self._background, self._background.run(self._client.channel()))

    def close(self) -> None:
        """Flush, say goodbye, and end the thread; do nothing if closed. Raises as the async
        `close`.
        """
        self._end(self._client.close)

    def drop(self) -> None:
        """Cut the connection without a goodbye, as a crash would: leases last until they expire."""
        self._end(self._client.drop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._client.close if error is None else self._client.abandon)

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


def connect(
    url: str = DEFAULT_URL,
    *,
    client_name: str = "",
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    connect_timeout_s: float = 5.0,
    reconnect_timeout_s: float | None = None,
    call_timeout_s: float = 30.0,
    close_timeout_s: float = 10.0,
) -> Client:
    """Connect to a broker; use the client as `with`, or close it. Raises as the async `connect`."""
    connecting = connect_async(
        url,
        client_name=client_name,
        token=token,
        user=user,
        password=password,
        ca_file=ca_file,
        certificate_file=certificate_file,
        key_file=key_file,
        connect_timeout_s=connect_timeout_s,
        reconnect_timeout_s=reconnect_timeout_s,
        call_timeout_s=call_timeout_s,
        close_timeout_s=close_timeout_s,
    )
    background = Background(connecting.address)
    try:
        return Client(background, background.run(_connected(connecting)))
    except BaseException:
        background.stop()
        raise


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
