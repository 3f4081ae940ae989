"""The door for msbq's clients: queues that are asserted, messages for them, streams that are pushed what comes.

A queue Q of msbq is the Sparrow queue Q on the topic Q, so whatever is published to that topic comes out, and workers of other doors compete
with the streams. What a client publishes is appended as it comes, without a wait for the disk; an ErrorMessage tells what could not be kept.
Assertions are carried out one after the other with everything else of their connection.

`Session` is a connection, `MsbqPort` has the queues that streams are registered for; what is handed out is in `msbq_routes.py`, how it is sent in
`msbq_outlet.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

from sparrow.base.errors import Draining, InvalidArgument, NotFound, SparrowError
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.publishing import Columns
from sparrow.frontends.seeds.intake import Intake
from sparrow.frontends.seeds.msbq_outlet import Outlet
from sparrow.frontends.seeds.msbq_routes import PORT_UNTAKEN_BYTES, TYPE_HEADER, Route
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import Hold, Port, Pump
from sparrow.frontends.seeds.queues import check_is_no_cursor
from sparrow.frontends.seeds.topics import ensure_topic
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
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.frontends.seeds.frontend import Context

NAME: Final = "msbq"
CONSUMER: Final = "msbq"
"""The consumer that stands for all streams of a queue. Always the same, so that what a broker held that was killed is given back."""
MAX_REGISTRATIONS: Final = 1_000
"""Of one connection."""
MAX_TYPES: Final = 100
UNREAD_BYTES: Final = 1 << 20
"""Who leaves so much unread is told nothing more of its errors."""
GATHER_S: Final = 0.001
"""Reads that follow each other faster than this make way for one that brings more: each costs what many messages cost."""
GATHER_BYTES: Final = 32 << 10
"""A read that brings so much is large enough."""
SHARE_OF_DRAIN_FOR_SOCKETS: Final = 0.25

Headers = tuple[tuple[str, bytes], ...]
_Call = tuple[str, str, list[EndpointMessage]]
"""Messages for a queue: its name as the client wrote it, its topic, and they."""


def open_door(context: Context) -> MsbqPort:
    """The port of msbq."""
    return MsbqPort(context)


class MsbqPort(Port):
    """All connections, and the queues that their streams are registered for. Loop thread only."""

    def __init__(self, context: Context) -> None:
        super().__init__(NAME, context, Session)
        self.untaken_bytes = 0
        """Handed out, and not taken by sockets yet."""
        self.waiting: set[Route] = set()
        """Those that wait for room."""
        self._made: set[str] = set()
        """Topics that this door made since the broker started."""
        self._routes: dict[str, Route] = {}
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def _alone(self, queue: str) -> AsyncIterator[None]:
        """Nobody else makes or deletes the queue meanwhile."""
        lock, users = self._locks.get(queue, (asyncio.Lock(), 0))
        self._locks[queue] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(queue)
            if users > 1:
                self._locks[queue] = lock, users - 1

    async def register(self, session: Session, asserted: QueueAssertion) -> None:
        """Make the queue if it is missing, and give the stream its messages.

        Raises:
            InvalidArgument: no such type, or the queue has another one.
            Draining, InvalidTopicName, UnknownTopic, NotAuthorized, DiskFull, StorageFailed
        """
        queue = topic_of(asserted.name.encode(errors="replace"))
        if asserted.type not in (P2P, PUBSUB):
            raise InvalidArgument(
                f"queue {asserted.name!r} has the Type {asserted.type!r}; it is {P2P} or {PUBSUB}"
            )
        async with self._alone(queue):
            if self.is_draining:
                raise Draining("the broker stops; connect again in a moment")
            route = self._routes.get(queue)
            if route is None:
                route = self._routes[queue] = await self._open(queue, asserted)
            elif route.kind != asserted.type:
                raise InvalidArgument(
                    f"queue {asserted.name!r} is of Type {route.kind} as long as it has consumers, not {asserted.type}"
                )
            route.vanishes &= not asserted.is_durable
            if session.is_open:
                session.register(route, asserted.stream)
            elif not route.members:
                self.start(self._retire(route))

    async def _open(self, queue: str, asserted: QueueAssertion) -> Route:
        check_is_no_cursor(self.context.broker, queue)
        await self._make_topic(queue)
        is_ours = queue in self._made and self.context.broker.queues.registry.find(queue) is None
        await (await self._consumer(queue)).close(give_back=True)
        route = Route(
            self,
            asserted.name,
            asserted.type,
            consumer=await self._consumer(queue),
            vanishes=is_ours and not asserted.is_durable,
        )
        route.start()
        return route

    async def make_topic(self, name: str) -> None:
        """Make the topic of a queue if it is missing.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized, DiskFull, StorageFailed
        """
        async with self._alone(name):
            await self._make_topic(name)

    async def _make_topic(self, name: str) -> None:
        if await ensure_topic(self.context.broker, name):
            self._made.add(name)

    def _consumer(self, queue: str) -> Coroutine[object, object, QueueConsumer]:
        return self.context.broker.queues.open_consumer(
            queue, consumer_id=CONSUMER, client_name=NAME, create=True, principal=ANONYMOUS
        )

    def unregister(self, session: Session, route: Route, stream: str) -> None:
        """The stream is gone."""
        route.remove(session, stream)
        if not route.members and not self.is_draining and self._routes.get(route.queue) is route:
            self.start(self._retire(route))

    async def _retire(self, route: Route) -> None:
        """Nobody takes the queue's messages any more, unless somebody came meanwhile."""
        async with self._alone(route.queue):
            if route.members or self._routes.get(route.queue) is not route:
                return
            await route.close()
            del self._routes[route.queue]
            if route.vanishes and not self.is_draining:
                await self._delete(route.queue)

    async def _delete(self, queue: str) -> None:
        broker = self.context.broker
        self._made.discard(queue)
        try:
            await broker.queues.delete(queue, principal=ANONYMOUS)
            await broker.delete_topic(queue, principal=ANONYMOUS)
        except NotFound:
            pass  # somebody else deleted it
        except SparrowError as error:
            self.context.logger.warning("msbq: queue %r could not be deleted: %s", queue, error.text)

    def route_ended(self, route: Route, error: SparrowError) -> None:
        """The queue was deleted, or may not be read any more."""
        self.context.logger.warning("msbq: queue %r ended: %s", route.queue, error.text)
        members, route.members = route.members, {}
        if self._routes.get(route.queue) is route:
            del self._routes[route.queue]
        self.start(route.close())
        for session, stream in members:
            session.forget(route, stream)
            session.report(f"queue {route.name!r} ended: {error.text}", stream)

    def waits(self, size_bytes: int) -> None:
        """So much more waits for sockets, or less."""
        self.untaken_bytes += size_bytes
        if size_bytes < 0 and self.untaken_bytes <= PORT_UNTAKEN_BYTES:
            for route in list(self.waiting):
                route.wake()

    async def drain(self, timeout_s: float) -> None:
        """Take nothing new, finish what was taken, close all connections; takes at most about `timeout_s`."""
        self.is_draining = True
        deadline = self.loop.time() + timeout_s
        for route in self._routes.values():
            route.stop()
        patience = self.loop.time() + timeout_s * SHARE_OF_DRAIN_FOR_SOCKETS
        while self.untaken_bytes and self.loop.time() < patience:  # noqa: ASYNC110 - rare, and short
            await asyncio.sleep(0.005)
        await asyncio.gather(*(route.close() for route in list(self._routes.values())))
        await super().drain(max(0.0, deadline - self.loop.time()))


