"""The door for clients of diy_message_broker: pull.

A topic has one cursor that all who consume it share: the queue `<topic>.diy`, made at first use, from the first message on. A message is acknowledged,
durably, before it is sent to the one who asked, so nobody gets it again, as in the original. Messages are published without an answer; what cannot
be kept ends the connection, so that its client sees it. A goodbye is answered when all that the client published is on stable storage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.frontends.publishing import Columns
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import Port
from sparrow.frontends.seeds.queues import CURSORS, lease_published, open_queue
from sparrow.frontends.seeds.serial import SerialPump
from sparrow.protocol.seeds import diy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.frontends.seeds.frontend import Context
    from sparrow.records.record import Record

QUEUE_SUFFIX: Final = CURSORS[0]
CONSUMER_ID: Final = "diy_message_broker"
MAX_CLOCK_DIFFERENCE_MS: Final = 86_400_000
"""A client's timestamp that is further from our clock says nothing of the message; ours is taken."""
MAX_AT_ONCE: Final = 256
"""Questions of all clients for messages of one topic that are answered together."""
MAX_PIPELINED: Final = 8
"""… of one client: their messages are its own when the first is sent."""
MAX_AHEAD: Final = 64
"""Messages that are leased before anybody asks for them."""
IDLE_S: Final = 1.0
"""After so long without a question they are given back."""
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

    def forget(self, topic: str) -> None:
        """Its cursor has nothing to remember."""
        self._cursors.pop(topic, None)

    async def drain(self, timeout_s: float) -> None:
        await super().drain(timeout_s)
        for cursor in self._cursors.values():
            await cursor.close()


class DiyPump(SerialPump[diy.Event]):
    """One client. What it sends is handled in order: nothing that follows a question is looked at before that is answered."""

    def __init__(self, port: Port) -> None:
        self._decoder = diy.Decoder(port.context.settings.max_message_bytes)
        super().__init__(port, self._decoder)

    def received(self, data: bytes) -> bool:
        self._decoder.receive_data(data)
        is_whole = False
        for event in self._decoder.events():
            is_whole = True
            if self._serving is None and isinstance(event, diy.Publish):
                self._publish(event)
                continue
            self._to_do.append(event)
            self._begin_serving()
        return is_whole

    def _publish(self, event: diy.Publish) -> None:
        self.stake()
        now_ms = self.port.context.broker.clock.wall_ms()
        keys = [key or None for key in event.keys] if any(event.keys) else None
        columns = Columns(event.values, keys, timestamps_ms=_times_ms(event.timestamps_ns, now_ms))
        size_bytes = sum(map(len, event.keys)) + sum(map(len, event.values))
        self._intake.publish(topic_of(event.topic), columns, size_bytes)

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
            self._served()

    async def _handle(self, event: diy.Event) -> None:
        if isinstance(event, diy.Publish):
            self._publish(event)
        elif isinstance(event, diy.Consume) and self.is_open:
            await self._consume(event)
        elif isinstance(event, diy.Goodbye) and self.is_open:
            await self._intake.settled()
            self._say_goodbye()

    async def _consume(self, event: diy.Consume) -> None:
        """Answer a question, and those that follow it at once."""
        self.unstake()
        asked = [event]
        while len(asked) < MAX_PIPELINED and self._to_do and self._to_do[0][:1] == event[:1]:
            following = self._to_do[0]
            if not isinstance(following, diy.Consume):
                break
            asked.append(following)
            self._to_do.popleft()
        await self._intake.appended()
        await self.until_writable()
        cursor = self._port().cursor(topic_of(event.topic))
        answers = await asyncio.gather(*(cursor.take(self._may_have) for _ in asked), return_exceptions=True)
        for question, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer  # those before it are acknowledged: they are sent
            self._answer(question, answer)

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
        self.unstake()
        self.write(diy.goodbye(self._now_ns()))
        self.close()

    def drained(self) -> None:
        if self._serving is not None:  # what was acknowledged for it is sent first, and what it sent is kept
            publishes = [event for event in self._to_do if isinstance(event, diy.Publish)]
            self._to_do = deque([*publishes, diy.Goodbye(b"")])
        elif self.is_open:
            self._say_goodbye()

    def _now_ns(self) -> int:
        return self.port.context.broker.clock.wall_ms() * _NS_PER_MS


