"""A topic as Server-Sent Events: one long response, an event for each record.

The id of each event has the positions of the stream behind it, in all partitions (see `positions`).
A client that reconnects with its last id (`Last-Event-ID`, which a browser's EventSource sends by
itself) continues exactly there. The first block has such an id and no event: a client that loses
the connection before the first event misses nothing.

The stream reads only when the client has taken everything that was sent: a slow client gets one
chunk at a time and falls behind, without costing memory. Events are rendered once for all streams
(`render_cache`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import (
    CorruptBatch,
    Draining,
    InternalError,
    OffsetOutOfRange,
    SparrowError,
    UnknownTopic,
    from_code,
)
from sparrow.broker.access.authz import Operation
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.broker.reading.positions import BEGINNING, StartPosition
from sparrow.broker.reading.subscription import Selector
from sparrow.frontends.batches import split_batches
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    header_parameter,
    problems,
    response,
)
from sparrow.frontends.http.positions import format_others, format_positions, is_positions, parse_positions
from sparrow.frontends.http.problems import BUG, body_of
from sparrow.frontends.http.queries import COMMITTED, ISOLATION, PARTITION, Choice, Query, Text
from sparrow.frontends.http.render_cache import Form
from sparrow.frontends.http.responses import StreamResponse
from sparrow.frontends.http.router import Route
from sparrow.frontends.start_position import START_POSITION_TEXT, parse_start_position
from sparrow.frontends.transport.send_budget import BATCH_BYTES
from sparrow.records.readable import FAIL, ON_CORRUPT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.reading.reader import ReadDelivery
    from sparrow.broker.reading.subscription import Subscription
    from sparrow.frontends.batches import PartitionBatch
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.queries import Parameter
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.http.router import Schema
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.records.readable import OnCorrupt
    from sparrow.records.topic_partition import TopicPartition

HEARTBEAT_S: Final = 15.0
RETRY_MS: Final = 2000
"""Delay before a browser reconnects."""
CHUNK_BYTES: Final = 64 << 10
"""Bytes of batches that are read for a stream at once."""
MAX_SENT_BYTES: Final = 256 << 10
"""Bytes of events that are sent at once, except for those of one batch."""
MEDIA_TYPE: Final = "text/event-stream"
TEXT: Final = "text"
ENCODINGS: Final = (TEXT, "base64")
_ALL: Final = -1
_HEARTBEAT: Final = b": still there\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


def routes(frontend: HttpContext) -> list[Route]:
    """Return the route of streams."""
    return [
        Route(
            "GET",
            "/v1/topics/{topic}/stream",
            Streams(frontend).stream,
            tag="messages",
            name="stream",
            summary="Follow a topic by Server-Sent Events",
            text=_TEXT,
            parameters=_PARAMETERS,
            responses=problems(404)
            | {200: response("Events, until the client disconnects.", {MEDIA_TYPE: {"type": "string"}})},
        )
    ]


_TEXT: Final = (
    "An event for each record: `data` is the record as JSON, `id` the position of the stream "
    "behind it. Send the last id in `Last-Event-ID` to continue there."
    " An event `gap` reports records that are gone; an event `error` has a problem and is the last "
    "one. Comments are sent while there are no events."
)
_START: Final = Text(
    "from",
    f"Start position: {START_POSITION_TEXT} Or the header Sparrow-Next of a page, such as `0:17,1:4`.",
    "end",
)
_ENCODING: Final = Choice(
    "encoding", "`base64`: keys, values and header values in base64 throughout.", ENCODINGS
)
_ON_CORRUPT: Final = Choice(
    "on_corrupt",
    "For a batch that cannot be read: `fail`: the stream ends with an event `error` that has "
    "`next_offset`; `skip`: an event `gap` has its offsets.",
    ON_CORRUPT,
)
_LAST_EVENT_ID: Final = Text("last_event_id", "The same as the header, for clients that cannot set it.")
_PARAMETERS: Final[list[Parameter | Schema]] = [
    _START,
    PARTITION,
    _ENCODING,
    ISOLATION,
    _ON_CORRUPT,
    _LAST_EVENT_ID,
    header_parameter("Last-Event-ID", "Id of the last received event; it takes precedence over `from`."),
]


class Streams:
    """Handler of the route."""

    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend

    async def stream(self, request: Request) -> Response:
        """Start a stream.

        Raises:
            InvalidArgument, InvalidTopicName, UnknownTopic, UnknownPartition, NotAuthorized,
            Draining
        """
        query = Query(request)
        topic: str = request.path_params["topic"]
        partition = query.integer(PARTITION)
        selector = _selector(topic, partition, query.value(_START), _last_event_id(request, query))
        as_base64 = query.choice(_ENCODING) != TEXT
        isolation = query.choice(ISOLATION)
        on_corrupt = query.choice(_ON_CORRUPT)
        query.text("access_token")
        query.refuse_others()
        if self._frontend.is_stopping:
            raise Draining("The broker is shutting down; connect again later.")
        memory = request.backlog.reservation()
        feed = Feed(self._frontend, topic, memory, as_base64=as_base64, on_corrupt=on_corrupt)
        await feed.begin(selector, principal=caller(request), committed_only=isolation == COMMITTED)
        return EventStream(feed, request, self._frontend)


def _last_event_id(request: Request, query: Query) -> str:
    in_query = query.value(_LAST_EVENT_ID)
    return request.header(b"last-event-id") or in_query


def _selector(topic: str, partition: int, start: str, last_event_id: str) -> Selector:
    partitions = None if partition == _ALL else frozenset((partition,))
    start = last_event_id or start
    if last_event_id or is_positions(start):
        offsets = parse_positions(start)
        return Selector(topic, start=StartPosition(BEGINNING), offsets=offsets, partitions=partitions)
    return Selector(topic, start=parse_start_position(start), partitions=partitions)


class _Due(NamedTuple):
    """A batch that was read. `next_offset` is the next offset of its partition behind it."""

    delivery: ReadDelivery
    batch: PartitionBatch
    next_offset: int


class Feed:
    """Source of the events of one stream; the broker's `SubscriptionListener`. Loop thread only."""

    def __init__(
        self,
        frontend: HttpContext,
        topic: str,
        memory: Reservation,
        *,
        as_base64: bool,
        on_corrupt: OnCorrupt = FAIL,
    ) -> None:
        self._frontend = frontend
        self._memory = memory
        """Memory of the batches that were read, and of the chunk that is sent next."""
        self._read_bytes = 0
        self._topic = topic
        self._as_base64 = as_base64
        self._on_corrupt = on_corrupt
        self._subscription: Subscription | None = None
        self._positions: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        self._notices: list[bytes] = []
        self._due: deque[_Due] = deque()
        """Batches that were read and are not sent yet."""
        self._moved: dict[int, int] = {}
        """Positions that apply once those are sent."""
        self._has_begun = False
        self._failure: SparrowError | None = None
        self.is_over = False

    async def begin(self, selector: Selector, *, principal: Principal, committed_only: bool) -> None:
        """Subscribe to the topic.

        Raises:
            InvalidTopicName, UnknownTopic, UnknownPartition, NotAuthorized
        """
        broker = self._frontend.broker
        for partition in selector.partitions or (
            0,
        ):  # a GET changes nothing, so a missing topic is not created
            broker.topics.partition(self._topic, partition, operation=Operation.READ, principal=principal)
        self._subscription = await broker.records.subscribe(
            [selector],
            listener=self,
            client_name="stream",
            committed_only=committed_only,
            principal=principal,
        )

    def end(self, error: SparrowError | None = None) -> None:
        """End the stream; `error` is sent to the client."""
        if self.is_over:
            return
        self.is_over = True
        self._failure = error
        if self._subscription is not None:
            self._frontend.spawn(self._subscription.close())

    def sent(self, size_bytes: int) -> None:
        """Count a chunk that was written to the socket."""
        self._memory.sent(min(size_bytes, self._memory.size_bytes))

    def forget(self) -> None:
        """Release the memory of everything that was read."""
        self._memory.give_back()

    # ── called by the broker: SubscriptionListener ────────────────────────────────────────────────

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

    def revoked(self, epoch: int, partitions: list[TopicPartition], reason: str) -> None:  # noqa: ARG002
        # reading continues elsewhere: `assigned` follows at once
        if reason == OffsetOutOfRange.code:
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
        """Return the next chunk: events, a comment after a while without any, or nothing at the
        end.
        """
        subscription = self._subscription
        while not self.is_over and subscription is not None:
            parts: list[bytes] = []
            if not self._due:
                if not self._notices and not await self._wait(subscription):
                    return _HEARTBEAT
                await self._memory.take(BATCH_BYTES, BATCH_BYTES)
                self._take(await subscription.read(CHUNK_BYTES, max_wait_ms=0))
                self._memory.resize(self._read_bytes)
                parts, self._notices = self._notices, []
            await self._render_due(parts)
            if parts:
                chunk = b"".join(parts)
                self._memory.resize(len(chunk) + self._read_bytes)
                return chunk
            self._memory.resize(self._read_bytes)
        return self._final_chunk()

    async def _render_due(self, parts: list[bytes]) -> None:
        """Add as many events as are sent at once."""
        size_bytes = 0
        tail, tail_of = b"", None
        while self._due and size_bytes < MAX_SENT_BYTES:
            due = self._due[0]
            if due.delivery is not tail_of:
                tail, tail_of = self._tail(due.delivery), due.delivery
            try:
                size_bytes += await self._render(due, tail, parts)
            except CorruptBatch as error:
                if not self._skip_or_end(due, error, parts):
                    return
            self._due.popleft()
        if not self._due:
            self._read_bytes = 0
            self._positions |= self._moved
            self._moved.clear()

    def _skip_or_end(self, due: _Due, error: CorruptBatch, parts: list[bytes]) -> bool:
        """Skip a batch that cannot be read, or end the stream behind the events before it. Return
        True if it was skipped.
        """
        self._frontend.broker.measures.corrupt_batches.met("stream", self._on_corrupt, error)
        if self._on_corrupt == FAIL:
            self._due.clear()
            self.end(error)
            return False
        delivery = due.delivery
        first = max(delivery.offset, due.batch.header.base_offset)
        self._positions[delivery.partition] = due.next_offset
        parts.append(
            b'event: gap\ndata: {"partition":%d,"from":%d,"to":%d,"reason":"%b"}\nid: %b\n\n'
            % (
                delivery.partition,
                first,
                due.batch.header.next_offset,
                error.code.encode(),
                format_positions(self._positions).encode(),
            )
        )
        return True

    def _take(self, found: Iterable[ReadDelivery]) -> None:
        """Queue deliveries for rendering, batch by batch, as compressed batches may become much
        larger.
        """
        for delivery in found:
            self._read_bytes += len(delivery.data)
            each = [*split_batches(delivery.topic, delivery.partition, delivery.data)]
            self._due += [_Due(delivery, batch, batch.header.next_offset) for batch in each[:-1]]
            if each:
                self._due.append(_Due(delivery, each[-1], delivery.next_offset))
            else:
                self._positions[delivery.partition] = delivery.next_offset

    def _read_to(self, partition: int) -> int:
        """Return the offset before which a partition is read completely."""
        due = [each.next_offset for each in self._due if each.delivery.partition == partition]
        return due[-1] if due else self._moved.get(partition, self._positions.get(partition, 0))

    async def _wait(self, subscription: Subscription) -> bool:
        """Wait for records. Return False after `HEARTBEAT_S` without any."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await subscription.wait()
        except TimeoutError:
            return False
        return True

    def _tail(self, delivery: ReadDelivery) -> bytes:
        """Return the part of an id behind its first position: all that differs between clients."""
        return format_others(self._positions, delivery.partition).encode() + b"\n\n"

    async def _render(self, due: _Due, tail: bytes, parts: list[bytes]) -> int:
        """Add the events of a batch. Return their size."""
        delivery = due.delivery
        rendered = await self._frontend.render_cache.batch(
            due.batch, form=Form.EVENT, as_base64=self._as_base64
        )
        pieces = rendered.since(delivery.offset).pieces
        if pieces:
            parts += (tail.join(pieces), tail)
        self._positions[delivery.partition] = due.next_offset
        return sum(map(len, pieces))

    def _final_chunk(self) -> bytes:
        failure, self._failure = self._failure, None
        if failure is None:
            return b""
        return b"".join((*self._notices, b"event: error\ndata: ", body_of(failure), b"\n\n"))


class EventStream(StreamResponse):
    """The response: the chunks of a feed, until the client disconnects or the feed ends."""

    def __init__(self, feed: Feed, request: Request, frontend: HttpContext) -> None:
        super().__init__(200, list(_HEADERS))
        self._feed = feed
        self._request = request
        self._frontend = frontend

    async def chunks(self) -> AsyncIterator[bytes]:
        feed, stopping = self._feed, self._frontend.stopping

        def drain(_: asyncio.Future[None]) -> None:
            feed.end(Draining("The broker is shutting down; reconnect with the last id when it is back."))

        stopping.add_done_callback(drain)
        try:
            async with self._request.watch_disconnect() as gone:
                gone.add_done_callback(lambda _: feed.end())
                while any(due := [await self._next_chunk()]):
                    await self._frontend.throttle(QuotaKind.FETCH, self._request.principal, len(due[0]))
                    # Keep no reference: hundreds of streams have a chunk each in the same moment.
                    yield due.pop()
        finally:
            stopping.remove_done_callback(drain)

    def sent(self, size_bytes: int) -> None:
        self._feed.sent(size_bytes)

    def finish(self) -> None:
        self._feed.end()
        self._feed.forget()

    async def _next_chunk(self) -> bytes:
        try:
            return await self._feed.next_chunk()
        except SparrowError as error:
            self._feed.end(error)
        except Exception:
            self._frontend.logger.exception("a bug in the stream of a topic")
            self._feed.end(InternalError(BUG))
        return await self._feed.next_chunk()
