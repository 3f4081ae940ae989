"""The listener for clients of diy_message_broker: pull.

All consumers of a topic share one cursor: the queue `<topic>.diy`, created at first use and
starting at the first message. A message is acknowledged, durably, before it is sent, so it is sent
only once, as in the original. Publishes have no response; if a message cannot be stored, the
connection ends, so that the client notices. A goodbye is answered when all messages of the client
are on stable storage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.publisher import MessageColumns
from sparrow.frontends.seeds.connection import Port
from sparrow.frontends.seeds.handout_queues import CURSORS, lease_published, open_queue
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.serial_connection import SerialConnection
from sparrow.protocol.seeds import diy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.frontends.seeds.context import SeedContext
    from sparrow.records.record import Record

QUEUE_SUFFIX: Final = CURSORS[0]
CONSUMER_ID: Final = "diy_message_broker"
MAX_CLOCK_DIFFERENCE_MS: Final = 86_400_000
"""A client's timestamp that differs more than this from our clock is replaced by ours."""
MAX_AT_ONCE: Final = 256
"""Requests of all clients for messages of one topic that are answered together."""
MAX_PIPELINED: Final = 8
"""The same for one client: its messages are acknowledged when the first one is sent."""
MAX_AHEAD: Final = 64
"""Messages that are leased before they are requested."""
IDLE_S: Final = 1.0
"""Leased messages are released after this time without a request."""
_NS_PER_MS: Final = 1_000_000


def open_listener(context: SeedContext) -> DiyPort:
    """Create the listener of this seed."""
    return DiyPort(context)


class DiyPort(Port):
    """The port, with a cursor for each consumed topic."""

    def __init__(self, context: SeedContext) -> None:
        super().__init__("diy_message_broker", context, DiyConnection)
        self._cursors: dict[str, DiyCursor] = {}

    def cursor(self, topic: str) -> DiyCursor:
        """Return the cursor of a topic."""
        found = self._cursors.get(topic)
        if found is None:
            found = self._cursors[topic] = DiyCursor(self, topic)
        return found

    def forget(self, topic: str) -> None:
        """Remove the cursor of a topic; it has no state."""
        self._cursors.pop(topic, None)

    async def drain(self, timeout_s: float) -> None:
        await super().drain(timeout_s)
        for cursor in self._cursors.values():
            await cursor.close()


class DiyConnection(SerialConnection[diy.Event]):
    """One client. Its messages are handled in order: nothing after a request is handled before the
    response.
    """

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
        self.reset_on_close()
        now_ms = self.port.context.broker.clock.wall_ms()
        keys = [key or None for key in event.keys] if any(event.keys) else None
        columns = MessageColumns(
            event.values, keys, timestamps_ms=_timestamps_ms(event.timestamps_ns, now_ms)
        )
        size_bytes = sum(map(len, event.keys)) + sum(map(len, event.values))
        self._publish_queue.publish(topic_of(event.topic), columns, size_bytes)

    def _publish_failed(self, topic: str, count: int, error: SparrowError) -> None:  # noqa: ARG002 - the log has it
        self.reset()

    # ── responses ─────────────────────────────────────────────────────────────────────────────────

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
            await self._publish_queue.settled()
            self._say_goodbye()

    async def _consume(self, event: diy.Consume) -> None:
        """Respond to a request, and to those that follow it directly."""
        self.allow_clean_close()
        requests = [event]
        while len(requests) < MAX_PIPELINED and self._to_do and self._to_do[0][:1] == event[:1]:
            following = self._to_do[0]
            if not isinstance(following, diy.Consume):
                break
            requests.append(following)
            self._to_do.popleft()
        await self._publish_queue.appended()
        await self.until_writable()
        cursor = self._port().cursor(topic_of(event.topic))
        results = await asyncio.gather(
            *(cursor.take(self._is_waiting) for _ in requests), return_exceptions=True
        )
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, BaseException):
                raise result  # the records before it are acknowledged, so they are sent
            self._respond(request, result)

    def _port(self) -> DiyPort:
        assert isinstance(self.port, DiyPort)
        return self.port

    def _is_waiting(self) -> bool:
        """Return True if the client can still receive a response."""
        return self.is_open

    def _respond(self, event: diy.Consume, record: Record | None) -> None:
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
        self.allow_clean_close()
        self.write(diy.goodbye(self._now_ns()))
        self.close()

    def drained(self) -> None:
        # Records that were acknowledged for this client are sent first, and what it sent is
        # published.
        if self._serving is not None:
            publishes = [event for event in self._to_do if isinstance(event, diy.Publish)]
            self._to_do = deque([*publishes, diy.Goodbye(b"")])
        elif self.is_open:
            self._say_goodbye()

    def _now_ns(self) -> int:
        return self.port.context.broker.clock.wall_ms() * _NS_PER_MS


