"""A subscription to a queue: records are leased for the client, as many as it gave credit for, and settled as it says.

Nothing is leased for a client that does not take it: in turn the channel waits for records, then for credit and for room on the connection, and leases only then. What the client
holds goes back to the queue when it unsubscribes or closes the connection in an orderly way; when the connection is lost the leases run out, as the client may still be at work,
and may come back with the same consumer id.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import BadInput, InvalidArgument, LeasedByAnother, SparrowError, Unavailable
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.frontends.http.leases import (
    LeaseToken,
    handed_over,
    of_another_queue,
    parse_token,
    queue_mark,
    token_text,
)
from sparrow.frontends.http.rendering import Batch, Form, Rendered, batches
from sparrow.frontends.http.sockets import answers
from sparrow.frontends.http.sockets.channel import MAX_FRAME_BYTES, Channel, Parting
from sparrow.frontends.http.sockets.messages import FOR_TOPICS, Ack, Extend, Nack, Reject, Release

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.frontends.http.sockets.messages import Settle, Subscribe
    from sparrow.frontends.http.sockets.session import Session

LEASE_BYTES: Final = 256 << 10
MAX_RECORDS_AT_ONCE: Final = 10_000
MAX_WAIT_MS: Final = 3_600_000
MAX_SETTLEMENTS_PER_TURN: Final = 512
"""That a queue gets between two turns of the loop."""
RETRY_S: Final = 0.5
"""How soon a lease is tried again that could not be kept."""

Range = tuple[int, int, int]
"""First offset, last offset, delivery count."""

_ANSWERS: Final[dict[type[Settle], tuple[Verb, str]]] = {
    Ack: (Verb.ACK, "acked"),
    Nack: (Verb.NACK, "nacked"),
    Reject: (Verb.REJECT, "rejected"),
    Extend: (Verb.EXTEND, "extended"),
    Release: (Verb.RETURN, "released"),
}


class Leasing(Channel):
    """See the module's text."""

    def __init__(self, session: Session, frame: Subscribe) -> None:
        self._as_base64 = frame.encoding == "base64"
        self._consumer: QueueConsumer | None = None
        self._settling: set[asyncio.Task[None]] = set()
        super().__init__(session, frame)

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

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
        return answers.answer(
            "subscribed",
            id=frame.id,
            subscription=self.name,
            consumer=consumer.id,
            lease_ms=consumer.lease_ms,
        )

    async def finish(self, parting: Parting) -> None:
        if self._settling:
            await asyncio.wait(self._settling)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.ended = None
            await consumer.close(give_back=parting is Parting.LEFT)

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def send_all(self) -> None:
        while (consumer := self._consumer) is not None:
            # In this order: else all that wait would lease, although the first fills the connection.
            await consumer.wait(MAX_WAIT_MS)
            if self.window.credit <= 0 or not self.session.can_write:
                consumer.pass_on()
            await self.wait_for_room()
            await self._send(consumer, await self._lease(consumer))
            # A lease that finds records may not have waited: let the others have their turn.
            await asyncio.sleep(0)

    async def _lease(self, consumer: QueueConsumer) -> list[Leased]:
        """What can be leased now; nothing, after a while, when it cannot be kept."""
        try:
            return await consumer.lease(min(self.window.credit, MAX_RECORDS_AT_ONCE), max_bytes=LEASE_BYTES)
        except Unavailable as error:
            if not error.retriable:
                raise
            await asyncio.sleep(RETRY_S)
            return []

    async def _send(self, consumer: QueueConsumer, found: Sequence[Leased]) -> None:
        """Send what was leased. What is not sent because the end came goes back."""
        size_bytes = 0
        for number, leased in enumerate(found):
            try:
                pieces = await self._pieces_of(consumer, leased)
            except asyncio.CancelledError:
                for unsent in found[number:]:
                    self._settle_quietly(consumer, Verb.RETURN, unsent, unsent.ranges)
                raise
            self._send_pieces(pieces)
            size_bytes += sum(map(len, pieces))
        await self.session.hold_back(size_bytes)

    async def _pieces_of(self, consumer: QueueConsumer, leased: Leased) -> list[bytes]:
        """The records as JSON. What cannot be read counts as a delivery that failed, so that it ends in the dead letters and holds up nobody."""
        until_ms = self.session.broker.clock.wall_ms() + leased.lease_ms
        pieces: list[bytes] = []
        for batch in batches(leased.topic, leased.partition, leased.data):
            try:
                rendered = await self.session.renderings.batch(
                    batch, form=Form.LEASED, as_base64=self._as_base64
                )
            except BadInput as error:
                text = f"{error.code}: {error.text}"
                self.session.logger.warning(
                    "queue %r: a record cannot be read: %s", consumer.queue_name, text
                )
                self._settle_quietly(consumer, Verb.NACK, leased, _within(leased, batch), text)
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
        self.tell(answers.messages(self.prefix, pieces))

    def _pieces(
        self, consumer: QueueConsumer, leased: Leased, rendered: Rendered, until_ms: int
    ) -> Iterator[bytes]:
        """The leased ones of a batch, each with what only its holder gets."""
        mark = queue_mark(consumer)
        for first, last, count in leased.ranges:
            start, stop = bisect_left(rendered.offsets, first), bisect_right(rendered.offsets, last)
            for offset, record in zip(rendered.offsets[start:stop], rendered.pieces[start:stop], strict=True):
                token = LeaseToken(
                    mark, consumer.id, consumer.subscriber, leased.topic, leased.partition, offset, count
                )
                yield b'%b,"lease":"%b","delivery_count":%d,"leased_until_ms":%d}' % (
                    record,
                    token_text(token).encode(),
                    count,
                    until_ms,
                )

    def _settle_quietly(
        self, consumer: QueueConsumer, verb: Verb, leased: Leased, ranges: Sequence[Range], text: str = ""
    ) -> None:
        """Settle what the client never got. Where that fails the lease runs out."""
        settlements = [
            Settlement(
                verb, leased.topic, leased.partition, first, last, leased.lease_ms, text, delivery=count
            )
            for first, last, count in ranges
        ]
        with suppress(SparrowError):
            consumer.settle(settlements).add_done_callback(_look)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def settle(self, frame: Settle) -> None:
        consumer = self._consumer
        if consumer is None:
            raise InvalidArgument(f"{self.name!r} has leased nothing yet; wait for messages")
        task = self.session.spawn(partial(self._settle, consumer, frame), frame)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, consumer: QueueConsumer, frame: Settle) -> bytes:
        verb, kind = _ANSWERS[type(frame)]
        outcomes: list[SparrowError | None] = [None] * len(frame.leases)
        settlements: dict[int, Settlement] = {}
        for place, lease in enumerate(frame.leases):
            try:
                settlements[place] = _settlement(consumer, verb, parse_token(lease), frame)
            except SparrowError as error:
                outcomes[place] = error
        found = await settle_all(consumer, list(settlements.values()))
        for place, outcome in zip(settlements, found, strict=True):
            outcomes[place] = outcome
        failed = [
            {"lease": lease, "error": answers.problem(error)}
            for lease, error in zip(frame.leases, outcomes, strict=True)
            if error is not None
        ]
        return answers.answer(kind, id=frame.id, subscription=self.name, failed=failed or None)