class Session(Pump):
    """One connection with its streams."""

    port: MsbqPort

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._receiver = Receiver(port.context.settings.max_message_bytes)
        self._intake = Intake(self, self._not_kept)
        self._todo: deque[list[EndpointMessage] | QueueAssertion | Refusal] = deque()
        self._busy: asyncio.Task[None] | None = None
        self._read_s = 0.0
        """When bytes came last."""
        self._registered: set[tuple[Route, str]] = set()
        self._headers: dict[str, Headers] = {"": ()}
        """Type → the headers of its messages."""
        self.outlet = Outlet(self)

    # ── what the peer says ────────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        """As soon as a byte is left that the socket does not take, we are told; and again when none is."""
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=0)
        self.stake()

    @property
    def bytes_wanted(self) -> int:
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
        if not self._registered and len(data) < GATHER_BYTES:
            self._gather()
        return bool(events)

    def _gather(self) -> None:
        """Who sends one message after the other is left alone for a moment, so that the next read brings many."""
        now_s = self.port.loop.time()
        if now_s - self._read_s < GATHER_S:
            self.hold(Hold.GATHER)
            self.port.loop.call_later(GATHER_S, self.unhold, Hold.GATHER)
        self._read_s = now_s

    def _work(self) -> None:
        """Do what was said, in order, until something takes time. Messages are kept even if the connection is gone by now."""
        todo = self._todo
        while todo and self._busy is None:
            event = todo.popleft()
            if isinstance(event, list):
                self._publish(event)
            elif not self.is_open:
                continue
            elif isinstance(event, QueueAssertion):
                self._take_time(partial(self._assert, event))
            else:
                self._refuse(event)

    def _publish(self, messages: list[EndpointMessage]) -> None:
        """Messages that came together: one call for each queue."""
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
                self._told(route, these[-1].stream, these, error)
                continue
            if self.port.context.broker.topics.find(topic) is None:
                missing.append((route, topic, these))
            else:
                self._publish_to(route, topic, these)
        if missing:
            self._take_time(partial(self._publish_to_new, missing))

    async def _publish_to_new(self, calls: Sequence[_Call]) -> None:
        for route, topic, messages in calls:
            try:
                await self.port.make_topic(topic)
            except SparrowError as error:
                self._told(route, messages[-1].stream, messages, error)
            else:
                self._publish_to(route, topic, messages)

    def _publish_to(self, route: str, topic: str, messages: Sequence[EndpointMessage]) -> None:
        values = [message.body for message in messages]
        known = self._headers
        headers = [known.get(message.type) or self._headers_of(message.type) for message in messages]
        self._intake.publish(
            topic,
            Columns(values, None, headers if any(headers) else None),
            sum(map(len, filter(None, values))),
            partial(self._told, route, messages[-1].stream),
        )

    def _told(self, route: str, stream: str, messages: Sequence[object], error: SparrowError | None) -> None:
        """What became of messages; who published the last of them hears of it, if they could not be kept."""
        if error is not None:
            self.report(
                f"{len(messages)} of the messages for queue {route!r} could not be kept: {error.text}", stream
            )

    def _not_kept(self, topic: str, count: int, error: SparrowError) -> None:
        """`_told` was told, too."""

    def _headers_of(self, kind: str) -> Headers:
        if not kind:
            return ()
        if len(self._headers) > MAX_TYPES:
            self._headers.clear()
        headers = self._headers[kind] = ((TYPE_HEADER, kind.encode(errors="replace")),)
        return headers

    def _take_time(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this before anything that was said later."""
        self.hold(Hold.WORK)
        self._busy = self.port.start(self._until_done(work))

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._busy = None
            self._work()
            if self._busy is None:
                self.unhold(Hold.WORK)

    @property
    def has_work(self) -> bool:
        return self._busy is not None or not self._intake.is_settled

    async def until_done(self) -> None:
        while self._busy is not None:
            await asyncio.wait([self._busy])
        await self._intake.settled()

    def drained(self) -> None:
        if self.has_work:
            self.port.start(self._leave())
        else:
            self.close()

    async def _assert(self, asserted: QueueAssertion) -> None:
        try:
            await self.port.register(self, asserted)
        except SparrowError as error:
            self.report(f"queue {asserted.name!r} cannot be had: {error.text}", asserted.stream)

    def _refuse(self, refusal: Refusal) -> None:
        self.report(refusal.error.text, refusal.stream)
        if refusal.is_last:
            self.unstake()
            self.outlet.flush()
            self.refuse(refusal.error.text)

    def report(self, text: str, stream: str) -> None:
        """Tell the peer what went wrong. Who does not read what is sent is not told more, and not read from."""
        if self.is_open and self.outlet.waiting_bytes <= UNREAD_BYTES:
            self.outlet.push([error_frame(text, stream)])
        elif self.is_open:
            self.hold(Hold.WRITE)

    # ── registrations ─────────────────────────────────────────────────────────────────────────────

    def register(self, route: Route, stream: str) -> None:
        """The stream gets the queue's messages.

        Raises:
            InvalidArgument: it has too many already.
        """
        if (route, stream) not in self._registered and len(self._registered) >= MAX_REGISTRATIONS:
            raise InvalidArgument(
                f"this connection has {MAX_REGISTRATIONS} streams registered for queues, which is the most; open another one"
            )
        self._registered.add((route, stream))
        self.unstake()  # what the socket has for it would be lost, too
        route.add(self, stream)

    def forget(self, route: Route, stream: str) -> None:
        """The queue has ended."""
        self._registered.discard((route, stream))

    def ended(self) -> None:
        self.outlet.lost()
        registered, self._registered = self._registered, set()
        for route, stream in registered:
            self.port.unregister(self, route, stream)

    # ── what is pushed ────────────────────────────────────────────────────────────────────────────

    @property
    def has_room(self) -> bool:
        """Whether the peer took everything so far."""
        return self.is_open and self.outlet.has_room

    def pause_writing(self) -> None:
        self.outlet.paused()

    def resume_writing(self) -> None:
        self.outlet.resumed()

    def writable(self) -> None:
        self.unhold(Hold.WRITE)
        for route, _ in self._registered:
            route.wake()
