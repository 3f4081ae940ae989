"""The listener for clients of msbq: assertions of queues, messages for queues, and streams that
messages are pushed to.

A queue Q of msbq is the Sparrow queue Q on the topic Q, so all messages published to that topic are
delivered, and workers of other listeners compete with the streams. Messages of a client are
appended as they arrive, without waiting for the disk; an ErrorMessage names those that could not be
stored. Assertions are carried out in order with everything else of their connection.

`MsbqConnection` is a connection; `MsbqPort` has the queues with registered streams.
`msbq_routes.py` hands out messages, `msbq_send_queue.py` sends them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

from sparrow.base.errors import Draining, InvalidArgument, NotFound, SparrowError
from sparrow.broker.keyed_lock import KeyedLock
from sparrow.frontends.publisher import MessageColumns
from sparrow.frontends.seeds.caller import caller
from sparrow.frontends.seeds.connection import SeedConnection
from sparrow.frontends.seeds.context import Port, SeedPause
from sparrow.frontends.seeds.handout_queues import check_not_a_cursor
from sparrow.frontends.seeds.msbq_routes import TYPE_HEADER, MsbqRoute, RoutesPort
from sparrow.frontends.seeds.msbq_send_queue import SendQueue
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.publish_queue import PublishQueue
from sparrow.frontends.transport.connection import PauseReason
from sparrow.protocol.seeds.msbq import (
    P2P,
    PUBSUB,
    EndpointMessage,
    QueueAssertion,
    Receiver,
    Refusal,
    error_frame,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.frontends.seeds.context import SeedContext

NAME: Final = "msbq"
CONSUMER: Final = "msbq"
"""The id of the consumer that leases for all streams of a queue. It is always the same, so that
leases of a killed broker can be released.
"""
MAX_REGISTRATIONS: Final = 1_000
"""Limit of one connection."""
MAX_TYPES: Final = 100
UNREAD_BYTES: Final = 1 << 20
"""A client with more unread bytes gets no more error messages."""
COALESCE_S: Final = 0.001
"""If reads follow each other faster than this, reading pauses so that the next read brings more:
each read costs as much as many messages.
"""
COALESCE_BYTES: Final = 32 << 10
"""A read of this size is large enough."""
SHARE_OF_DRAIN_FOR_SOCKETS: Final = 0.25

Headers = tuple[tuple[str, bytes], ...]
_Call = tuple[str, str, list[EndpointMessage]]
"""Messages for a queue: the name that the client wrote, the topic, and the messages."""


def open_listener(context: SeedContext) -> MsbqPort:
    """Create the listener of msbq."""
    return MsbqPort(context)


class MsbqPort(RoutesPort):
    """All connections, and the queues that their streams are registered for. Loop thread only."""

    def __init__(self, context: SeedContext) -> None:
        super().__init__(NAME, context, MsbqConnection)
        self._made: set[str] = set()
        """Topics that this listener created since the broker started."""
        self._routes: dict[str, MsbqRoute] = {}
        self._locks = KeyedLock()
        """Locks of names, for creating and deleting their queues."""

    async def register(self, connection: MsbqConnection, asserted: QueueAssertion) -> None:
        """Create the queue if it is missing, and deliver its messages to the stream.

        Raises:
            InvalidArgument: the type does not exist, or the queue has another one. Draining,
                InvalidTopicName, UnknownTopic, NotAuthorized, DiskFull, StorageFailed
        """
        queue = topic_of(asserted.name.encode(errors="replace"))
        if asserted.type not in (P2P, PUBSUB):
            raise InvalidArgument(
                f"queue {asserted.name!r} has the Type {asserted.type!r}; it is {P2P} or {PUBSUB}"
            )
        async with self._locks.hold(queue):
            if self.is_stopping:
                raise Draining("the broker stops; connect again in a moment")
            route = self._routes.get(queue)
            if route is None:
                route = self._routes[queue] = await self._open(queue, asserted)
            elif route.kind != asserted.type:
                raise InvalidArgument(
                    f"queue {asserted.name!r} is of Type {route.kind} as long as it has consumers, "
                    f"not {asserted.type}"
                )
            route.is_temporary &= not asserted.is_durable
            if connection.is_open:
                connection.register(route, asserted.stream)
            elif not route.members:
                self.spawn(self._retire(route))

    async def _open(self, queue: str, asserted: QueueAssertion) -> MsbqRoute:
        check_not_a_cursor(self.broker, queue)
        await self._make_topic(queue)
        is_ours = queue in self._made and not self.broker.queues.exists(queue)
        await (await self._consumer(queue)).close(release=True)
        route = MsbqRoute(
            self,
            asserted.name,
            asserted.type,
            consumer=await self._consumer(queue),
            is_temporary=is_ours and not asserted.is_durable,
        )
        route.start()
        return route

    async def make_topic(self, name: str) -> None:
        """Create the topic of a queue if it is missing.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized, DiskFull, StorageFailed
        """
        async with self._locks.hold(name):
            await self._make_topic(name)

    async def _make_topic(self, name: str) -> None:
        if await self.ensure_topic(name):
            self._made.add(name)

    def _consumer(self, queue: str) -> Coroutine[object, object, QueueConsumer]:
        return self.broker.queues.open_consumer(
            queue, consumer_id=CONSUMER, client_name=NAME, create=True, principal=caller()
        )

    def unregister(self, connection: MsbqConnection, route: MsbqRoute, stream: str) -> None:
        """Remove a stream of a lost connection."""
        route.remove(connection, stream)
        if not route.members and not self.is_stopping and self._routes.get(route.queue) is route:
            self.spawn(self._retire(route))

    async def _retire(self, route: MsbqRoute) -> None:
        """Close a route without streams, unless a stream was registered meanwhile."""
        async with self._locks.hold(route.queue):
            if route.members or self._routes.get(route.queue) is not route:
                return
            await route.close()
            del self._routes[route.queue]
            if route.is_temporary and not self.is_stopping:
                await self._delete(route.queue)

    async def _delete(self, queue: str) -> None:
        broker = self.broker
        self._made.discard(queue)
        try:
            await broker.queues.delete(queue, principal=caller())
            await broker.topics.delete(queue, principal=caller())
        except NotFound:
            pass  # deleted by another client
        except SparrowError as error:
            self.logger.warning("msbq: queue %r could not be deleted: %s", queue, error.text)

    def route_ended(self, route: MsbqRoute, error: SparrowError) -> None:
        self.logger.warning("msbq: queue %r ended: %s", route.queue, error.text)
        members, route.members = route.members, {}
        if self._routes.get(route.queue) is route:
            del self._routes[route.queue]
        self.spawn(route.close())
        for connection, stream in members:
            connection.forget(route, stream)
            connection.report(f"queue {route.name!r} ended: {error.text}", stream)

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing new, finish what was received, close all connections. Takes at most about
        `timeout_s`.
        """
        self.stop()
        deadline = self.loop.time() + timeout_s
        for route in self._routes.values():
            route.stop()
        patience = self.loop.time() + timeout_s * SHARE_OF_DRAIN_FOR_SOCKETS
        while self.untaken_bytes and self.loop.time() < patience:  # noqa: ASYNC110 - rare, and short
            await asyncio.sleep(0.005)
        await asyncio.gather(*(route.close() for route in list(self._routes.values())))
        await super().drain(max(0.0, deadline - self.loop.time()))


