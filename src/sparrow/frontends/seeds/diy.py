"""The door for clients of diy_message_broker: pull.

A topic has one cursor that all who consume it share: the queue `<topic>.diy`, made at first use, from the first message on. A message is acknowledged,
durably, before it is sent to the one who asked, so nobody gets it again, as in the original. Messages are published without an answer; what cannot
be kept ends the connection, so that its client sees it. A goodbye is answered when all that the client published is on stable storage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.settlement import Verb
from sparrow.frontends.publishing import Message
from sparrow.frontends.seeds.intake import Intake
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import Hold, Port, Pump
from sparrow.frontends.seeds.queues import lease_published, open_queue, records_of, settlements
from sparrow.protocol.seeds import diy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.frontends.seeds.frontend import Context
    from sparrow.records.record import Record

QUEUE_SUFFIX: Final = ".diy"
CONSUMER_ID: Final = "diy_message_broker"
MAX_CLOCK_DIFFERENCE_MS: Final = 86_400_000
"""A client's timestamp that is further from our clock says nothing of the message; ours is taken."""
MAX_AT_ONCE: Final = 256
"""Questions of all clients for messages of one topic that are answered together."""
_NS_PER_MS: Final = 1_000_000


def open_door(context: Context) -> DiyPort:
    """The door of this seed."""
    return DiyPort(context)


class DiyPort(Port):
    """The port, with a cursor for each topic that somebody consumed."""

    def __init__(self, context: Context) -> None:
        super().__init__("diy_message_broker", context, DiyPump)
        self._cursors: dict[str, Cursor] = {}

    def cursor(self, topic: str) -> Cursor:
        """The one of a topic."""
        found = self._cursors.get(topic)
        if found is None:
            found = self._cursors[topic] = Cursor(self, topic)
        return found

    async def drain(self, timeout_s: float) -> None:
        await super().drain(timeout_s)
        for cursor in self._cursors.values():
            await cursor.close()


class DiyPump(Pump):
    """One client. What it sends is handled in order: nothing that follows a question is looked at before that is answered."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._decoder = diy.Decoder(port.context.settings.max_message_bytes)
        self._intake = Intake(self, self._not_kept)
        self._to_do: deque[diy.Event] = deque()
        self._serving: asyncio.Task[None] | None = None

    @property
    def bytes_wanted(self) -> int:
        return self._decoder.bytes_wanted

    def received(self, data: bytes) -> bool:
        self._decoder.receive_data(data)
        is_whole = False
        for event in self._decoder.events():
            is_whole = True
            if self._serving is None and isinstance(event, diy.Publish):
                self._publish(event)
                continue
            self._to_do.append(event)
            if self._serving is None:
                self.hold(Hold.WORK)
                self._serving = self.port.start(self._serve())
        return is_whole

    def _publish(self, event: diy.Publish) -> None:
        now_ms = self.port.context.broker.clock.wall_ms()
        messages = [
            Message(data, key or None, (), _time_ms(timestamp_ns, now_ms))
            for key, data, timestamp_ns in event.items
        ]
        size_bytes = sum(len(key) + len(data) for key, data, _ in event.items)
        self._intake.publish(topic_of(event.topic), messages, size_bytes)

    def _not_kept(self, topic: str, count: int, error: SparrowError) -> None:  # noqa: ARG002 - the log has it
        self.reset()

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    async def _serve(self) -> None:
        try:
            while self._to_do:
                await self._handle(self._to_do.popleft())
        except SparrowError as error:
            self.refuse(error.text)
        except BaseException:
            self.abort()
            raise
        finally:
            self._to_do.clear()
            self._serving = None
            self.unhold(Hold.WORK)

    async def _handle(self, event: diy.Event) -> None:
        if isinstance(event, diy.Publish):
            self._publish(event)
        elif isinstance(event, diy.Consume) and self.is_open:
            await self._intake.appended()
            await self.until_writable()
            self._answer(event, await self._port().cursor(topic_of(event.topic)).take(self._may_have))
        elif isinstance(event, diy.Goodbye) and self.is_open:
            await self._intake.settled()
            self._say_goodbye()

    def _port(self) -> DiyPort:
        assert isinstance(self.port, DiyPort)
        return self.port

    def _may_have(self) -> bool:
        """Whether it still waits for an answer."""
        return self.is_open

    def _answer(self, event: diy.Consume, record: Record | None) -> None:
        if record is None:
            self.write(diy.consume_empty(self._now_ns()))
            return
        frame = diy.message(
            diy.CONSUME,
            event.topic,
            record.key or b"",
            record.value or b"",
            timestamp_ns=record.timestamp * _NS_PER_MS,
        )
        self.write(frame)

    def _say_goodbye(self) -> None:
        self._to_do.clear()
        self.write(diy.goodbye(self._now_ns()))
        self.close()

    def drained(self) -> None:
        if self.is_open:
            self._say_goodbye()

    def _now_ns(self) -> int:
        return self.port.context.broker.clock.wall_ms() * _NS_PER_MS


def _time_ms(timestamp_ns: int, now_ms: int) -> int:
    """The time of a message: its client's, unless that cannot be right."""
    time_ms = timestamp_ns // _NS_PER_MS
    return time_ms if abs(time_ms - now_ms) <= MAX_CLOCK_DIFFERENCE_MS else now_ms


