"""Deliveries to one subscriber of messagebroker: one message at a time, over all its topics, each answered with ack or nack.

A message that is not acknowledged in time, or refused, comes again after a delay, while others are delivered; when that happened too often it goes to the
dead-letter topic `<topic>.dead`, and stays in its topic, too. How far a subscriber is is known as long as its connection lives, as in the original;
nothing is lost by that, for the next connection says where it begins.

What is held in memory for one subscriber: one chunk that was read, and messages that wait to come again, up to a limit; while it is reached no new
ones are read.

An answer says nothing of which message it means. It is taken for the one that is out; when none is, for the last one that was given up waiting for.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.positions import BEGINNING, Start
from sparrow.broker.queues.deadletters import Death, Style, dead_letter
from sparrow.broker.queues.lane import DELIVERY_LIMIT
from sparrow.broker.subscription import Selector
from sparrow.frontends.publishing import Message
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.topics import ensure_topic
from sparrow.protocol.seeds.messagebroker import StartAt, delivery
from sparrow.records.batch import split
from sparrow.records.record import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.reader import Key
    from sparrow.broker.subscription import Subscription
    from sparrow.frontends.seeds.pump import Pump
    from sparrow.records.record import Record

DEAD_LETTER_SUFFIX: Final = ".dead"
READ_BYTES: Final = 64 << 10
MAX_HELD: Final = 100
MAX_HELD_BYTES: Final = 4 << 20
MAX_PLAIN_BYTES: Final = 64 << 20
"""What the records of one batch may become when decompressed."""
MAX_TOPICS: Final = 1000
"""That one connection may subscribe to."""


@dataclass(slots=True, eq=False)
class _Held:
    """A message that is out, or comes again."""

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
    """Of one connection. Loop thread only; one call of `subscribe` or `unsubscribe` at a time."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._context = pump.port.context
        self._settings = pump.port.context.settings
        self._subscription: Subscription | None = None
        self._names: dict[str, bytes] = {}
        """Topics, and what the client calls them."""
        self._read: deque[Record] = deque()
        self._again: list[tuple[float, int, _Held]] = []
        """By the time at which they come again."""
        self._numbers = itertools.count()
        self._held_bytes = 0
        self._answer: asyncio.Future[bool] | None = None
        self._given_up: _Held | None = None
        self._delivering: asyncio.Task[None] | None = None

    # ── what the client asks for ──────────────────────────────────────────────────────────────────

    async def subscribe(self, names: Sequence[bytes], start: StartAt, offset: int) -> None:
        """Deliver these topics, which are made if they are missing; one that is delivered already begins anew.

        Raises:
            InvalidArgument: too many topics. InvalidTopicName, UnknownTopic, NotAuthorized
        """
        topics = {topic_of(name): name for name in names}
        if len(self._names | topics) > MAX_TOPICS:
            raise InvalidArgument(f"a connection subscribes to {MAX_TOPICS} topics at most")
        for topic in topics:
            await ensure_topic(self._context.broker, topic)
        await self._drop([topic for topic in topics if topic in self._names])
        selectors = [
            Selector(topic, False, Start(BEGINNING), self._begin(topic, start, offset)) for topic in topics
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
        self._subscription = await self._context.broker.subscribe(
            selectors, listener=self, committed_only=True, principal=ANONYMOUS
        )
        self._delivering = self._pump.port.start(self._deliver(self._subscription))

    async def unsubscribe(self, names: Sequence[bytes]) -> None:
        """Deliver these no more; those that are not delivered anyway are no error."""
        await self._drop([topic for name in names if (topic := topic_of(name)) in self._names])

    async def _drop(self, topics: Sequence[str]) -> None:
        if not topics or self._subscription is None:
            return
        for topic in topics:
            self._names.pop(topic, None)
        await self._subscription.update([], list(dict.fromkeys(topics)))
        self._read = deque(record for record in self._read if record.topic in self._names)
        for _, _, held in self._again:
            held.is_done |= held.record.topic not in self._names

    def _begin(self, topic: str, start: StartAt, offset: int) -> dict[int, int]:
        """Where each partition begins. It is found now: what is published after the answer is delivered."""
        if start is StartAt.BEGINNING:
            return {}
        partitions = self._context.broker.topics.get(topic).partitions
        ends = {number: partition.visible_end for number, partition in enumerate(partitions)}
        if start is StartAt.CURRENT:
            return ends
        return {number: min(offset, end) for number, end in ends.items()}

    def answered(self, *, is_ack: bool) -> None:
        """The client has said ack or nack."""
        if self._answer is not None:
            if not self._answer.done():
                self._answer.set_result(is_ack)
        elif self._given_up is not None and is_ack:
            self._given_up.is_done = True

    async def close(self) -> None:
        """The connection is gone."""
        if self._delivering is not None:
            self._delivering.cancel()
        if self._subscription is not None:
            await self._subscription.close()

    # ── what the subscription tells ───────────────────────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        """It begins to read partitions."""

    def revoked(self, epoch: int, partitions: list[Key], reason: str) -> None:
        """It does not read them any more: they were dropped, or the topic was deleted."""

    def ended(self, error: SparrowError) -> None:
        """It may not read any more."""
        self._pump.refuse(error.text)

    # ── delivering ────────────────────────────────────────────────────────────────────────────────

    async def _deliver(self, subscription: Subscription) -> None:
        try:
            while self._pump.is_open:
                held = await self._next(subscription)
                if held is not None:
                    await self._deliver_one(held)
        except SparrowError as error:
            self._pump.refuse(error.text)
        except BaseException:
            self._pump.abort()
            raise

    async def _next(self, subscription: Subscription) -> _Held | None:
        """What is to be delivered now; None: look again."""
        now_s = self._pump.port.loop.time()
        if self._again and self._again[0][0] <= now_s:
            held = heapq.heappop(self._again)[2]
            self._held_bytes -= held.size_bytes
            return None if held.is_done else held
        if self._is_full():
            await asyncio.sleep(self._again[0][0] - now_s)
            return None
        if not self._read:
            wait_ms = None if not self._again else max(1, round((self._again[0][0] - now_s) * 1000))
            await self._fill(subscription, wait_ms)
        return _Held(self._read.popleft()) if self._read else None

    def _is_full(self) -> bool:
        return len(self._again) >= MAX_HELD or self._held_bytes >= MAX_HELD_BYTES

    async def _fill(self, subscription: Subscription, wait_ms: int | None) -> None:
        for each in await subscription.read(READ_BYTES, max_records=MAX_HELD, max_wait_ms=wait_ms):
            for header, batch in split(each.data):
                read = partial(
                    decode,
                    batch,
                    each.topic,
                    each.partition,
                    min_offset=each.offset,
                    max_bytes=MAX_PLAIN_BYTES,
                )
                is_long = header.compression or header.size_bytes > READ_BYTES
                self._read += await asyncio.to_thread(read) if is_long else read()

    async def _deliver_one(self, held: _Held) -> None:
        await self._until_its_turn()
        name = self._names.get(held.record.topic)
        if name is None or not self._pump.is_open:
            return
        if held.deliveries > self._settings.redeliveries:
            await self._give_up(held)
            return
        held.deliveries += 1
        held.last_ms = self._context.broker.clock.wall_ms()
        held.first_ms = held.last_ms if held.first_ms < 0 else held.first_ms
        self._answer = self._pump.port.loop.create_future()
        self._pump.write(delivery(name, held.record.value or b""))
        if not await self._is_acknowledged(held):
            await self._come_again(held)

    async def _until_its_turn(self) -> None:
        """What the client asked for is answered first: it takes for the answer whatever comes next."""
        while self._pump.is_open and (self._pump.has_work or not self._pump.can_write):
            await self._pump.until_done()
            await self._pump.until_writable()

    async def _is_acknowledged(self, held: _Held) -> bool:
        assert self._answer is not None
        try:
            async with asyncio.timeout(self._settings.ack_timeout_ms / 1000):
                is_ack = await self._answer
        except TimeoutError:
            self._given_up = held
            held.text = f"not acknowledged within {self._settings.ack_timeout_ms} ms"
            return not held.record.value  # the original's client gives no answer to an empty message
        finally:
            self._answer = None
        self._given_up = None
        held.text = "" if is_ack else "refused by the subscriber"
        return is_ack

    async def _come_again(self, held: _Held) -> None:
        """After the delay, or to the dead letters if it was the last time."""
        if held.deliveries > self._settings.redeliveries:
            await self._give_up(held)
        else:
            self._hold_back(held)

    def _hold_back(self, held: _Held) -> None:
        due_s = self._pump.port.loop.time() + self._settings.ack_delay_ms / 1000
        heapq.heappush(self._again, (due_s, next(self._numbers), held))
        self._held_bytes += held.size_bytes

    # ── dead letters ──────────────────────────────────────────────────────────────────────────────

    async def _give_up(self, held: _Held) -> None:
        """To the dead-letter topic. While that fails the message is held back, and tried again."""
        record = held.record
        self._context.logger.warning(
            "messagebroker: %s did not acknowledge %s/%d/%d in %d deliveries; it is a dead letter",
            self._pump.peer,
            record.topic,
            record.partition,
            record.offset,
            held.deliveries,
        )
        if record.topic.endswith(DEAD_LETTER_SUFFIX):
            return  # it stays where it is: there are no dead letters of dead letters
        try:
            await self._bury(held)
        except SparrowError as error:
            self._context.logger.warning("messagebroker: a dead letter cannot be written: %s", error.text)
            self._hold_back(held)

    async def _bury(self, held: _Held) -> None:
        record = held.record
        death = Death(
            queue="",
            subscriber=self._pump.peer,
            topic=record.topic,
            partition=record.partition,
            reason=DELIVERY_LIMIT,
            error=held.text,
            delivery_count=held.deliveries,
            first_delivery_ms=held.first_ms,
            last_delivery_ms=held.last_ms,
        )
        content = dead_letter(record, death, Style.SPARROW)
        message = Message(content.value, content.key, content.headers)
        topic = record.topic + DEAD_LETTER_SUFFIX
        await ensure_topic(self._context.broker, topic)
        for answer in await self._context.publisher.publish(topic, [message], principal=ANONYMOUS):
            if isinstance(answer, SparrowError):
                raise answer