class MsbqConnection(SeedConnection):
    """One connection with its streams."""

    context: MsbqPort

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._receiver = Receiver(port.settings.max_message_bytes)
        self._publish_queue = PublishQueue(self, self._publish_failed)
        self._todo: deque[list[EndpointMessage] | QueueAssertion | Refusal] = deque()
        self._running: asyncio.Task[None] | None = None
        self._last_read_s = 0.0
        """When bytes were last received (loop time)."""
        self._registered: set[tuple[MsbqRoute, str]] = set()
        self._headers: dict[str, Headers] = {"": ()}
        """The record headers of each message type."""
        self.send_queue = SendQueue(self)

    # ── events of the peer ────────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        """Set the high-water mark to 0, so that every byte that the socket does not take is
        reported, and also when none is left.
        """
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=0)
        self.reset_on_close()

    @property
    def unfinished_bytes(self) -> int:
        return self._receiver.bytes_wanted

    def received(self, data: bytes) -> bool:
        self._receiver.receive_data(data)
        events = self._receiver.events()
        for kind, run in groupby(events, type):
            if kind is EndpointMessage:
                self._todo.append(cast("list[EndpointMessage]", list(run)))
            else:
                self._todo.extend(cast("Iterable[QueueAssertion | Refusal]", run))
        self._work()
        if not self._registered and len(data) < COALESCE_BYTES:
            self._coalesce_reads()
        return bool(events)

    def _coalesce_reads(self) -> None:
        """Pause reading for a moment if messages arrive one by one, so that the next read brings
        many.
        """
        now_s = self.context.loop.time()
        if now_s - self._last_read_s < COALESCE_S:
            self.pause_reading(SeedPause.COALESCE)
            self.context.loop.call_later(COALESCE_S, self.resume_reading, SeedPause.COALESCE)
        self._last_read_s = now_s

    def _work(self) -> None:
        """Handle events in order until one takes time. Messages are published even if the
        connection is lost by now.
        """
        todo = self._todo
        while todo and self._running is None:
            event = todo.popleft()
            if isinstance(event, list):
                self._publish(event)
            elif not self.is_open:
                continue
            elif isinstance(event, QueueAssertion):
                self._run_exclusively(partial(self._assert, event))
            else:
                self._refuse(event)

    def _publish(self, messages: list[EndpointMessage]) -> None:
        """Publish messages that were received together, with one call for each queue."""
        routes: dict[str, list[EndpointMessage]] = {messages[0].route: messages}
        if len({message.route for message in messages}) > 1:
            routes = {}
            for message in messages:
                routes.setdefault(message.route, []).append(message)
        missing: list[_Call] = []
        for route, these in routes.items():
            try:
                topic = topic_of(route.encode(errors="replace"))
            except SparrowError as error:
                self._report_failure(route, these[-1].stream, these, error)
                continue
            if self.context.broker.topics.exists(topic):
                self._publish_to(route, topic, these)
            else:
                missing.append((route, topic, these))
        if missing:
            self._run_exclusively(partial(self._make_topics_and_publish, missing))

    async def _make_topics_and_publish(self, calls: Sequence[_Call]) -> None:
        for route, topic, messages in calls:
            try:
                await self.context.make_topic(topic)
            except SparrowError as error:
                self._report_failure(route, messages[-1].stream, messages, error)
            else:
                self._publish_to(route, topic, messages)

    def _publish_to(self, route: str, topic: str, messages: Sequence[EndpointMessage]) -> None:
        values = [message.body for message in messages]
        known = self._headers
        headers = [known.get(message.type) or self._headers_of(message.type) for message in messages]
        self._publish_queue.publish(
            topic,
            MessageColumns(values, None, headers if any(headers) else None),
            sum(map(len, filter(None, values))),
            partial(self._report_failure, route, messages[-1].stream),
        )

    def _report_failure(
        self, route: str, stream: str, messages: Sequence[object], error: SparrowError | None
    ) -> None:
        """Report messages that could not be stored to the stream that published the last of
        them.
        """
        if error is not None:
            self.report(
                f"{len(messages)} of the messages for queue {route!r} could not be kept: {error.text}", stream
            )

    def _publish_failed(self, topic: str, count: int, error: SparrowError) -> None:
        """Do nothing: `_report_failure` has reported it."""

    def _headers_of(self, kind: str) -> Headers:
        if not kind:
            return ()
        if len(self._headers) > MAX_TYPES:
            self._headers.clear()
        headers = self._headers[kind] = ((TYPE_HEADER, kind.encode(errors="replace")),)
        return headers

    def _run_exclusively(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run this before any later event is handled."""
        self.pause_reading(SeedPause.WORK)
        self._running = self.context.spawn(self._until_done(work))

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._running = None
            self._work()
            if self._running is None:
                self.resume_reading(SeedPause.WORK)

    @property
    def has_work(self) -> bool:
        return self._running is not None or not self._publish_queue.is_settled

    async def until_done(self) -> None:
        while self._running is not None:
            await asyncio.wait([self._running])
        await self._publish_queue.settled()

    def drained(self) -> None:
        if self.has_work:
            self.context.spawn(self._leave())
        else:
            self.close()

    async def _assert(self, asserted: QueueAssertion) -> None:
        try:
            await self.context.register(self, asserted)
        except SparrowError as error:
            self.report(f"queue {asserted.name!r} cannot be had: {error.text}", asserted.stream)

    def _refuse(self, refusal: Refusal) -> None:
        self.report(refusal.error.text, refusal.stream)
        if refusal.is_last:
            self.allow_clean_close()
            self.send_queue.flush()
            self.refuse(refusal.error.text)

    def report(self, text: str, stream: str) -> None:
        """Send an error message. A client that does not read gets no more of them, and is not read
        from.
        """
        if self.is_open and self.send_queue.waiting_bytes <= UNREAD_BYTES:
            self.send_queue.push([error_frame(text, stream)])
        elif self.is_open:
            self.pause_reading(PauseReason.WRITE)

    # ── registrations ─────────────────────────────────────────────────────────────────────────────

    def register(self, route: MsbqRoute, stream: str) -> None:
        """Deliver the messages of a queue to a stream.

        Raises:
            InvalidArgument: the connection has too many streams.
        """
        if (route, stream) not in self._registered and len(self._registered) >= MAX_REGISTRATIONS:
            raise InvalidArgument(
                f"this connection has {MAX_REGISTRATIONS} streams registered for queues, which is "
                "the most; open another one"
            )
        self._registered.add((route, stream))
        self.allow_clean_close()  # a reset would lose messages in the socket
        route.add(self, stream)

    def forget(self, route: MsbqRoute, stream: str) -> None:
        """Remove a registration whose queue ended."""
        self._registered.discard((route, stream))

    def lost(self) -> None:
        self.send_queue.lost()
        registered, self._registered = self._registered, set()
        for route, stream in registered:
            self.context.unregister(self, route, stream)

    # ── push ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def has_room(self) -> bool:
        """True if the socket took everything so far."""
        return self.is_open and self.send_queue.has_room

    def pause_writing(self) -> None:
        self.send_queue.paused()

    def resume_writing(self) -> None:
        self.send_queue.resumed()

    def writable(self) -> None:
        self.resume_reading(PauseReason.WRITE)
        for route, _ in self._registered:
            route.wake()