class Cursor:
    """What all consumers of a topic share. Whoever asks while others are being answered is answered with the next ones, together."""

    def __init__(self, port: Port, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._consumer: QueueConsumer | None = None
        self._waiting: deque[tuple[asyncio.Future[Record | None], Callable[[], bool]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def take(self, is_wanted: Callable[[], bool]) -> Record | None:
        """The next message, which is nobody else's any more; None: there is none.

        Args:
            is_wanted: whether it can still be had by who asked.

        Raises:
            UnknownTopic, NotAuthorized, DiskFull, StorageFailed, …: none can be had.
        """
        answer: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, is_wanted))
        if self._working is None:
            self._working = self._port.start(self._work())
        return await answer

    async def close(self) -> None:
        """Hand out nothing more."""
        if self._consumer is not None:
            await self._consumer.close(give_back=True)

    async def _work(self) -> None:
        answers: list[asyncio.Future[Record | None]] = []
        try:
            while self._waiting:
                answers = self._next_answers()
                try:
                    records = await self._take(len(answers)) if answers else []
                except SparrowError as error:
                    self._consumer = None
                    _fail(answers, error)
                    continue
                for number, answer in enumerate(answers):
                    if not answer.done():
                        answer.set_result(records[number] if number < len(records) else None)
        finally:
            self._working = None
            for answer in [*answers, *(each for each, _ in self._waiting)]:
                answer.cancel()

    def _next_answers(self) -> list[asyncio.Future[Record | None]]:
        """Those who are to be answered now; who has gone gets no message, as it would be lost."""
        answers: list[asyncio.Future[Record | None]] = []
        while self._waiting and len(answers) < MAX_AT_ONCE:
            answer, is_wanted = self._waiting.popleft()
            if answer.done():
                continue
            if is_wanted():
                answers.append(answer)
            else:
                answer.set_result(None)
        return answers

    async def _take(self, count: int) -> list[Record]:
        """At most so many messages, acknowledged on stable storage."""
        if self._consumer is None or not self._consumer.is_open:
            name = self._topic + QUEUE_SUFFIX
            self._consumer = await open_queue(self._port.context.broker, name, self._topic, CONSUMER_ID)
        consumer = self._consumer
        leased = await lease_published(consumer, count)
        if not leased:
            return []
        records = records_of(leased)
        await consumer.settle(settlements(leased, Verb.ACK))
        return sorted(records, key=lambda record: (record.partition, record.offset))


def _fail(answers: list[asyncio.Future[Record | None]], error: SparrowError) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
