"""The client for threads: each method runs its async namesake on the background thread."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, Self, Unpack

from sparrow.client.blocking import BlockingJob, Crossing
from sparrow.client.client import DEFAULT_URL
from sparrow.client.client import connect as connect_async
from sparrow.client.options import QueueOptions
from sparrow.sync.admin import Admin
from sparrow.sync.background import Background
from sparrow.sync.channel import Channel
from sparrow.sync.producer import Producer
from sparrow.sync.queue import Queue
from sparrow.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from sparrow.client.client import Client as AsyncClient
    from sparrow.client.client import Connecting
    from sparrow.client.delivery import RecordMetadata
    from sparrow.client.options import Acks, CommitMode, Isolation, Mode, StartAt
    from sparrow.client.queue import OnFailure
    from sparrow.client.schedule import Schedule
    from sparrow.client.subscription import OnAssigned, OnRevoked
    from sparrow.client.worker import AnyHandler, RetryDelay
    from sparrow.records.compression import Compression


class Client:
    """A connected client; made by `connect`. Any thread may use it."""

    def __init__(self, background: Background, client: AsyncClient) -> None:
        self._background = background
        self._client = client
        self._crossing = Crossing(background.run, background.call_soon)
        self._closing = threading.Lock()
        self._is_closed = False
        self.admin = Admin(background, client.admin)

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return self._client.address

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now; while there is none, one is being sought."""
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
        """Publish one message, wait until it is kept, return where it went. Raises as the async `publish`."""
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
    ) -> Producer:
        """A producer, for streams of messages; use it as `with`."""
        producer = self._client.producer(
            acks=acks,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            idempotent=idempotent,
            max_pending_bytes=max_pending_bytes,
            delivery_timeout_s=delivery_timeout_s,
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
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Subscription:
        """A subscription; iterate over it, best within `with`. The callbacks run on the client's thread and must not block."""
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
        on_failure: OnFailure | None = None,
    ) -> Queue:
        """A queue; use it as `with`, iterate over it, or ask it for leases. `on_failure` runs on the client's thread and must not block."""
        queue = self._client.queue_with(
            name,
            QueueOptions(prefetch=prefetch, subscriber=subscriber or "", create=create),
            on_failure=on_failure,
            make_job=functools.partial(BlockingJob, self._crossing),
        )
        return Queue(self._background, self._crossing, queue)

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
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Declare a function to be called with each job of a queue; `run_workers` calls it, in as many threads as `concurrency` says."""
        return self._client.worker(
            queue,
            concurrency=concurrency,
            prefetch=prefetch,
            timeout_s=timeout_s,
            retry_delay_s=retry_delay_s,
            reject_on=reject_on,
            subscriber=subscriber,
            create=create,
        )

    def run_workers(self, *, grace_s: float = 30.0) -> None:
        """Let all declared workers work, until `stop_workers` from another thread (or a signal's handler), or Ctrl-C: then what runs may finish
        within `grace_s` seconds. Raises as the async `run_workers`."""
        working = self._background.run(self._start_workers())
        try:
            end = self._background.run(_until_done(working))
        except KeyboardInterrupt:
            self.stop_workers(grace_s)
            raise
        if end is not None:
            raise end

    async def _start_workers(self) -> asyncio.Task[SystemExit | None]:
        return asyncio.create_task(_worked(self._client))

    def stop_workers(self, grace_s: float = 30.0) -> None:
        """Begin nothing new, let what runs finish within `grace_s` seconds, then release it. Returns when all have ended."""
        self._background.run(self._client.stop_workers(grace_s))

    def channel(self) -> Channel:
        """Queues in the style of msbq."""
        return Channel(self._background, self._background.run(self._client.channel()))

    def close(self) -> None:
        """Flush, say goodbye, end the thread. The second time nothing happens. Raises as the async `close`."""
        self._end(self._client.close)

    def drop(self) -> None:
        """Cut the connection without a word, as a crash would: what is leased stays so until its lease ends."""
        self._end(self._client.drop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._client.close if error is None else self._client.abandon)

    def _end(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
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
    background = Background()
    try:
        return Client(background, background.run(_connected(connecting)))
    except BaseException:
        background.stop()
        raise


async def _worked(client: AsyncClient) -> SystemExit | None:
    """Run the workers. A SystemExit would end this thread; it is for the one that waits."""
    try:
        await client.run_workers()
    except SystemExit as end:
        return end
    return None


async def _until_done(working: asyncio.Task[SystemExit | None]) -> SystemExit | None:
    return await asyncio.shield(working)


async def _connected(connecting: Connecting) -> AsyncClient:
    return await connecting
