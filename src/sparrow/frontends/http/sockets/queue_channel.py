"""A subscription to a queue: records are leased for the client within its credit, and settled by
its frames.

Nothing is leased that the client cannot take: the channel waits for records first, then for credit
and for room on the connection, and leases only then. The client's leases go back to the queue when
it unsubscribes or closes the connection in an orderly way. When the connection is lost, the leases
expire, as the client may still be at work and may reconnect with the same consumer id.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import CorruptBatch, InvalidArgument, LeasedByAnother, SparrowError, Unavailable
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.frontends.batches import PartitionBatch, split_batches
from sparrow.frontends.http.leases import (
    LeaseToken,
    of_another_queue,
    parse_token,
    queue_tag,
    settle_all,
    token_text,
)
from sparrow.frontends.http.render_cache import Form, RenderedBatch
from sparrow.frontends.http.sockets import server_frames
from sparrow.frontends.http.sockets.channel import MAX_FRAME_BYTES, Channel, CloseReason
from sparrow.frontends.http.sockets.client_frames import FOR_TOPICS, Ack, Extend, Nack, Reject, Release
from sparrow.frontends.leased_records import verb_for_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased, LeasedRange, Settlement
    from sparrow.frontends.http.sockets.channel import SocketContext
    from sparrow.frontends.http.sockets.client_frames import Settle, Subscribe
    from sparrow.frontends.transport.send_budget import Reservation

LEASE_BYTES: Final = 256 << 10
MAX_RECORDS_AT_ONCE: Final = 10_000
MAX_WAIT_MS: Final = 3_600_000
RETRY_S: Final = 0.5
"""Delay before a lease is retried that could not be stored."""

_RESPONSES: Final[dict[type[Settle], tuple[Verb, str]]] = {
    Ack: (Verb.ACK, "acked"),
    Nack: (Verb.NACK, "nacked"),
    Reject: (Verb.REJECT, "rejected"),
    Extend: (Verb.EXTEND, "extended"),
    Release: (Verb.RELEASE, "released"),
}


class QueueChannel(Channel):
    """A subscription to a queue; see the module's text."""

    def __init__(self, session: SocketContext, frame: Subscribe) -> None:
        self._as_base64 = frame.encoding == "base64"
        self._consumer: QueueConsumer | None = None
        self._settle_tasks: set[asyncio.Task[None]] = set()
        super().__init__(session, frame)

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────

    async def begin(self, frame: Subscribe) -> bytes:
        _check(frame)
        session = self.session
        self._consumer = consumer = await session.broker.queues.open_consumer(
            frame.queue or "",
            consumer_id=frame.consumer,
            client_name=session.client_name,
            subscriber=frame.subscriber,
            create=frame.create,
            principal=session.principal,
        )
        consumer.ended = self.fail
        return server_frames.frame(
            "subscribed",
            id=frame.id,
            subscription=self.name,
            consumer=consumer.id,
            lease_ms=consumer.lease_ms,
        )

    async def finish(self, reason: CloseReason) -> None:
        if self._settle_tasks:
            await asyncio.wait(self._settle_tasks)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.ended = None
            await consumer.close(release=reason is CloseReason.LEFT)

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def send_all(self) -> None:
        while (consumer := self._consumer) is not None:
            # In this order: otherwise all that wait would lease, although the first fills the
            # connection.
            await consumer.wait(MAX_WAIT_MS)
            if self.window.credit <= 0 or not self.session.can_write:
                consumer.wake_another()
            await self.wait_for_room()
            with self.session.reserve() as reservation:
                await self._send(consumer, await self._lease(consumer, reservation), reservation)
            # A lease that finds records may not have waited: let other tasks run.
            await asyncio.sleep(0)

    async def _lease(self, consumer: QueueConsumer, memory: Reservation) -> list[Leased]:
        """Lease records; return none, after a delay, if the leases cannot be stored."""
        try:
            limit = min(self.window.credit, MAX_RECORDS_AT_ONCE)
            return await consumer.lease(limit, max_bytes=LEASE_BYTES, memory=memory)
        except Unavailable as error:
            if not error.retriable:
                raise
            await asyncio.sleep(RETRY_S)
            return []

    async def _send(self, consumer: QueueConsumer, found: Sequence[Leased], reservation: Reservation) -> None:
        """Send leased records. Those that are not sent because of a cancellation are released."""
        size_bytes = 0
        for number, leased in enumerate(found):
            try:
                pieces = await self._pieces_of(consumer, leased)
            except asyncio.CancelledError:
                for unsent in found[number:]:
                    self._settle_quietly(consumer, Verb.RELEASE, unsent, unsent.ranges)
                raise
            self._send_pieces(pieces)
            sent_bytes = sum(map(len, pieces))
            size_bytes += sent_bytes
            reservation.add(sent_bytes)
            reservation.sent(sent_bytes)
        await self.session.throttle(size_bytes)

    async def _pieces_of(self, consumer: QueueConsumer, leased: Leased) -> list[bytes]:
        """Return the records as JSON. Batches that cannot be read go to the dead letters, and do
        not block others.
        """
        until_ms = self.session.broker.clock.wall_ms() + leased.lease_ms
        pieces: list[bytes] = []
        for batch in split_batches(leased.topic, leased.partition, leased.data):
            try:
                rendered = await self.session.render_cache.batch(
                    batch, form=Form.LEASED, as_base64=self._as_base64
                )
            except CorruptBatch as error:
                verb = verb_for_unreadable(error)
                self.session.broker.measures.corrupt_batches.met("queue", verb.name.lower(), error)
                text = f"{error.code}: {error.text}"
                self._settle_quietly(consumer, verb, leased, _within(leased, batch), text)
            else:
                pieces += self._pieces(consumer, leased, rendered, until_ms)
        return pieces

    def _send_pieces(self, pieces: Sequence[bytes]) -> None:
        start = size_bytes = 0
        for number, piece in enumerate(pieces):
            if size_bytes + len(piece) > MAX_FRAME_BYTES and number > start:
                self._send_frame(pieces[start:number])
                start, size_bytes = number, 0
            size_bytes += len(piece)
        if pieces:
            self._send_frame(pieces[start:])

    def _send_frame(self, pieces: Sequence[bytes]) -> None:
        self.window.spend(len(pieces))
        self.send(server_frames.messages(self.prefix, pieces))

    def _pieces(
        self, consumer: QueueConsumer, leased: Leased, rendered: RenderedBatch, until_ms: int
    ) -> Iterator[bytes]:
        """Yield the leased records of a batch, each with the members for its holder."""
        tag = queue_tag(consumer)
        for first, last, count in leased.ranges:
            start, stop = bisect_left(rendered.offsets, first), bisect_right(rendered.offsets, last)
            for offset, record in zip(rendered.offsets[start:stop], rendered.pieces[start:stop], strict=True):
                token = LeaseToken(
                    tag, consumer.id, consumer.subscriber, leased.topic, leased.partition, offset, count
                )
                yield b'%b,"lease":"%b","delivery_count":%d,"leased_until_ms":%d}' % (
                    record,
                    token_text(token).encode(),
                    count,
                    until_ms,
                )

    def _settle_quietly(
        self,
        consumer: QueueConsumer,
        verb: Verb,
        leased: Leased,
        ranges: Sequence[LeasedRange],
        text: str = "",
    ) -> None:
        """Settle records that the client never got. If that fails, the lease expires."""
        with suppress(SparrowError):
            settlements = leased.settlements(verb, leased.lease_ms, text, ranges)
            consumer.settle(settlements).add_done_callback(_look)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def settle(self, frame: Settle) -> None:
        consumer = self._consumer
        if consumer is None:
            raise InvalidArgument(f"{self.name!r} has leased nothing yet; wait for messages")
        task = self.session.spawn(partial(self._settle, consumer, frame), frame)
        self._settle_tasks.add(task)
        task.add_done_callback(self._settle_tasks.discard)

    async def _settle(self, consumer: QueueConsumer, frame: Settle) -> bytes:
        verb, kind = _RESPONSES[type(frame)]
        outcomes: list[SparrowError | None] = [None] * len(frame.leases)
        settlements: dict[int, Settlement] = {}
        for index, lease in enumerate(frame.leases):
            try:
                settlements[index] = _settlement(consumer, verb, parse_token(lease), frame)
            except SparrowError as error:
                outcomes[index] = error
        found = await settle_all(consumer, list(settlements.values()))
        for index, outcome in zip(settlements, found, strict=True):
            outcomes[index] = outcome
        failed = [
            {"lease": lease, "error": server_frames.problem(error)}
            for lease, error in zip(frame.leases, outcomes, strict=True)
            if error is not None
        ]
        return server_frames.frame(kind, id=frame.id, subscription=self.name, failed=failed or None)


