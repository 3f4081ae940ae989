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
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.frontends.publisher import MessageColumns
from sparrow.frontends.seeds.context import Port
from sparrow.frontends.seeds.handout_queues import CURSORS, lease_published, open_queue, settlements_of
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.serial_connection import SerialConnection
from sparrow.protocol.seeds import diy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Settlement
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
MAX_AHEAD: Final = 256
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
        self._decoder = diy.Decoder(port.settings.max_message_bytes)
        super().__init__(port, self._decoder)
        self._is_drained = False

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
        now_ms = self.context.broker.clock.wall_ms()
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
            if self._is_drained:
                await self._publish_queue.settled()
                self.allow_clean_close()  # the client reads, and so misses the goodbye
                self.close()
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
        if len(requests) == 1:
            self._respond(event, await cursor.take(self._is_waiting))
            return
        results = await asyncio.gather(
            *(cursor.take(self._is_waiting) for _ in requests), return_exceptions=True
        )
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, BaseException):
                raise result  # the records before it are acknowledged, so they are sent
            self._respond(request, result)

    def _port(self) -> DiyPort:
        assert isinstance(self.context, DiyPort)
        return self.context

    def _is_waiting(self) -> bool:
        """Return True if the client can still receive a response."""
        return self.is_open

    def _respond(self, event: diy.Consume, record: Record | None) -> None:
        if record is None:
            self.send(diy.consume_empty(self._now_ns()))
            return
        frame = diy.message(
            diy.CONSUME,
            event.topic,
            record.key or b"",
            record.value or b"",
            timestamp_ns=record.timestamp * _NS_PER_MS,
        )
        self.send(frame)

    def _say_goodbye(self) -> None:
        self._to_do.clear()
        self.allow_clean_close()
        self.send(diy.goodbye(self._now_ns()))
        self.close()

    def drained(self) -> None:
        # Acknowledged records for this client are sent first, and its messages are published. A
        # goodbye that the client did not ask for would confirm messages that nobody has read.
        if self._serving is not None:
            self._to_do = deque(event for event in self._to_do if not isinstance(event, diy.Consume))
            self._is_drained = True
        else:
            self.close()

    def _now_ns(self) -> int:
        return self.context.broker.clock.wall_ms() * _NS_PER_MS


