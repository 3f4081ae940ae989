"""The client: one session with a broker, and everything that is done over it.

    async with sparrow.connect("sparrow://127.0.0.1:9094") as client:
        await client.publish("orders", b"one")

A client and all its parts belong to the event loop on which it was connected; `sparrow.sync` is the
same for threads. In a process that was forked from the one that connected, every use raises
`UsedAfterFork`, and closing does nothing (`sparrow.base.forks`).
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Self, Unpack

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InvalidArgument
from sparrow.client.admin import Admin
from sparrow.client.admin_base import result_as
from sparrow.client.job import Job
from sparrow.client.message import as_bytes, checked_parts
from sparrow.client.msbq_channel import Channel
from sparrow.client.options import (
    Acks,
    ClientOptions,
    CommitMode,
    Isolation,
    Mode,
    ProducerOptions,
    StartAt,
    SubscribeOptions,
    check_name,
    parse_acks,
    producer_options,
)
from sparrow.client.policy import queue_options, settings_of
from sparrow.client.producer import Producer
from sparrow.client.queue import Queue
from sparrow.client.replies import Replies
from sparrow.client.results import OncePublished
from sparrow.client.schedule import Schedule, with_schedule
from sparrow.client.session import Session
from sparrow.client.signals import listening
from sparrow.client.subscription import Subscription
from sparrow.client.url import parse_url
from sparrow.client.worker import Shutdown, Worker, WorkerOptions, WorkerSet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.job import LeasedRecord
    from sparrow.client.options import OnRefused, QueueOptions
    from sparrow.client.policy import Policy
    from sparrow.client.queue import OnFailure
    from sparrow.client.subscription import OnAssigned, OnRevoked
    from sparrow.client.worker import AnyHandler, RetryDelay
    from sparrow.records.compression import Compression
    from sparrow.records.readable import OnCorrupt
    from sparrow.records.record import Record
    from sparrow.records.topic_partition import TopicPartition

DEFAULT_URL = "sparrow://127.0.0.1:9094"


class Client:
    """A connected client, made by `connect`. Loop thread only."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._publishers: dict[int, Producer] = {}
        """The producers that all publishes with the same `acks` share."""
        self._publisher_tasks: dict[int, asyncio.Task[Producer]] = {}
        """The tasks that open, or opened, them."""
        self._producers: set[Producer] = set()
        self._subscriptions: set[Subscription] = set()
        self._channels: list[Channel] = []
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._workers = WorkerSet()
        self._replies: Replies | None = None
        self._requested: dict[str, Queue] = {}
        self.admin = Admin(session)
        self.make_job: Callable[..., LeasedRecord] = Job
        """Makes the jobs of queues; the client for threads has its own."""

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return str(self._session.address)

    def __repr__(self) -> str:
        return f"<Client of {self.address}, {self._session.state}>"

    @property
    def is_connected(self) -> bool:
        """True while there is a connection. While there is none, the client tries to connect
        again.
        """
        return self._session.connection is not None

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
        """Publish one message, wait until it is stored as `acks` asks, and return its position.

        Tasks that publish at the same time share batches. For many messages in a row, use
        `producer`.

        Args:
            schedule: delay_ms, deliver_at, priority, ttl_ms, expires_at, message_id, parents, as
                for `Producer.send`.

        Raises:
            SparrowError: as `Producer.send`, or the error that kept the message from being written.
        """
        self._session.check_loop()
        known_acks = parse_acks(acks)
        producer = self._publishers.get(known_acks)
        if producer is None or producer.failure is not None:
            producer = await self._new_publisher(known_acks)
        delivery = await producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition, **schedule
        )
        return await delivery

    async def publish_once(
        self,
        topic: str,
        value: bytes | None,
        *,
        once: str,
        window_s: float | None = None,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        **schedule: Unpack[Schedule],
    ) -> OncePublished:
        """Publish a message, unless this user published one with the same text `once` to the topic
        within the window; return the position of that first message. Repeating the call after an
        error is safe.

        Args:
            once: at most 500 characters.
            window_s: seconds; at most, and by default, the broker's `http.idempotency_window` (a
                day).
            schedule: as for `publish`.

        Raises:
            InvalidArgument: an argument has a wrong type or value.
            SparrowError: the error that kept the message from being written.
        """
        if value is not None:
            value = as_bytes("value", value)
        key, plain, _ = checked_parts(key, headers)
        if schedule:
            plain = with_schedule(plain, schedule, SystemClock().wall_ms())
        arguments = {
            "name": topic,
            "once": once,
            "value": value,
            "key": key,
            "headers": [list(pair) for pair in plain],
            "window_ms": 0 if window_s is None else max(1, round(window_s * 1000)),
        }
        return result_as(
            OncePublished, await self._session.call("topic.publish_once", arguments, is_read=True)
        )

    async def request(
        self,
        queue: str,
        value: bytes | None,
        timeout_s: float = 30.0,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        **schedule: Unpack[Schedule],
    ) -> Record:
        """Publish a message to a queue, and wait for the reply of its job (`Job.reply`); return the
        reply's message.

        Args:
            timeout_s: limit of the wait, in seconds; a job that has not begun by then expires,
                unless `ttl_ms` or `expires_at` say otherwise.
            schedule: as for `publish`.

        Raises:
            TimedOut: there is no reply in time.
            SparrowError: as `Queue.publish`; the topic of the replies cannot be created or read.
        """
        self._session.check_loop()
        if self._replies is None:
            self._replies = Replies(self.admin, self.subscribe)
        found = self._requested.get(queue)
        if found is None:
            found = self._requested[queue] = self.queue(queue)
        options: dict[str, Any] = {"key": key, **schedule}
        if "expires_at" in schedule:
            options["ttl_ms"] = None
        return await self._replies.request(found.publish, value, timeout_s, headers, options)

    async def _new_publisher(self, acks: int) -> Producer:
        """Open a producer, for all that call this meanwhile."""
        task = self._publisher_tasks.get(acks)
        if task is None or task.done():
            task = self._publisher_tasks[acks] = asyncio.create_task(self._open_publisher(acks))
        return await asyncio.shield(task)

    async def _open_publisher(self, acks: int) -> Producer:
        options = ProducerOptions(acks=acks, idempotent=acks != 0, linger_ms=0)
        producer = self._publishers[acks] = await self._made(options).start()
        return producer

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
        """Return a producer for streams of messages; use it as `async with`.

        The arguments are those of `ProducerOptions`, except for these:

        Args:
            idempotent: default: True, unless acks is 0.
            on_refused: called on the loop with the broker's error (`DiskFull`, …) when the broker
                takes no messages for now, and again only after it has taken some. The producer
                retries until `delivery_timeout_s` is over. Default: a warning in the log
                `sparrow.client`.

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
                on_refused=on_refused,
            )
        )

    def _made(self, options: ProducerOptions) -> Producer:
        self._session.check_process()
        producer = Producer(
            self._session,
            options,
            close_timeout_s=self._session.options.close_timeout_s,
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
        on_corrupt: OnCorrupt = "fail",
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Subscription:
        """Return a subscription to topics and patterns (`*`, `?`); use it as `async with`.

        The arguments are those of `SubscribeOptions`, except for these:

        Args:
            start: "beginning", "end", an offset, or a datetime. Offsets that the group has
                committed take precedence.
            on_assigned: called with [(topic, partition, first offset), …]; plain or async.
            on_revoked: called with [(topic, partition), …] and the reason; plain or async. The
                reason is "" when the group moves the partitions to another member: they are
                released when the callback returns, so it may commit.

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
            on_corrupt=on_corrupt,
        )
        return self.subscription(topics, start, options, on_assigned=on_assigned, on_revoked=on_revoked)

    def subscription(
        self,
        topics: Sequence[str],
        start: StartAt,
        options: SubscribeOptions,
        *,
        positions: dict[TopicPartition, int] | None = None,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Subscription:
        """Return a subscription as `subscribe` does, from an options object; `positions` are
        offsets to start at, for some partitions.
        """
        self._session.check_process()
        subscription = Subscription(
            self._session,
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
        policy: Policy | None = None,
        on_failure: OnFailure | None = None,
    ) -> Queue:
        """Return a queue; use it as `async with`, iterate over it, or lease from it. Nothing is
        sent before the first use.

        Args:
            prefetch: the most jobs of an iteration that are here and not settled.
            subscriber: the subscriber to consume for, where the queue has subscribers ("all of").
            create: create the queue if it is missing.
            policy: settings that the queue must have, such as {"lease": "30s"};
                `admin.ensure_queue` applies them before the first use.
            on_failure: called with a `SettlementFailure` when a settlement that is not awaited had
                no effect.

        Raises:
            InvalidArgument: an argument is out of range.
            InvalidConfig: the policy has an unknown setting or a wrong value.
        """
        options = queue_options(prefetch, subscriber, policy, create=create)
        return self.queue_with(name, options, on_failure=on_failure, make_job=self.make_job)

    def queue_with(
        self,
        name: str,
        options: QueueOptions,
        *,
        on_failure: OnFailure | None = None,
        make_job: Callable[..., LeasedRecord] = Job,
    ) -> Queue:
        """Return a queue as `queue` does, from an options object. `make_job` makes the jobs of an
        iteration.
        """
        self._session.check_process()
        queue = Queue(
            self._session,
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
        policy: Policy | None = None,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Return a decorator that declares a function to be called with each job of a queue.

        `run_workers` calls it. The arguments are those of `WorkerOptions`. The function itself is
        returned unchanged. It may be async, or plain: a plain one runs in a thread and gets a
        `BlockingJob`.

        Raises:
            TypeError: the declared object is not a function of one argument, or the queue's name is
                missing.
            InvalidArgument: an argument is out of range.
            InvalidConfig: the policy has an unknown setting or a wrong value.
        """
        self._session.check_process()
        if callable(queue):
            raise TypeError('@client.worker needs the name of a queue: @client.worker("emails")')
        check_name("the name of a queue", queue)
        options = WorkerOptions(
            concurrency=concurrency,
            prefetch=prefetch,
            timeout_s=timeout_s,
            retry_delay_s=retry_delay_s,
            reject_on=reject_on if isinstance(reject_on, tuple) else (reject_on,),
            subscriber=subscriber or "",
            create=create,
            policy=None if policy is None else settings_of(policy),
        )

        def declare(handler: AnyHandler) -> AnyHandler:
            check = self._session.check_process
            self._workers.add(Worker(self.queue_with, queue, handler, options, check_process=check))
            return handler

        return declare

    async def run_workers(self, *, shutdown_timeout_s: float = 30.0, handle_signals: bool = True) -> None:
        """Run all declared workers until `stop_workers`, a signal, or cancellation of this call
        (running jobs are then cancelled and released).

        In the main thread SIGTERM and SIGINT (Ctrl-C) end the run: no new job is started, and
        running jobs may finish within `shutdown_timeout_s`. After that they are cancelled and
        released, which does not count as a delivery. A second signal releases them at once. Either
        way this returns as after `stop_workers`, and restores the signal handlers. A handler that
        the program has set is called as well.

        Args:
            shutdown_timeout_s: how long running jobs may take after a signal, in seconds.
            handle_signals: False leaves signals to the program. Outside the main thread they are
                always left to it.

        Raises:
            InvalidArgument: no worker is declared, they already run, or the time is negative.
            SparrowError: the error that ended one of them; the others are stopped, too.
        """
        self._session.check_loop()
        shutdown = self.shutdown(shutdown_timeout_s)
        if not handle_signals:
            await shutdown.run()
            return
        loop = self._session.loop
        with listening(lambda name: loop.call_soon_threadsafe(shutdown.signalled, name)):
            await shutdown.run()

    def shutdown(self, timeout_s: float) -> Shutdown:
        """Return one run of the workers, for callers that receive signals outside the loop."""
        return Shutdown(self._workers, timeout_s)

    async def stop_workers(self, grace_s: float = 30.0) -> None:
        """Start no new jobs, let running ones finish within `grace_s` seconds, then cancel and
        release them. Return when all workers have ended.
        """
        self._session.check_process()
        await self._workers.stop(grace_s)

    async def channel(self) -> Channel:
        """Return a channel with queues in the style of msbq."""
        self._session.check_process()
        channel = Channel(self)
        self._channels.append(channel)
        return channel

    # ── closing ───────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Stop the workers, flush and close the producers, end subscriptions and queues, and say
        goodbye. Each step takes at most `close_timeout_s`.

        Raises:
            SparrowError: a message that was sent was not confirmed, or a settlement that was not
                awaited failed. Everything is closed nevertheless.
        """
        if self._session.is_forked:
            return
        self._session.check_loop()
        try:
            await self._workers.stop(self._session.options.close_timeout_s)
            if self._replies is not None:
                await self._replies.close()
            for subscription in list(self._subscriptions):
                await subscription.close()
            left = await asyncio.gather(*(q.close() for q in list(self._queues)), return_exceptions=True)
            outcomes = await asyncio.gather(
                *(p.close() for p in list(self._producers)), return_exceptions=True
            )
        finally:
            await self._session.close()
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
        else:  # show the block's own error
            await self.abandon()

    async def drop(self) -> None:
        """Cut the connection without a goodbye, as a crash would: leases last until they expire,
        memberships until their session times out.

        The client cannot be used afterwards; closing it does nothing more.
        """
        await self._session.close(says_goodbye=False)

    async def abandon(self) -> None:
        """Close without waiting long, and without raising errors of sent messages."""
        if self._session.is_forked:
            return
        try:
            await self._workers.stop(0)
            if self._replies is not None:
                await self._replies.close()
            for subscription in list(self._subscriptions):
                await subscription.abandon()
            await asyncio.gather(*(q.abandon() for q in list(self._queues)), return_exceptions=True)
            await asyncio.gather(*(p.abandon() for p in list(self._producers)), return_exceptions=True)
        finally:
            await self._session.close()


class Connecting:
    """The result of `connect`: await it, or use it as `async with`. It connects once."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        self._address = parse_url(url)
        self._options = options
        self._client: Client | None = None

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return str(self._address)

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        if self._client is not None:
            raise InvalidArgument(
                "this connection was made already; call sparrow.connect again for another one"
            )
        session = Session(self._address, self._options)
        await session.open()
        self._client = Client(session)
        return self._client

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"nothing is connected yet, so there is no {name!r}; write `async with sparrow.connect(…) as "
                "client`, or `client = await sparrow.connect(…)`"
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
    """Connect to a broker: `async with connect(url) as client`, or `client = await connect(url)`
    and `await client.close()`.

    The arguments are those of `ClientOptions`.

    Raises:
        InvalidArgument: the URL or an argument is invalid. Raised at once; the others when the
            result is awaited.
        ConnectionLost: no broker was reached within `connect_timeout_s`.
        NotAuthenticated, UnsupportedVersion, ProtocolError: the broker refuses the client, or the
            peer is not a Sparrow broker.
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