def _settlement(consumer: QueueConsumer, verb: Verb, token: LeaseToken, frame: Settle) -> Settlement:
    """Return the settlement of a token.

    Raises:
        NotLeased, LeasedByAnother: the lease is not of this consumer.
    """
    if token.queue != queue_tag(consumer):
        raise of_another_queue(consumer.queue_name)
    if token.consumer != consumer.id or token.subscriber != consumer.subscriber:
        raise LeasedByAnother(
            f"the lease is of consumer {token.consumer!r}, this is {consumer.id!r}; to settle it "
            "after a reconnect, subscribe with the same consumer"
        )
    return token.settlement(verb, *_details(frame))


def _details(frame: Settle) -> tuple[int, str]:
    """Return the delay (-1: the queue's) and the text of a frame."""
    if isinstance(frame, Nack):
        return -1 if frame.delay_ms is None else frame.delay_ms, frame.error
    if isinstance(frame, Extend):
        return -1 if frame.lease_ms is None else frame.lease_ms, ""
    return -1, frame.reason if isinstance(frame, Reject) else ""


def _within(leased: Leased, batch: PartitionBatch) -> list[LeasedRange]:
    """Return the ranges of a lease that lie in a batch."""
    base, last = batch.header.base_offset, batch.header.last_offset
    return [(max(a, base), min(b, last), count) for a, b, count in leased.ranges if a <= last and b >= base]


def _look(outcomes: asyncio.Future[list[SparrowError | None]]) -> None:
    if not outcomes.cancelled():
        outcomes.exception()


def _check(frame: Subscribe) -> None:
    """Refuse members that are not for queues.

    Raises:
        InvalidArgument
    """
    others = frame.given(FOR_TOPICS)
    if others:
        raise InvalidArgument(
            f"subscribe to a queue with {', '.join(others)}; a subscription to a queue has only "
            "subscriber, consumer and create"
        )