def _timestamps_ms(timestamps_ns: list[int], now_ms: int) -> list[int]:
    """Return the clients' timestamps, with implausible ones replaced by `now_ms`."""
    times = [timestamp // _NS_PER_MS for timestamp in timestamps_ns]
    first, last = now_ms - MAX_CLOCK_DIFFERENCE_MS, now_ms + MAX_CLOCK_DIFFERENCE_MS
    if min(times) >= first and max(times) <= last:
        return times
    return [time if first <= time <= last else now_ms for time in times]


Waiter = tuple["asyncio.Future[Record | None]", "Callable[[], bool]"]


class DiyCursor:
    """The shared position of all consumers of a topic. Requests of one iteration of the event loop
    are answered together.

    Messages are leased ahead of the requests, in the background, so that a response waits only for
    one write, the acknowledgement. Later requests do not wait for the acknowledgements before
    theirs. Without requests for a while, leased messages are released.
    """

    def __init__(self, port: DiyPort, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._consumer: QueueConsumer | None = None
        self._ahead: deque[Record] = deque()
        """Leased records that are not handed out."""
        self._lease_size = 1
        """Records per lease; it doubles as long as all of them are requested."""
        self._may_have_more = False
        """True if the last lease brought as many records as were asked for."""
        self._waiting: deque[Waiter] = deque()
        self._is_due = False
        """True if `_hand_out` is about to be called."""
        self._acknowledging = 0
        """Acknowledgements under way."""
        self._leasing: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    def take(self, is_wanted: Callable[[], bool]) -> asyncio.Future[Record | None]:
        """Return a future for the next message, which no other client gets; its result is None if
        there is none.

        The future fails with UnknownTopic, NotAuthorized, DiskFull, StorageFailed and others if no
        message can be read.

        Args:
            is_wanted: returns True if the client can still receive the message.
        """
        future: asyncio.Future[Record | None] = self._port.loop.create_future()
        self._waiting.append((future, is_wanted))
        if not self._is_due:
            self._is_due = True
            self._port.loop.call_soon(self._hand_out)
        return future

    async def close(self) -> None:
        """Stop, and release leased messages."""
        if self._idle is not None:
            self._idle.cancel()
        if self._consumer is not None:
            await self._consumer.close(release=True)

    # ── hand out ──────────────────────────────────────────────────────────────────────────────────

    def _hand_out(self) -> None:
        """Acknowledge as many of the leased messages as are requested, and lease more if that is
        needed.
        """
        self._is_due = False
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        while self._ahead and (waiters := self._next(min(len(self._ahead), MAX_AT_ONCE))):
            self._acknowledge(waiters, [self._ahead.popleft() for _ in waiters])
        is_low = self._may_have_more and len(self._ahead) * 2 < self._lease_size
        if self._leasing is None and (self._waiting or is_low):
            self._leasing = self._port.spawn(self._lease())
        self._rest()

    def _next(self, count: int) -> list[Waiter]:
        """Return at most `count` waiters to answer now. A client that has gone gets no message, as
        it would be lost.
        """
        waiters: list[Waiter] = []
        while self._waiting and len(waiters) < count:
            future, is_wanted = self._waiting.popleft()
            if future.done():
                continue
            if is_wanted():
                waiters.append((future, is_wanted))
            else:
                future.set_result(None)
        return waiters

    def _acknowledge(self, waiters: list[Waiter], records: list[Record]) -> None:
        """Give messages to waiters once they are acknowledged on stable storage. Neighbours are
        acknowledged as one range, which has effect as a whole or not at all.
        """
        settlements = settlements_of(records, Verb.ACK)
        try:
            settled = self._settle(settlements)
        except SparrowError as error:
            self._fail(waiters, error)
            return
        self._acknowledging += 1
        settled.add_done_callback(partial(self._acknowledged, waiters, records, settlements))

    def _acknowledged(
        self,
        waiters: list[Waiter],
        records: list[Record],
        settlements: list[Settlement],
        settled: asyncio.Future[list[SparrowError | None]],
    ) -> None:
        self._acknowledging -= 1
        error = None if settled.cancelled() else settled.exception()
        if settled.cancelled():
            for future, _ in waiters:
                future.cancel()
        elif isinstance(error, SparrowError):
            self._fail(waiters, error)
        elif error is not None:
            raise error
        else:
            start = 0
            for settlement, refusal in zip(settlements, settled.result(), strict=True):
                end = start + settlement.last - settlement.first + 1
                if refusal is None:
                    _give(waiters[start:end], records[start:end])
                else:
                    self._refused(waiters[start:end], records[start:end])
                start = end
        self._rest()

    def _refused(self, waiters: list[Waiter], records: list[Record]) -> None:
        """Try again one by one: some of the records are not leased any more, as after a purge."""
        if len(records) > 1:
            for waiter, record in zip(waiters, records, strict=True):
                self._acknowledge([waiter], [record])
        else:  # the waiter is the first for the next one
            self._waiting.extendleft(waiters)
            self._hand_out()

    def _fail(self, waiters: Iterable[Waiter], error: SparrowError) -> None:
        """Begin again with the next request."""
        self._consumer = None
        self._ahead.clear()
        self._may_have_more = False
        for future, _ in waiters:
            if not future.done():
                future.set_exception(error)

    def _rest(self) -> None:
        """Release what is leased after a while, if nothing is requested any more."""
        if self._waiting or self._acknowledging or self._leasing is not None or self._idle is not None:
            return
        # Otherwise clients could leave a cursor for each invalid name.
        if self._consumer is None:
            self._port.forget(self._topic)
        else:
            self._idle = self._port.loop.call_later(IDLE_S, self._release_ahead)

    # ── lease ─────────────────────────────────────────────────────────────────────────────────────

    async def _lease(self) -> None:
        """Lease messages for those that wait; those that waited before a lease that found none get
        None.
        """
        waiting: deque[Waiter] = self._waiting
        try:
            asked = len(waiting)
            records = await self._lease_more(asked)
            self._ahead.extend(records)
            if not records:
                for _ in range(min(asked, len(waiting))):
                    future, _ = waiting.popleft()
                    if not future.done():
                        future.set_result(None)
        except SparrowError as error:
            waiters, self._waiting = self._waiting, deque()
            self._fail(waiters, error)
        except BaseException:
            for future, _ in waiting:
                future.cancel()
            waiting.clear()
            raise
        finally:
            self._leasing = None
        self._hand_out()

    async def _lease_more(self, count: int) -> list[Record]:
        if self._consumer is None or not self._consumer.is_open:
            name = self._topic + QUEUE_SUFFIX
            self._consumer = await open_queue(self._port, name, self._topic, CONSUMER_ID)
        wanted = max(count, self._lease_size)
        records = await lease_published(self._consumer, wanted)
        self._may_have_more = len(records) >= wanted
        self._lease_size = min(2 * self._lease_size, MAX_AHEAD)
        return records

    def _settle(self, settlements: Sequence[Settlement]) -> asyncio.Future[list[SparrowError | None]]:
        assert self._consumer is not None
        return self._consumer.settle(settlements)

    def _release_ahead(self) -> None:
        """Release the messages that were leased ahead, so that other consumers of the queue can
        lease them.
        """
        self._lease_size = 1
        ahead, self._ahead = self._ahead, deque()
        if ahead and self._consumer is not None and self._consumer.is_open:
            with suppress(SparrowError):  # then they are ready again when their lease ends
                self._settle(settlements_of(ahead, Verb.RELEASE)).add_done_callback(_ignore_failure)


def _give(waiters: Sequence[Waiter], records: Sequence[Record]) -> None:
    for (future, _), record in zip(waiters, records, strict=True):
        if not future.done():
            future.set_result(record)


def _ignore_failure(settled: asyncio.Future[list[SparrowError | None]]) -> None:
    """Ignore a failed release: the lease expires, and the broker's log has the error."""
    if not settled.cancelled():
        settled.exception()
