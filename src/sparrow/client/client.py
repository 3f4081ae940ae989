"""The client: one connection, and what is done over it.

    async with sparrow.connect("sparrow://127.0.0.1:9094") as client:
        await client.publish("orders", b"one")

Everything of a client belongs to the loop on which it was connected; `sparrow.sync` is the same for threads.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Self, Unpack

from sparrow.base.errors import InvalidArgument
from sparrow.client.admin import Admin
from sparrow.client.channel import Channel
from sparrow.client.connection import Connection
from sparrow.client.job import Job
from sparrow.client.options import (
    Acks,
    ClientOptions,
    CommitMode,
    Isolation,
    Mode,
    ProducerOptions,
    QueueOptions,
    StartAt,
    SubscribeOptions,
    parse_acks,
    producer_options,
)
from sparrow.client.producer import Producer
from sparrow.client.queue import Queue
from sparrow.client.subscription import Subscription
from sparrow.client.url import parse_url
from sparrow.client.worker import Worker, WorkerOptions, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from sparrow.client.delivery import RecordMetadata
    from sparrow.client.intake import Key
    from sparrow.client.job import LeasedRecord
    from sparrow.client.queue import OnFailure
    from sparrow.client.schedule import Schedule
    from sparrow.client.subscription import OnAssigned, OnRevoked
    from sparrow.client.worker import AnyHandler, RetryDelay
    from sparrow.records.compression import Compression

DEFAULT_URL = "sparrow://127.0.0.1:9094"


class Client:
    """A connected client; made by `connect`. Loop thread only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._publishers: dict[int, asyncio.Task[Producer]] = {}
        self._producers: set[Producer] = set()
        self._subscriptions: set[Subscription] = set()
        self._channels: list[Channel] = []
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._workers = Workers()
        self.admin = Admin(connection)

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return str(self._connection.address)

    @property
    def is_connected(self) -> bool:
        """Whether there is a link now; while there is none, one is being sought."""
        return self._connection.link is not None

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    async def publish(
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
        """Publish one message and wait until it is kept as `acks` says; returns where it went.

        Tasks that publish at the same time share batches. For many messages one after the other use `producer`.

        Args:
            schedule: as for `Producer.send`: delay_ms, deliver_at, priority, ttl_ms, expires_at, message_id, parents.

        Raises:
            SparrowError: as `Producer.send`, and what kept the message from being written.
        """
        self._connection.check_loop()
        producer = await self._publisher(parse_acks(acks))
        delivery = await producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition, **schedule
        )
        return await delivery

    async def _publisher(self, acks: int) -> Producer:
        """The shared producer of all that publish with the same `acks`; opened by the first."""
        task = self._publishers.get(acks)
        if task is None or (task.done() and _is_broken(task)):
            task = self._publishers[acks] = asyncio.create_task(self._open_publisher(acks))
        return await asyncio.shield(task)

    async def _open_publisher(self, acks: int) -> Producer:
        options = ProducerOptions(acks=acks, idempotent=acks != 0, linger_ms=0)
        return await self._made(options).start()

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
        """A producer of its own, for streams of messages; use it as `async with`. See `ProducerOptions` for the arguments.

        Args:
            idempotent: default: yes, unless acks is 0.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
        """
        return self._made(
            producer_options(
                acks=acks,
                idempotent=idempotent,
                compression=compression,
                linger_ms=linger_ms,
                batch_bytes=batch_bytes,
                max_pending_bytes=max_pending_bytes,
                delivery_timeout_s=delivery_timeout_s,
            )
        )

    def _made(self, options: ProducerOptions) -> Producer:
        producer = Producer(
            self._connection,
            options,
            close_timeout_s=self._connection.options.close_timeout_s,
            on_close=self._producers.discard,
        )
        self._producers.add(producer)
        return producer

    # ── subscribing ───────────────────────────────────────────────────────────────────────────────

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
        """A subscription to topics and patterns (`*`, `?`); use it as `async with`. See `SubscribeOptions` for the arguments.

        Args:
            start: "beginning", "end", an offset, or a datetime; where the group has committed offsets, those win.
            on_assigned: called with [(topic, partition, first offset), …]; plain or async.
            on_revoked: called with [(topic, partition), …] and the reason, "" when the group takes them back: then they are
                given up when it returns, so it may commit.

        Raises:
            InvalidArgument: the arguments contradict each other or are out of range.
        """
        options = SubscribeOptions(
            group=group or "",
            commit=commit,
            auto_commit_interval_s=auto_commit_interval_s,
            mode=mode,
            prefetch_bytes=prefetch_bytes,
            session_timeout_ms=round(session_timeout_s * 1000),
            rebalance_timeout_ms=round(rebalance_timeout_s * 1000),
            isolation=isolation,
        )
        return self.subscription(topics, start, options, on_assigned=on_assigned, on_revoked=on_revoked)

    def subscription(
        self,
        topics: Sequence[str],
        start: StartAt,
        options: SubscribeOptions,
        *,
        positions: dict[Key, int] | None = None,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Subscription:
        """As `subscribe`, with an options object, and with explicit offsets for some partitions if wished."""
        subscription = Subscription(
            self._connection,
            topics,
            start,
            options,
            positions=positions,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_close=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    # ── queues ────────────────────────────────────────────────────────────────────────────────────

    def queue(
        self,
        name: str,
        *,
        prefetch: int = 100,
        subscriber: str | None = None,
        create: bool = True,
        on_failure: OnFailure | None = None,
    ) -> Queue:
        """A queue; use it as `async with`, iterate over it, or ask it for leases. Nothing is sent before it is used.

        Args:
            prefetch: how many jobs of an iteration are here at a time and not settled.
            subscriber: whose part of an "all of" queue.
            create: make it with the default policy if it is missing; `admin.create_queue` takes a policy.
            on_failure: called with a `SettlementFailure` when something said of jobs without waiting had no effect.

        Raises:
            InvalidArgument: an argument is out of range.
        """
        options = QueueOptions(prefetch=prefetch, subscriber=subscriber or "", create=create)
        return self.queue_with(name, options, on_failure=on_failure)

    def queue_with(
        self,
        name: str,
        options: QueueOptions,
        *,
        on_failure: OnFailure | None = None,
        make_job: Callable[..., LeasedRecord] = Job,
    ) -> Queue:
        """As `queue`, with an options object. `make_job` makes what an iteration hands out."""
        queue = Queue(
            self._connection,
            self.admin,
            self.publish,
            name,
            options,
            on_failure=on_failure,
            on_close=self._queues.discard,
            make_job=make_job,
        )
        self._queues.add(queue)
        return queue

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
        """Declare a function to be called with each job of a queue; `run_workers` calls it. See `WorkerOptions` for the arguments.

        The function stays as it is. It may be async, or a plain one: that runs in a thread, and gets a `BlockingJob`.

        Raises:
            InvalidArgument: an argument is out of range.
        """
        options = WorkerOptions(
            concurrency=concurrency,
            prefetch=prefetch,
            timeout_s=timeout_s,
            retry_delay_s=retry_delay_s,
            reject_on=reject_on if isinstance(reject_on, tuple) else (reject_on,),
            subscriber=subscriber or "",
            create=create,
        )

        def declare(handler: AnyHandler) -> AnyHandler:
            self._workers.add(Worker(self.queue_with, queue, handler, options))
            return handler

        return declare

    async def run_workers(self) -> None:
        """Let all declared workers work, until `stop_workers` or until this is cancelled (then what runs is cancelled and released).

        Raises:
            InvalidArgument: none is declared, or they run already.
            SparrowError: what ended one of them; the others are ended, too.
        """
        self._connection.check_loop()
        await self._workers.run()

    async def stop_workers(self, grace_s: float = 30.0) -> None:
        """Begin nothing new, let what runs finish within `grace_s` seconds, then cancel and release it. Returns when all have ended."""
        await self._workers.stop(grace_s)

    async def channel(self) -> Channel:
        """Queues in the style of msbq."""
        channel = Channel(self)
        self._channels.append(channel)
        return channel

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Stop the workers, flush and close the producers, end subscriptions and queues, say goodbye. Each bounded by `close_timeout_s`.

        Raises:
            SparrowError: a message that was sent was not confirmed, or a settlement that nobody waited for failed; everything is
                closed all the same.
        """
        self._connection.check_loop()
        try:
            await self._workers.stop(self._connection.options.close_timeout_s)
            for subscription in list(self._subscriptions):
                await subscription.close()
            left = await asyncio.gather(*(q.close() for q in list(self._queues)), return_exceptions=True)
            outcomes = await asyncio.gather(
                *(p.close() for p in list(self._producers)), return_exceptions=True
            )
        finally:
            await self._connection.close()
        for outcome in (*left, *outcomes):
            if isinstance(outcome, BaseException):
                raise outcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # the block's own error is the one to see
            await self.abandon()

    async def drop(self) -> None:
        """Cut the connection without a word, as a crash would: what is leased stays so until its lease ends, memberships until their session does.

        The client is of no use then; closing it does nothing more.
        """
        await self._connection.close(says_goodbye=False)

    async def abandon(self) -> None:
        """Close without waiting long, and without raising what failed."""
        try:
            await self._workers.stop(0)
            for subscription in list(self._subscriptions):
                await subscription.abandon()
            await asyncio.gather(*(q.abandon() for q in list(self._queues)), return_exceptions=True)
            await asyncio.gather(*(p.abandon() for p in list(self._producers)), return_exceptions=True)
        finally:
            await self._connection.close()


class Connecting:
    """What `connect` returns: await it, or use it as `async with`; it connects once."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        self._address = parse_url(url)
        self._options = options
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        if self._client is not None:
            raise InvalidArgument(
                "this connection was made already; call sparrow.connect again for another one"
            )
        connection = Connection(self._address, self._options)
        await connection.open()
        self._client = Client(connection)
        return self._client

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"nothing is connected yet, so there is no {name!r}; write `async with sparrow.connect(…) as client`, or"
                " `client = await sparrow.connect(…)`"
            )

    async def __aenter__(self) -> Client:
        return await self._connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, traceback)


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
) -> Connecting:
    """Connect to a broker: `async with connect(url) as client`, or `client = await connect(url)` and `await client.close()`.

    See `ClientOptions` for the arguments.

    Raises:
        InvalidArgument: the URL or an argument cannot be used (at once); the others when it is awaited:
        ConnectionLost: nobody can be reached there within `connect_timeout_s`.
        NotAuthenticated, UnsupportedVersion, ProtocolError: who is there does not let us in, or is no Sparrow broker.
    """
    return Connecting(
        url,
        ClientOptions(
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
        ),
    )


def _is_broken(task: asyncio.Task[Producer]) -> bool:
    """Whether the shared producer must be opened anew."""
    return task.cancelled() or task.exception() is not None or task.result().failure is not None
