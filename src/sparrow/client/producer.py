"""The producer: takes messages, holds them within a bound, and says what became of each.

- `send` waits only for room (`max_pending_bytes`) and for the topic's partitions to be known. It gives the loop a turn whenever a batch has
  become full, so that a program which only sends does not keep its own batches from leaving.
- Messages wait `linger_ms` for company at most; a full batch leaves at once. While the broker is behind, batches that are due stay open and
  fill up: under load they are large, without load they are quick.
- Nothing fails silently: a failure whose delivery nobody looked at is raised by the next `flush`, or by leaving the `async with` block.

What is sent when, and what the broker's answers mean, is `dispatch.py`'s; which partition a message goes to is `accumulator.py`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Self, Unpack

from sparrow.base.clock import SystemClock
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    Overloaded,
    RecordTooLarge,
    SparrowError,
    TimedOut,
)
from sparrow.client.accumulator import Lane
from sparrow.client.delivery import (
    RECORD_OVERHEAD_BYTES,
    ROOM_OVERHEAD_BYTES,
    Batch,
    Delivery,
    Headers,
    repeated,
)
from sparrow.client.dispatch import Dispatcher
from sparrow.client.message import as_bytes, checked_parts, checked_time, parts_bytes
from sparrow.client.schedule import Schedule, with_schedule
from sparrow.client.sealing import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from sparrow.base.clock import Clock
    from sparrow.client.connection import Connection
    from sparrow.client.line import Line
    from sparrow.client.options import ProducerOptions

_NO_HEADERS: Headers = ()
_ABANDON_TIMEOUT_S = 1.0
"""How long a block that ends with an exception waits for what it sent."""


class Producer:
    """Made by `client.producer(…)`; use it as `async with`, or `await start()` and `close()`.

    Loop thread only; any number of tasks may send.
    """

    def __init__(
        self,
        connection: Connection,
        options: ProducerOptions,
        *,
        clock: Clock | None = None,
        close_timeout_s: float = 10.0,
        on_close: Callable[[Producer], None] | None = None,
    ) -> None:
        self.options = options
        self._connection = connection
        self._loop = connection.loop
        self._clock = clock or SystemClock()
        self.close_timeout_s = close_timeout_s
        self._on_close = on_close
        self._dispatcher = Dispatcher(connection, options, self)
        self._lanes: dict[str, Lane] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._linger_s = options.linger_ms / 1000
        self._max_pending_bytes = options.max_pending_bytes
        self._pending_bytes = 0
        self._room_waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._unsettled: dict[Batch, None] = {}
        self._lingering: deque[Batch] = deque()
        self._linger_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._serial = 0
        self._has_filled = False
        self._now_ms = 0
        self._unseen: deque[Batch] = deque(maxlen=64)
        self._failure: SparrowError | None = None

    @property
    def failure(self) -> SparrowError | None:
        """Why nothing more can be sent, or None."""
        return self._failure

    @property
    def pending_bytes(self) -> int:
        """What unconfirmed messages take of `max_pending_bytes`."""
        return self._pending_bytes

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> Self:
        """Open the channel.

        Raises:
            ConnectionLost: the broker could not be reached within the client's `call_timeout_s`.
            SparrowError: the broker refuses.
        """
        if self._expiry_timer is not None:
            return self
        self._connection.attach(self._dispatcher)
        self._schedule_expiry()
        timeout_s = self._connection.options.call_timeout_s
        await asyncio.wait([self._dispatcher.opened], timeout=timeout_s)
        if not self._dispatcher.opened.done():
            await self._dispatcher.close(0)
            raise self._dispatcher.refusal or ConnectionLost(
                f"the broker at {self._connection.address} opened no producer within {timeout_s:g} s"
            )
        self._dispatcher.opened.result()
        return self

    async def flush(self) -> None:
        """Send everything now and wait until all that was sent before this call is confirmed or failed.

        Raises:
            SparrowError: the first failure since the last flush that nobody looked at.
        """
        self._hurry()
        last = self._serial
        while batches := [batch for batch in self._unsettled if batch.serial <= last]:
            for batch in batches:
                if not batch.is_settled:
                    await batch.wait_quietly()
        self._raise_unseen()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close the channel; what is not confirmed within the time is given up.

        Args:
            timeout_s: default: the client's `close_timeout_s`, though no less than the linger.

        Raises:
            SparrowError: as `flush`; a TimedOut if something was given up.
        """
        limit_s = self.close_timeout_s if timeout_s is None else timeout_s
        try:
            if self._failure is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit_s):
                        await self.flush()
        finally:
            await self._shut(limit_s)
        self._raise_unseen()

    async def abandon(self) -> None:
        """As `close`, without waiting long and without raising what failed."""
        with suppress(SparrowError):
            await self.close(_ABANDON_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # the block's own error is the one to see
            await self.abandon()

    async def _shut(self, limit_s: float) -> None:
        if self._on_close is not None:
            self._on_close(self)
        for timer in (self._linger_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        for task in self._asking.values():
            task.cancel()
        await self._dispatcher.close(min(limit_s, self.close_timeout_s))
        if self._failure is None:
            self._fail(ConnectionLost("the producer is closed"), unsent=self._given_up(limit_s))

    def _given_up(self, limit_s: float) -> SparrowError:
        return TimedOut(
            f"the producer was closed with messages that the broker at {self._connection.address} had not confirmed"
            f" within {limit_s:g} s; whether those were written is not known{self._dispatcher.why()}"
        )

    def _check_started(self) -> None:
        if self._expiry_timer is None:
            raise InvalidArgument("the producer was not started; use it as `async with`, or await start()")

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        **schedule: Unpack[Schedule],
    ) -> Delivery:
        """Take a message in, waiting for room if there is none. Await the delivery for the message's offset.

        Args:
            value: None is a tombstone on compacted topics.
            timestamp_ms: the message's time, ms since 1970; default: now.
            schedule: what queues shall know of it: delay_ms, deliver_at, priority, ttl_ms, expires_at, message_id, parents (see `Schedule`).

        Raises:
            InvalidArgument: the arguments are not of these types or contradict each other, or the producer was not started.
            RecordTooLarge: larger than any frame of this broker.
            UnknownTopic, InvalidTopicName, NotAuthorized: the topic cannot be published to.
            UnknownPartition: the topic has no such partition.
            TimedOut: no room, or no partitions known, within the delivery timeout.
            ConnectionLost: the producer is closed, or the client gave up.
        """
        lane = self._lanes.get(topic)
        if lane is None or not lane.lines:
            lane = await self._known_lane(topic)
        size_bytes = RECORD_OVERHEAD_BYTES
        if type(value) is bytes:
            size_bytes += len(value)
        elif value is not None:
            value = as_bytes("value", value)
            size_bytes += len(value)
        plain_headers = _NO_HEADERS
        if key is not None or headers is not None:
            key, plain_headers, extra_bytes = checked_parts(key, headers)
            size_bytes += extra_bytes
        if schedule:
            plain_headers, extra_bytes = self._scheduled(plain_headers, schedule)
            size_bytes += extra_bytes
        room_bytes = size_bytes + ROOM_OVERHEAD_BYTES
        if self._pending_bytes >= self._max_pending_bytes or self._room_waiters:
            await self._wait_for_room(room_bytes)
        else:
            self._pending_bytes += room_bytes
        delivery = self._take(lane, value, key, plain_headers, timestamp_ms, partition, size_bytes)
        if self._has_filled:
            self._has_filled = False
            await asyncio.sleep(0)
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        **schedule: Unpack[Schedule],
    ) -> Delivery:
        """As `send`, without waiting: a topic that cannot be published to fails the delivery.

        Raises:
            Overloaded: there is no room now.
            InvalidArgument, RecordTooLarge, UnknownPartition, ConnectionLost: as `send`.
        """
        if self._pending_bytes >= self._max_pending_bytes or self._room_waiters:
            raise Overloaded(
                f"the producer has {self._pending_bytes} bytes unconfirmed, its limit is {self._max_pending_bytes};"
                " wait (send does), or raise max_pending_bytes"
            )
        if value is not None and type(value) is not bytes:
            value = as_bytes("value", value)
        key, plain_headers, extra_bytes = checked_parts(key, headers)
        size_bytes = RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + extra_bytes
        if schedule:
            plain_headers, extra_bytes = self._scheduled(plain_headers, schedule)
            size_bytes += extra_bytes
        self._pending_bytes += size_bytes + ROOM_OVERHEAD_BYTES
        return self._take(self._lane(topic), value, key, plain_headers, timestamp_ms, partition, size_bytes)

    def _scheduled(self, headers: Headers, schedule: Schedule) -> tuple[Headers, int]:
        """The headers with those that the options ask for, and how many bytes these take at most."""
        whole = with_schedule(headers, schedule, self._now_ms or self._read_clock())
        return whole, parts_bytes(None, None, whole[len(headers) :])

    def _take(  # noqa: PLR0917 - the hot path: keywords would cost a tenth of it
        self,
        lane: Lane,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
        size_bytes: int,
    ) -> Delivery:
        """Put a message, whose room is reserved, into its batch."""
        try:
            if timestamp_ms is None:
                timestamp_ms = self._now_ms or self._read_clock()
            else:
                checked_time(timestamp_ms)
            if self._failure is not None:
                raise repeated(self._failure)
            if size_bytes > self._dispatcher.max_batch_bytes:
                raise _too_large(size_bytes, self._dispatcher.max_batch_bytes)
            batch = (
                lane.batch_for(key, partition, size_bytes) if lane.lines else self._unplaced(lane, partition)
            )
        except SparrowError:
            self._free(size_bytes + ROOM_OVERHEAD_BYTES)
            raise
        index = batch.append(value, key, headers, timestamp_ms)
        batch.size_bytes += size_bytes
        if batch.size_bytes >= lane.batch_bytes:
            self._full(batch)
        return Delivery(batch, index)

    def _unplaced(self, lane: Lane, partition: int | None) -> Batch:
        self._check_started()
        self._ask(lane)
        return lane.collect(partition)

    def _full(self, batch: Batch) -> None:
        self._has_filled = True
        self._now_ms = 0
        if not batch.is_due:
            batch.is_due = True
            self._dispatcher.enqueue(batch.line)

    def _read_clock(self) -> int:
        """The time for all messages of this turn of the loop."""
        self._now_ms = self._clock.wall_ms()
        self._loop.call_soon(self._forget_time)
        return self._now_ms

    def _forget_time(self) -> None:
        self._now_ms = 0

    # ── room ──────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for_room(self, room_bytes: int) -> None:
        """Wait until there is room, and reserve it. First come, first served."""
        if self._failure is not None:
            raise repeated(self._failure)
        future = self._loop.create_future()
        self._room_waiters.append((future, room_bytes))
        self._hurry()
        try:
            # Not wait_for: that of Python 3.11 swallows a cancellation that comes in the same turn as the result.
            async with asyncio.timeout(self.options.delivery_timeout_s):
                await future
        except TimeoutError:
            raise TimedOut(
                f"no room for a message within {self.options.delivery_timeout_s:g} s: {self._pending_bytes} bytes are not"
                f" confirmed by {self._connection.address}"
                f"{self._dispatcher.why() or '; check that the broker is reachable and keeps up'}"
            ) from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._free(room_bytes)
            raise

    def _free(self, room_bytes: int) -> None:
        self._pending_bytes -= room_bytes
        waiters = self._room_waiters
        while waiters and self._pending_bytes < self._max_pending_bytes:
            future, wanted_bytes = waiters.popleft()
            if not future.done():
                self._pending_bytes += wanted_bytes
                future.set_result(None)

    # ── batches ───────────────────────────────────────────────────────────────────────────────────

    def _open_batch(self, line: Line) -> Batch:
        now = self._loop.time()
        self._serial += 1
        batch = Batch(line, self._serial, now + self.options.delivery_timeout_s)
        self._unsettled[batch] = None
        if self._linger_s <= 0:
            batch.is_due = True
            self._dispatcher.enqueue(line)
        else:
            batch.due_at = now + self._linger_s
            self._lingering.append(batch)
            if self._linger_timer is None:
                self._linger_timer = self._loop.call_at(batch.due_at, self._linger_ended)
        return batch

    def _linger_ended(self) -> None:
        """Send what waited long enough, and wait for the next."""
        self._linger_timer = None
        lingering = self._lingering
        # The loop's timers may fire early by the resolution of its clock.
        now = self._loop.time() + 0.001
        while lingering and (lingering[0].due_at <= now or lingering[0].is_due):
            self._due(lingering.popleft())
        if lingering:
            self._linger_timer = self._loop.call_at(lingering[0].due_at, self._linger_ended)

    def _hurry(self) -> None:
        """Nothing waits for company any longer."""
        while self._lingering:
            self._due(self._lingering.popleft())

    def _due(self, batch: Batch) -> None:
        if not batch.is_due:
            batch.is_due = True
            if not batch.is_settled:  # one that was closed because it was full may wait in its line, too
                self._dispatcher.enqueue(batch.line)

    # ── what the dispatcher tells ─────────────────────────────────────────────────────────────────

    def settled(self, batch: Batch) -> None:
        """A batch is confirmed or failed."""
        del self._unsettled[batch]
        if batch.error is not None and not batch.is_seen:
            self._unseen.append(batch)
        self._free(batch.room_bytes)

    def too_large(self, batch: Batch) -> list[Batch]:
        """Split a batch in two; both keep their share of its sequences, its place and its deadline."""
        assert batch.data is not None  # it was sent
        self._lanes[batch.line.topic].shrink(len(batch.data))
        whole = columns(batch.data)
        middle = len(batch) // 2
        parts = [batch.part(whole, start, end) for start, end in pairwise((0, middle, len(batch)))]
        for part in parts:
            part.size_bytes = RECORD_OVERHEAD_BYTES * len(part)
            part.size_bytes += sum(parts_bytes(value, key, headers) for value, key, headers, _ in part.rows())
            self._unsettled[part] = None
        del self._unsettled[batch]
        self._pending_bytes += sum(part.room_bytes for part in parts) - batch.room_bytes
        batch.move([Delivery(part, index) for part in parts for index in range(len(part))])
        return parts

    def topic_gone(self, topic: str) -> None:
        """Ask for the topic again before the next message for it."""
        lane = self._lanes.get(topic)
        if lane is not None and not any(True for line in lane.lines for _ in line.batches()):
            del self._lanes[topic]
            for line in lane.lines:
                self._dispatcher.drop(line)

    def failed(self, error: SparrowError) -> None:
        """The producer cannot go on."""
        self._fail(error)

    def _fail(self, error: SparrowError, unsent: SparrowError | None = None) -> None:
        self._failure = error
        for batch in list(self._unsettled):
            batch.fail(unsent or error)
            self.settled(batch)
        while self._room_waiters:
            future, _ = self._room_waiters.popleft()
            if not future.done():
                future.set_exception(error)

    def _raise_unseen(self) -> None:
        unseen = [batch.error for batch in self._unseen if not batch.is_seen]
        self._unseen.clear()
        if unseen and unseen[0] is not None:
            raise unseen[0]

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    def _lane(self, topic: str) -> Lane:
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = Lane(
                topic,
                self._loop,
                min(self.options.batch_bytes, self._dispatcher.max_batch_bytes),
                self._open_batch,
                self._full,
                is_idempotent=self.options.idempotent,
            )
        return lane

    async def _known_lane(self, topic: str) -> Lane:
        """The topic's lane, once its partitions are known."""
        if self._failure is not None:
            raise repeated(self._failure)
        self._check_started()
        lane = self._lane(topic)
        task = self._ask(lane)
        await asyncio.wait([task])
        if not lane.lines:
            error = task.exception() if not task.cancelled() else None
            raise (
                repeated(error)
                if isinstance(error, SparrowError)
                else ConnectionLost("the producer is closed")
            )
        return lane

    def _ask(self, lane: Lane) -> asyncio.Task[None]:
        """Ask for the topic's partitions; one question at a time."""
        task = self._asking.get(lane.topic)
        if task is None:
            task = self._asking[lane.topic] = self._loop.create_task(self._learn(lane))
            task.add_done_callback(lambda done: self._asked(lane, done))
        return task

    async def _learn(self, lane: Lane) -> None:
        topic = await self._connection.call(
            "topic.ensure", {"name": lane.topic}, is_read=True, timeout_s=self.options.delivery_timeout_s
        )
        lane.checked_at = self._loop.time()
        known = len(lane.lines)
        lane.grow(topic["partition_count"])
        for line in lane.lines[known:]:
            self._dispatcher.add(line)

    def _asked(self, lane: Lane, task: asyncio.Task[None]) -> None:
        del self._asking[lane.topic]
        error = None if task.cancelled() else task.exception()
        batch, wanted = lane.take_unplaced()
        if batch is not None and not batch.is_settled:
            if isinstance(error, SparrowError):
                batch.fail(error)
                self.settled(batch)
            elif lane.lines:
                self._place(lane, batch, wanted)
        if not lane.lines:
            self._lanes.pop(lane.topic, None)

    def _place(self, lane: Lane, batch: Batch, wanted: list[int | None]) -> None:
        """Messages that came before the partitions were known go to their lines."""
        del self._unsettled[batch]
        deliveries = []
        for (value, key, headers, timestamp_ms), partition in zip(batch.rows(), wanted, strict=True):
            size_bytes = RECORD_OVERHEAD_BYTES + parts_bytes(value, key, headers)
            try:
                deliveries.append(self._take(lane, value, key, headers, timestamp_ms, partition, size_bytes))
            except SparrowError as error:
                deliveries.append(self._failed_delivery(batch.line, error))
        batch.move(deliveries)

    def _failed_delivery(self, line: Line, error: SparrowError) -> Delivery:
        batch = Batch(line, self._serial, 0.0)
        batch.timestamps.append(0)
        batch.fail(error)
        self._unseen.append(batch)
        return Delivery(batch, 0)

    # ── housekeeping ──────────────────────────────────────────────────────────────────────────────

    def _schedule_expiry(self) -> None:
        interval_s = min(1.0, self.options.delivery_timeout_s / 4)
        self._expiry_timer = self._loop.call_later(interval_s, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        if self._unsettled:
            self._dispatcher.expire(now)
        for lane in self._lanes.values():
            if lane.lines and now - lane.checked_at >= self.options.metadata_refresh_s:
                lane.checked_at = now
                self._ask(lane)
        self._schedule_expiry()


def _too_large(size_bytes: int, max_bytes: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"a message of {size_bytes} bytes; the broker takes frames with batches of at most {max_bytes} bytes;"
        " split it, or raise max_frame of the broker"
    )
