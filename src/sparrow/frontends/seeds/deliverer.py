"""Deliveries to one subscriber of messagebroker: one message at a time, over all its topics, each
answered with ack or nack.

A message that is refused, or not acknowledged in time, is delivered again after a delay; others are
delivered meanwhile. After too many deliveries it is written to the dead-letter topic
`<topic>.dead`, and also stays in its topic. The position of a subscriber lives only as long as its
connection, as in the original. Nothing is lost by that, because the next connection says where to
start.

Memory per subscriber is limited: it holds one chunk of read records, and the messages that wait for
another delivery. At their limit no new records are read.

An ack or nack does not name its message. It counts for the message that is unanswered; if there is
none, for the last one whose timeout expired.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import CorruptBatch, InvalidArgument, SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.broker.queues.dead_letters.format import Death, Style, dead_letter
from sparrow.broker.queues.rules.settlement import DELIVERY_LIMIT
from sparrow.broker.reading.positions import BEGINNING, StartPosition
from sparrow.broker.reading.subscription import Selector
from sparrow.frontends.batches import split_batches
from sparrow.frontends.publisher import Message
from sparrow.frontends.seeds.caller import caller
from sparrow.frontends.seeds.names import topic_of
from sparrow.protocol.seeds.messagebroker import StartAt, delivery
from sparrow.records.readable import SKIP, decode_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.reading.subscription import Subscription
    from sparrow.frontends.seeds.connection import SeedConnection
    from sparrow.records.record import Record
    from sparrow.records.topic_partition import TopicPartition

DEAD_LETTER_SUFFIX: Final = ".dead"
READ_BYTES: Final = 64 << 10
MAX_PENDING: Final = 100
MAX_PENDING_BYTES: Final = 4 << 20
MAX_PLAIN_BYTES: Final = 64 << 20
"""Limit of the decompressed size of one batch."""
MAX_TOPICS: Final = 1000
"""Limit of the topics of one connection."""


class _Pending(Struct, eq=False):
    """A message that is unanswered, or waits for another delivery."""

    record: Record
    deliveries: int = 0
    first_ms: int = -1
    last_ms: int = -1
    text: str = ""
    is_done: bool = False

    @property
    def size_bytes(self) -> int:
        return len(self.record.value or b"")


class Deliverer:
    """Delivers to one connection. Loop thread only; only one call of `subscribe` or `unsubscribe`
    at a time.
    """

    def __init__(self, connection: SeedConnection) -> None:
        self._connection = connection
        self._context = connection.context
        self._settings = connection.context.settings
        self._subscription: Subscription | None = None
        self._names: dict[str, bytes] = {}
        """The client's name of each topic."""
        self._read: deque[Record] = deque()
        self._retries: list[tuple[float, int, _Pending]] = []
        """A heap, ordered by the time of the next delivery."""
        self._numbers = itertools.count()
        self._pending_bytes = 0
        self._acknowledgement: asyncio.Future[bool] | None = None
        self._given_up: _Pending | None = None
        self._delivering: asyncio.Task[None] | None = None

    # ── requests of the client ────────────────────────────────────────────────────────────────────

    async def subscribe(self, names: Sequence[bytes], start: StartAt, offset: int) -> None:
        """Deliver these topics; create those that are missing. A topic that is already delivered
        starts again.

        Raises:
            InvalidArgument: too many topics. InvalidTopicName, UnknownTopic, NotAuthorized
        """
        topics = {topic_of(name): name for name in names}
        if len(self._names | topics) > MAX_TOPICS:
            raise InvalidArgument(f"a connection subscribes to {MAX_TOPICS} topics at most")
        for topic in topics:
            await self._context.ensure_topic(topic)
        await self._drop([topic for topic in topics if topic in self._names])
        selectors = [
            Selector(topic, False, StartPosition(BEGINNING), self._start_offsets(topic, start, offset))
            for topic in topics
        ]
        self._names |= topics
        try:
            await self._select(selectors)
        except SparrowError:
            for topic in topics:
                del self._names[topic]
            raise

    async def _select(self, selectors: Sequence[Selector]) -> None:
        if self._subscription is not None:
            await self._subscription.update(selectors, [])
            return
        self._subscription = await self._context.broker.records.subscribe(
            selectors, listener=self, committed_only=True, principal=caller()
        )
        self._delivering = self._connection.context.spawn(self._deliver(self._subscription))

    async def unsubscribe(self, names: Sequence[bytes]) -> None:
        """Stop the delivery of these topics; it is no error if they are not delivered."""
        await self._drop([topic for name in names if (topic := topic_of(name)) in self._names])

    async def _drop(self, topics: Sequence[str]) -> None:
        if not topics or self._subscription is None:
            return
        for topic in topics:
            self._names.pop(topic, None)
        await self._subscription.update([], list(dict.fromkeys(topics)))
        self._read = deque(record for record in self._read if record.topic in self._names)
        for _, _, pending in self._retries:
            pending.is_done |= pending.record.topic not in self._names

    def _start_offsets(self, topic: str, start: StartAt, offset: int) -> dict[int, int]:
        """Return the start offset of each partition. It is found now, so that all messages
        published after the response are delivered.
        """
        if start is StartAt.BEGINNING:
            return {}
        partitions = self._context.broker.topics.partitions(
            topic, operation=Operation.READ, principal=caller()
        )
        ends = {number: partition.visible_end for number, partition in enumerate(partitions)}
        if start is StartAt.CURRENT:
            return ends
        return {number: min(offset, end) for number, end in ends.items()}

    def acknowledged(self, *, is_ack: bool) -> None:
        """Record an ack or nack of the client."""
        if self._acknowledgement is not None:
            if not self._acknowledgement.done():
                self._acknowledgement.set_result(is_ack)
        elif self._given_up is not None and is_ack:
            self._given_up.is_done = True

    async def close(self) -> None:
        """Stop: the connection is lost."""
        if self._delivering is not None:
            self._delivering.cancel()
        if self._subscription is not None:
            await self._subscription.close()

    # ── SubscriptionListener ──────────────────────────────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        """Do nothing when partitions are assigned."""

    def revoked(self, epoch: int, partitions: list[TopicPartition], reason: str) -> None:
        """Do nothing: partitions were dropped, or their topic was deleted."""

    def ended(self, error: SparrowError) -> None:
        """End the connection: the subscription may not read any more."""
        self._connection.refuse(error.text)

    # ── delivery ──────────────────────────────────────────────────────────────────────────────────

    async def _deliver(self, subscription: Subscription) -> None:
        try:
            while self._connection.is_open:
                pending = await self._next(subscription)
                if pending is not None:
                    await self._deliver_one(pending)
        except SparrowError as error:
            self._connection.refuse(error.text)
        except BaseException:
            self._connection.abort()
            raise

    async def _next(self, subscription: Subscription) -> _Pending | None:
        """Return the next message to deliver; None: try again."""
        now_s = self._connection.context.loop.time()
        if self._retries and self._retries[0][0] <= now_s:
            pending = heapq.heappop(self._retries)[2]
            self._pending_bytes -= pending.size_bytes
            return None if pending.is_done else pending
        if self._is_full():
            await asyncio.sleep(self._retries[0][0] - now_s)
            return None
        if not self._read:
            wait_ms = None if not self._retries else max(1, round((self._retries[0][0] - now_s) * 1000))
            await self._fill(subscription, wait_ms)
        return _Pending(self._read.popleft()) if self._read else None

    def _is_full(self) -> bool:
        return len(self._retries) >= MAX_PENDING or self._pending_bytes >= MAX_PENDING_BYTES

    async def _fill(self, subscription: Subscription, wait_ms: int | None) -> None:
        for each in await subscription.read(READ_BYTES, max_records=MAX_PENDING, max_wait_ms=wait_ms):
            for batch in split_batches(each.topic, each.partition, each.data):
                read = partial(
                    decode_readable,
                    batch.data,
                    each.topic,
                    each.partition,
                    min_offset=each.offset,
                    max_bytes=MAX_PLAIN_BYTES,
                )
                is_long = batch.header.compression or batch.header.size_bytes > READ_BYTES
                try:
                    self._read += await asyncio.to_thread(read) if is_long else read()
                except CorruptBatch as error:  # the protocol of these clients has no message for it
                    self._context.broker.measures.corrupt_batches.met("seed", SKIP, error)

    async def _deliver_one(self, pending: _Pending) -> None:
        await self._wait_until_idle()
        name = self._names.get(pending.record.topic)
        if name is None or not self._connection.is_open:
            return
        if pending.deliveries > self._settings.redeliveries:
            await self._give_up(pending)
            return
        pending.deliveries += 1
        pending.last_ms = self._context.broker.clock.wall_ms()
        pending.first_ms = pending.last_ms if pending.first_ms < 0 else pending.first_ms
        self._acknowledgement = self._connection.context.loop.create_future()
        self._connection.send(delivery(name, pending.record.value or b""))
        if not await self._is_acknowledged(pending):
            await self._retry_or_give_up(pending)

    async def _wait_until_idle(self) -> None:
        """Wait until all requests of the client are answered: it takes the next bytes for the
        response.
        """
        while self._connection.is_open and (self._connection.has_work or not self._connection.can_write):
            await self._connection.until_done()
            await self._connection.until_writable()

    async def _is_acknowledged(self, pending: _Pending) -> bool:
        assert self._acknowledgement is not None
        try:
            async with asyncio.timeout(self._settings.ack_timeout_ms / 1000):
                is_ack = await self._acknowledgement
        except TimeoutError:
            self._given_up = pending
            pending.text = f"not acknowledged within {self._settings.ack_timeout_ms} ms"
            # The original's client does not answer an empty message.
            return not pending.record.value
        finally:
            self._acknowledgement = None
        self._given_up = None
        pending.text = "" if is_ack else "refused by the subscriber"
        return is_ack

    async def _retry_or_give_up(self, pending: _Pending) -> None:
        """Deliver again after the delay, or give up after the last delivery."""
        if pending.deliveries > self._settings.redeliveries:
            await self._give_up(pending)
        else:
            self._retry_later(pending)

    def _retry_later(self, pending: _Pending) -> None:
        due_s = self._connection.context.loop.time() + self._settings.ack_delay_ms / 1000
        heapq.heappush(self._retries, (due_s, next(self._numbers), pending))
        self._pending_bytes += pending.size_bytes

    # ── dead letters ──────────────────────────────────────────────────────────────────────────────

    async def _give_up(self, pending: _Pending) -> None:
        """Write the message to the dead-letter topic. If that fails, try again after the delay."""
        record = pending.record
        self._context.logger.warning(
            "messagebroker: %s did not acknowledge %s/%d/%d in %d deliveries; it is a dead letter",
            self._connection.peer,
            record.topic,
            record.partition,
            record.offset,
            pending.deliveries,
        )
        if record.topic.endswith(DEAD_LETTER_SUFFIX):
            return  # it stays in its topic: there are no dead letters of dead letters
        try:
            await self._write_dead_letter(pending)
        except SparrowError as error:
            self._context.logger.warning("messagebroker: a dead letter cannot be written: %s", error.text)
            self._retry_later(pending)

    async def _write_dead_letter(self, pending: _Pending) -> None:
        record = pending.record
        death = Death(
            queue="",
            subscriber=self._connection.peer,
            topic=record.topic,
            partition=record.partition,
            reason=DELIVERY_LIMIT,
            error=pending.text,
            delivery_count=pending.deliveries,
            first_delivery_ms=pending.first_ms,
            last_delivery_ms=pending.last_ms,
        )
        content = dead_letter(record, death, Style.SPARROW)
        message = Message(content.value, content.key, content.headers)
        topic = record.topic + DEAD_LETTER_SUFFIX
        await self._context.ensure_topic(topic)
        for result in await self._context.publisher.publish(topic, [message], principal=caller()):
            if isinstance(result, SparrowError):
                raise result