def _settlement(consumer: QueueConsumer, verb: Verb, token: LeaseToken, frame: Settle) -> Settlement:
    """
    Raises:
        NotLeased, LeasedByAnother: the lease is not of this consumer.
    """
    if token.queue != queue_mark(consumer):
        raise of_another_queue(consumer.queue_name)
    if token.consumer != consumer.id or token.subscriber != consumer.subscriber:
        raise LeasedByAnother(
            f"the lease is of consumer {token.consumer!r}, this is {consumer.id!r}; who comes back subscribes with its own consumer"
        )
    delay_ms, text = _details(frame)
    return Settlement(
        verb, token.topic, token.partition, token.offset, token.offset, delay_ms, text, token.delivery
    )


def _details(frame: Settle) -> tuple[int, str]:
    """The delay (-1: the queue's) and the text that a frame gives."""
    if isinstance(frame, Nack):
        return -1 if frame.delay_ms is None else frame.delay_ms, frame.error
    if isinstance(frame, Extend):
        return -1 if frame.lease_ms is None else frame.lease_ms, ""
    return -1, frame.reason if isinstance(frame, Reject) else ""


async def settle_all(consumer: QueueConsumer, settlements: Sequence[Settlement]) -> list[SparrowError | None]:
    """What came of each, when all is on stable storage; so many at a time that nobody holds up the loop.

    Raises:
        UnknownQueue, StaleMember, NotAuthorized, Overloaded
    """
    handed: list[asyncio.Future[list[SparrowError | None]]] = []
    for start in range(0, len(settlements), MAX_SETTLEMENTS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        handed.append(await handed_over(consumer, settlements[start : start + MAX_SETTLEMENTS_PER_TURN]))
    return [outcome for answer in handed for outcome in await answer]


def _within(leased: Leased, batch: Batch) -> list[Range]:
    """The ranges of a lease that lie in a batch."""
    base, last = batch.header.base_offset, batch.header.last_offset
    return [(max(a, base), min(b, last), count) for a, b, count in leased.ranges if a <= last and b >= base]


def _look(answer: asyncio.Future[list[SparrowError | None]]) -> None:
    if not answer.cancelled():
        answer.exception()


def _check(frame: Subscribe) -> None:
    """
    Raises:
        InvalidArgument: what does not go with a queue.
    """
    others = frame.given(FOR_TOPICS)
    if others:
        raise InvalidArgument(
            f"subscribe to a queue with {', '.join(others)}; a queue knows its topics and where it is, and takes subscriber, consumer"
            " and create"
        )