def _timestamps_ms(timestamps_ns: list[int], now_ms: int) -> list[int]:
    """Return the clients' timestamps, with implausible ones replaced by `now_ms`."""
    times = [timestamp // _NS_PER_MS for timestamp in timestamps_ns]
    first, last = now_ms - MAX_CLOCK_DIFFERENCE_MS, now_ms + MAX_CLOCK_DIFFERENCE_MS
    if min(times) >= first and max(times) <= last:
        return times
    return [time if first <= time <= last else now_ms for time in times]


Waiter = tuple["asyncio.Future[Record | None]", "Callable[[], bool]"]


class DiyCursor:
    """The shared position of all consumers of a topic. Requests that arrive during a response are
    answered together.

    A few messages are leased ahead of the requests, so that a response waits only for one write,
    the acknowledgement. Without requests for a while, they are released.
    """

    def __init__(self, port: DiyPort, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._consumer: QueueConsumer | None = None
        self._ahead: deque[Record] = deque()
        """Leased records that are not handed out."""
        self._lease_size = 1
        """Records per lease; it doubles as long as all of them are requested."""
        self._waiting: deque[Waiter] = deque()
        self._working: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    def take(self, is_wanted: Callable[[], bool]) -> asyncio.Future[Record | None]:
        """Return a future for the next message, which no other client gets; its result is None if
        there is none.

        The future fails with UnknownTopic, NotAuthorized, DiskFull, StorageFailed and others if no
        message can be read.

        Args:
            is_wanted: returns True if the client can still receive the message.
        """
        future: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, is_wanted))
        if self._working is None:
            self._working = self._port.start(self._work())
        return future

    async def close(self) -> None:
        """Stop, and release leased messages."""
        if self._idle is not None:
            self._idle.cancel()
        if self._consumer is not None:
            await self._consumer.close(release=True)

    async def _work(self) -> None:
        waiters: list[Waiter] = []
        try:
            if self._idle is not None:
                self._idle.cancel()
            while self._waiting:
                waiters = self._next()
                try:
                    records = await self._take(len(waiters)) if waiters else []
                except SparrowError as error:
                    self._consumer = None
                    self._ahead.clear()
                    _fail(waiters, error)
                    continue
                if records:  # those without a record are the first of the next round
                    self._waiting.extendleft(reversed(waiters[len(records) :]))
                    del waiters[len(records) :]
                _resolve(waiters, records)
            # Otherwise clients could leave a cursor for each invalid name.
            if self._consumer is None:
                self._port.forget(self._topic)
            else:
                self._idle = self._port.loop.call_later(IDLE_S, self._release_ahead)
        finally:
            self._working = None
            for future, _ in (*waiters, *self._waiting):
                future.cancel()

    def _next(self) -> list[Waiter]:
        """Return the waiters to answer now. A client that has gone gets no message, as it would be
        lost.
        """
        waiters: list[Waiter] = []
        while self._waiting and len(waiters) < MAX_AT_ONCE:
            future, is_wanted = self._waiting.popleft()
            if future.done():
                continue
            if is_wanted():
                waiters.append((future, is_wanted))
            else:
                future.set_result(None)
        return waiters

    async def _take(self, count: int) -> list[Record]:
        """Return at most `count` messages, acknowledged on stable storage; [] if there are none."""
        while True:
            if not self._ahead:
                await self._lease(count)
            if not self._ahead:
                return []
            records = [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]
            refusals = await self._settle(Verb.ACK, records)
            acknowledged = [
                record for record, refusal in zip(records, refusals, strict=True) if refusal is None
            ]
            if acknowledged:
                return acknowledged

    async def _lease(self, count: int) -> None:
        if self._consumer is None or not self._consumer.is_open:
            name = self._topic + QUEUE_SUFFIX
            self._consumer = await open_queue(self._port.context, name, self._topic, CONSUMER_ID)
        self._ahead.extend(await lease_published(self._consumer, max(count, self._lease_size)))
        self._lease_size = min(2 * self._lease_size, MAX_AHEAD)

    def _settle(self, verb: Verb, records: Iterable[Record]) -> asyncio.Future[list[SparrowError | None]]:
        assert self._consumer is not None
        return self._consumer.settle(
            [
                Settlement(verb, record.topic, record.partition, record.offset, record.offset)
                for record in records
            ]
        )

    def _release_ahead(self) -> None:
        """Release the messages that were leased ahead, so that other consumers of the queue can
        lease them.
        """
        self._lease_size = 1
        ahead, self._ahead = self._ahead, deque()
        if ahead and self._consumer is not None and self._consumer.is_open:
            with suppress(SparrowError):  # then they are ready again when their lease ends
                self._settle(Verb.RELEASE, ahead).add_done_callback(_ignore_failure)


def _resolve(waiters: list[Waiter], records: list[Record]) -> None:
    """Give the records to the first waiters, None to the others."""
    for (future, _), record in zip_longest(waiters, records):
        if not future.done():
            future.set_result(record)


def _fail(waiters: list[Waiter], error: SparrowError) -> None:
    for future, _ in waiters:
        if not future.done():
            future.set_exception(error)


def _ignore_failure(settled: asyncio.Future[list[SparrowError | None]]) -> None:
    """Ignore a failed release: the lease expires, and the broker's log has the error."""
    if not settled.cancelled():
        settled.exception()
