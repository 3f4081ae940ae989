"""A topic as Server-Sent Events: one long answer, an event for each record.

The id of each event says where the stream stands behind it, in all partitions (see `positions`), so that a client that comes back with the last id that it saw (`Last-Event-ID`,
which a browser's EventSource sends by itself) goes on exactly there. The first thing sent is such an id alone: who loses the connection before the first event misses nothing.

The stream reads only when the client has taken what was sent: a slow client is given one chunk at a time, and is behind; it costs the broker no memory. What records become as
events is rendered once for all streams (`rendering`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from sparrow.base.errors import (
    Draining,
    InternalError,
    OffsetOutOfRange,
    SparrowError,
    UnknownTopic,
    from_code,
)
from sparrow.broker.access.authz import Operation
from sparrow.broker.positions import BEGINNING, Start
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.broker.subscription import Selector
from sparrow.frontends.http.answers import disconnecting
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    RawRoute,
    answer,
    header_parameter,
    integer,
    path_parameter,
    problems,
    query_parameter,
)
from sparrow.frontends.http.places import PLACE_TEXT, parse_place
from sparrow.frontends.http.positions import format_others, format_positions, is_positions, parse_positions
from sparrow.frontends.http.problems import BUG, body_of
from sparrow.frontends.http.queries import Query
from sparrow.frontends.http.rendering import Form, batches
from sparrow.frontends.http.serving import EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.reader import Delivery, Key
    from sparrow.broker.subscription import Subscription
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.rendering import Batch

HEARTBEAT_S: Final = 15.0
RETRY_MS: Final = 2000
"""How soon a browser connects again."""
CHUNK_BYTES: Final = 64 << 10
"""Of batches, read for a stream at once."""
MAX_SENT_BYTES: Final = 256 << 10
"""Of events, sent at once, but for those of one batch."""
MEDIA_TYPE: Final = "text/event-stream"
TEXT: Final = "text"
ENCODINGS: Final = (TEXT, "base64")
COMMITTED: Final = "committed"
ISOLATIONS: Final = ("uncommitted", COMMITTED)
_ALL: Final = -1
_MAX_PARTITION: Final = (1 << 31) - 1
_HEARTBEAT: Final = b": still there\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def router(door: HttpFrontend) -> APIRouter:
    """The route of streams."""
    door.at_sweep.append(door.renderings.sweep)
    api = APIRouter(route_class=RawRoute, tags=["messages"])
    api.add_api_route(
        "/v1/topics/{topic}/stream",
        Streams(door).stream,
        methods=["GET"],
        summary="Follow a topic by Server-Sent Events",
        description=_TEXT,
        openapi_extra={"parameters": _PARAMETERS},
        responses=problems(404)
        | {200: answer("Events, until the client goes.", {MEDIA_TYPE: {"type": "string"}})},
    )
    return api


_TEXT: Final = (
    "An event for each record: `data` is the record as JSON, `id` where the stream stands behind it. Send the last id back in `Last-Event-ID` to go on there."
    " An event `gap` tells of records that are gone, an event `error` has a problem and is the last one. Comments come when nothing else does."
)
_PARAMETERS: Final = [
    path_parameter("topic", "Name of the topic."),
    query_parameter(
        "from",
        f"Where to begin: {PLACE_TEXT} Or what the header Sparrow-Next of a page says, such as `0:17,1:4`.",
        {"type": "string", "default": "end"},
    ),
    query_parameter("partition", "This partition alone.", integer(least=0, most=_MAX_PARTITION)),
    query_parameter(
        "encoding",
        "`base64`: keys, values and header values in base64 throughout.",
        {"type": "string", "enum": list(ENCODINGS), "default": TEXT},
    ),
    query_parameter(
        "isolation",
        "`committed`: without records of transactions that are open or were aborted.",
        {"type": "string", "enum": list(ISOLATIONS), "default": ISOLATIONS[0]},
    ),
    query_parameter("last_event_id", "The same as the header, for who cannot set it."),
    header_parameter("Last-Event-ID", "The id of the last event that was seen; it counts before `from`."),
]


class Streams:
    """The handler."""

    def __init__(self, door: HttpFrontend) -> None:
        self._door = door

    async def stream(self, request: Request) -> Response:
        """
        Raises:
            InvalidArgument, InvalidTopicName, UnknownTopic, UnknownPartition, NotAuthorized, Draining
        """
        query = Query(request)
        topic: str = request.path_params["topic"]
        partition = query.integer("partition", _ALL, 0, _MAX_PARTITION)
        selector = _selector(topic, partition, query.text("from", "end"), _last_event_id(request, query))
        as_base64 = query.choice("encoding", TEXT, ENCODINGS) != TEXT
        isolation = query.choice("isolation", ISOLATIONS[0], ISOLATIONS)
        query.text("access_token")
        query.refuse_others()
        if self._door.is_draining:
            raise Draining("The broker is shutting down; connect again later.")
        feed = Feed(self._door, topic, as_base64=as_base64)
        await feed.begin(selector, principal=caller(request), committed_only=isolation == COMMITTED)
        return EventStream(feed, request, self._door)


def _last_event_id(request: Request, query: Query) -> str:
    in_query = query.text("last_event_id")
    return request.headers.get("last-event-id", "") or in_query


def _selector(topic: str, partition: int, start: str, last_event_id: str) -> Selector:
    partitions = None if partition == _ALL else frozenset((partition,))
    start = last_event_id or start
    if last_event_id or is_positions(start):
        offsets = parse_positions(start)
        return Selector(topic, start=Start(BEGINNING), offsets=offsets, partitions=partitions)
    return Selector(topic, start=parse_place(start), partitions=partitions)


class _Due(NamedTuple):
    """A batch that was read; `next_offset`: where its partition goes on behind it."""

    delivery: Delivery
    batch: Batch
    next_offset: int


class Feed:
    """What one client gets of a topic; the broker's `SubscriptionListener`. Loop thread only."""

    def __init__(self, door: HttpFrontend, topic: str, *, as_base64: bool) -> None:
        self._door = door
        self._topic = topic
        self._as_base64 = as_base64
        self._subscription: Subscription | None = None
        self._positions: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        self._notices: list[bytes] = []
        self._due: deque[_Due] = deque()
        """What was read and is not sent yet."""
        self._moved: dict[int, int] = {}
        """Positions that hold when that is sent."""
        self._has_begun = False
        self._failure: SparrowError | None = None
        self.is_over = False

    async def begin(self, selector: Selector, *, principal: Principal, committed_only: bool) -> None:
        """Subscribe.

        Raises:
            InvalidTopicName, UnknownTopic, UnknownPartition, NotAuthorized
        """
        broker = self._door.broker
        for partition in selector.partitions or ():
            await self._door.publisher.ensure(self._topic, principal=principal)
            broker.partition(self._topic, partition, operation=Operation.READ, principal=principal)
        self._subscription = await broker.subscribe(
            [selector],
            listener=self,
            client_name="stream",
            committed_only=committed_only,
            principal=principal,
        )

    def end(self, error: SparrowError | None = None) -> None:
        """No more; `error` is told to the client."""
        if self.is_over:
            return
        self.is_over = True
        self._failure = error
        if self._subscription is not None:
            self._door.spawn(self._subscription.close())

    # ── what the broker tells: SubscriptionListener ───────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:  # noqa: ARG002 - the listener's signature
        for _, partition, offset in added:
            lost_at = self._lost.pop(partition, None)
            if lost_at is not None:
                self._notices.append(
                    b'event: gap\ndata: {"partition":%d,"from":%d,"to":%d}\n\n' % (partition, lost_at, offset)
                )
            (self._moved if self._due else self._positions)[partition] = offset
        if not self._has_begun:
            self._has_begun = True
            self._notices.append(
                b"retry: %d\nid: %b\n\n" % (RETRY_MS, format_positions(self._positions).encode())
            )

    def revoked(self, epoch: int, partitions: list[Key], reason: str) -> None:  # noqa: ARG002
        if reason == OffsetOutOfRange.code:  # it goes on elsewhere: `assigned` follows at once
            self._lost.update((index, self._read_to(index)) for _, index in partitions)
        elif reason == UnknownTopic.code:
            self.end(UnknownTopic(f"Topic {self._topic!r} was deleted."))
        else:
            numbers = ", ".join(str(index) for _, index in partitions)
            self.end(from_code(reason, f"Partition {numbers} of {self._topic!r} cannot be read."))

    def ended(self, error: SparrowError) -> None:
        self.end(error)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def next_chunk(self) -> bytes:
        """What is to be sent next, a comment if nothing came for a while; nothing at the end."""
        subscription = self._subscription
        while not self.is_over and subscription is not None:
            parts: list[bytes] = []
            if not self._due:
                if not self._notices and not await self._wait(subscription):
                    return _HEARTBEAT
                self._take(await subscription.read(CHUNK_BYTES, max_wait_ms=0))
                parts, self._notices = self._notices, []
            await self._render_due(parts)
            if parts:
                return b"".join(parts)
        return self._last_words()

    async def _render_due(self, parts: list[bytes]) -> None:
        """Add events, as many as are sent at once."""
        size_bytes = 0
        tail, tail_of = b"", None
        while self._due and size_bytes < MAX_SENT_BYTES:
            due = self._due[0]
            if due.delivery is not tail_of:
                tail, tail_of = self._tail(due.delivery), due.delivery
            size_bytes += await self._render(due, tail, parts)
            self._due.popleft()
        if not self._due:
            self._positions |= self._moved
            self._moved.clear()

    def _take(self, found: Iterable[Delivery]) -> None:
        """It is to be rendered and sent, batch by batch: what was compressed may be much more than was read."""
        for delivery in found:
            each = [*batches(delivery.topic, delivery.partition, delivery.data)]
            self._due += [_Due(delivery, batch, batch.header.next_offset) for batch in each[:-1]]
            if each:
                self._due.append(_Due(delivery, each[-1], delivery.next_offset))
            else:
                self._positions[delivery.partition] = delivery.next_offset

    def _read_to(self, partition: int) -> int:
        """The offset before which everything of a partition is read."""
        due = [each.next_offset for each in self._due if each.delivery.partition == partition]
        return due[-1] if due else self._moved.get(partition, self._positions.get(partition, 0))

    async def _wait(self, subscription: Subscription) -> bool:
        """Whether something may have come."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await subscription.wait()
        except TimeoutError:
            return False
        return True

    def _tail(self, delivery: Delivery) -> bytes:
        """What stands behind the first position of an id: all that differs between clients."""
        return format_others(self._positions, delivery.partition).encode() + b"\n\n"

    async def _render(self, due: _Due, tail: bytes, parts: list[bytes]) -> int:
        """The events of a batch, and how large they are."""
        delivery = due.delivery
        rendered = await self._door.renderings.batch(due.batch, form=Form.EVENT, as_base64=self._as_base64)
        pieces = rendered.since(delivery.offset).pieces
        if pieces:
            parts += (tail.join(pieces), tail)
        self._positions[delivery.partition] = due.next_offset
        return sum(map(len, pieces))

    def _last_words(self) -> bytes:
        failure, self._failure = self._failure, None
        if failure is None:
            return b""
        return b"".join((*self._notices, b"event: error\ndata: ", body_of(failure), b"\n\n"))


class EventStream(Response):
    """The answer: what a feed gives, until the client goes or the feed ends."""

    def __init__(self, feed: Feed, request: Request, door: HttpFrontend) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_HEADERS)
        self._feed = feed
        self._request = request
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        feed, stopping = self._feed, self._door.stopping

        def drain(_: asyncio.Future[None]) -> None:
            feed.end(Draining("The broker is shutting down; the stream goes on when it is back."))

        stopping.add_done_callback(drain)
        try:
            async with disconnecting(self._request) as gone:
                gone.add_done_callback(lambda _: feed.end())
                await self._send_all(send)
        finally:
            stopping.remove_done_callback(drain)
            feed.end()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        exchange = self._request.scope["state"][EXCHANGE]
        while not exchange.response_complete and (
            chunk := await self._next_chunk()
        ):  # HEAD ends with its head
            await self._door.hold_back(QuotaKind.FETCH, caller(self._request), len(chunk))
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = b""
            # Waits until the client has taken what was written: nothing is read for it before.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            # A read that finds data does not wait: let the others have their turn.
            await asyncio.sleep(0)
        if not exchange.response_complete:
            await send({"type": "http.response.body", "body": b""})

    async def _next_chunk(self) -> bytes:
        try:
            return await self._feed.next_chunk()
        except SparrowError as error:
            self._feed.end(error)
        except Exception:
            self._door.logger.exception("a bug in what streams a topic")
            self._feed.end(InternalError(BUG))
        return await self._feed.next_chunk()