def _times_ms(timestamps_ns: list[int], now_ms: int) -> list[int]:
    """The times of messages: their client's, but for those that cannot be right."""
    times = [timestamp // _NS_PER_MS for timestamp in timestamps_ns]
    first, last = now_ms - MAX_CLOCK_DIFFERENCE_MS, now_ms + MAX_CLOCK_DIFFERENCE_MS
    if min(times) >= first and max(times) <= last:
        return times
    return [time if first <= time <= last else now_ms for time in times]


Asked = tuple["asyncio.Future[Record | None]", "Callable[[], bool]"]


class Cursor:
    """What all consumers of a topic share. Those who ask while others are being answered are answered together.

    Messages are leased a few ahead of those who ask, so that an answer waits for one write alone: that it is acknowledged. When nobody has asked for
    a while they are given back.
    """

    def __init__(self, port: DiyPort, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._consumer: QueueConsumer | None = None
        self._ahead: deque[Record] = deque()
        """Leased, and not handed out."""
        self._pace = 1
        """How many are leased at a time: more as long as all are asked for."""
        self._waiting: deque[Asked] = deque()
        self._working: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    def take(self, is_wanted: Callable[[], bool]) -> asyncio.Future[Record | None]:
        """The next message, which is nobody else's any more; None: there is none.

        The future fails with UnknownTopic, NotAuthorized, DiskFull, StorageFailed, …: none can be had.

        Args:
            is_wanted: whether it can still be had by who asked.
        """
        answer: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, is_wanted))
        if self._working is None:
            self._working = self._port.start(self._work())
        return answer

    async def close(self) -> None:
        """Hand out nothing more."""
        if self._idle is not None:
            self._idle.cancel()
        if self._consumer is not None:
            await self._consumer.close(give_back=True)

    async def _work(self) -> None:
        asked: list[Asked] = []
        try:
            if self._idle is not None:
                self._idle.cancel()
            while self._waiting:
                asked = self._next()
                try:
                    records = await self._take(len(asked)) if asked else []
                except SparrowError as error:
                    self._consumer = None
                    self._ahead.clear()
                    _fail(asked, error)
                    continue
                if records:  # whoever gets none yet is the first of the next round
                    self._waiting.extendleft(reversed(asked[len(records) :]))
                    del asked[len(records) :]
                _answer(asked, records)
            if self._consumer is None:  # else clients could leave one for each name that no topic may have
                self._port.forget(self._topic)
            else:
                self._idle = self._port.loop.call_later(IDLE_S, self._give_back)
        finally:
            self._working = None
            for answer, _ in (*asked, *self._waiting):
                answer.cancel()

    def _next(self) -> list[Asked]:
        """Those who are to be answered now; who has gone gets no message, as it would be lost."""
        asked: list[Asked] = []
        while self._waiting and len(asked) < MAX_AT_ONCE:
            answer, is_wanted = self._waiting.popleft()
            if answer.done():
                continue
            if is_wanted():
                asked.append((answer, is_wanted))
            else:
                answer.set_result(None)
        return asked

    async def _take(self, count: int) -> list[Record]:
        """At most so many messages, acknowledged on stable storage; [] if there are none."""
        while True:
            if not self._ahead:
                await self._lease(count)
            if not self._ahead:
                return []
            records = [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]
            refusals = await self._settle(Verb.ACK, records)
            kept = [record for record, refusal in zip(records, refusals, strict=True) if refusal is None]
            if kept:
                return kept

    async def _lease(self, count: int) -> None:
        if self._consumer is None or not self._consumer.is_open:
            name = self._topic + QUEUE_SUFFIX
            self._consumer = await open_queue(self._port.context.broker, name, self._topic, CONSUMER_ID)
        self._ahead.extend(await lease_published(self._consumer, max(count, self._pace)))
        self._pace = min(2 * self._pace, MAX_AHEAD)

    def _settle(self, verb: Verb, records: Iterable[Record]) -> asyncio.Future[list[SparrowError | None]]:
        assert self._consumer is not None
        return self._consumer.settle(
            [
                Settlement(verb, record.topic, record.partition, record.offset, record.offset)
                for record in records
            ]
        )

    def _give_back(self) -> None:
        """Nobody asks: others that take from the queue may have them."""
        self._pace = 1
        ahead, self._ahead = self._ahead, deque()
        if ahead and self._consumer is not None and self._consumer.is_open:
            with suppress(SparrowError):  # then they are ready again when their lease ends
                self._settle(Verb.RETURN, ahead).add_done_callback(_look_at)


def _answer(asked: list[Asked], records: list[Record]) -> None:
    """The records to the first, nothing to the others."""
    for (answer, _), record in zip_longest(asked, records):
        if not answer.done():
            answer.set_result(record)


def _fail(asked: list[Asked], error: SparrowError) -> None:
    for answer, _ in asked:
        if not answer.done():
            answer.set_exception(error)


def _look_at(settled: asyncio.Future[list[SparrowError | None]]) -> None:
    """What could not be given back is ready again when its lease ends; a failure is in the broker's log."""
    if not settled.cancelled():
        settled.exception()
