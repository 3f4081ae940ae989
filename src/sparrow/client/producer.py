"""The producer: accepts messages, holds them within a memory bound, and reports the outcome of
each.

- `send` waits only for room (`max_pending_bytes`) and for the topic's partitions to be known. It
  yields to the loop whenever a batch has become full, so that a program which only sends does not
  keep its own batches from leaving.
- A message waits at most `linger_ms` for others to share its batch; a full batch leaves at once.
  While the broker is behind, batches that are due stay open and fill up: under load they are large,
  without load they are quick.
- Nothing fails silently: a failure whose delivery was never awaited is raised by the next `flush`,
  or by leaving the `async with` block.

`sender.py` decides when batches are sent and handles the broker's responses; `accumulator.py`
chooses partitions.
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
from sparrow.base.forks import used_after_fork, watch
from sparrow.client.accumulator import UNPLACED, TopicAccumulator
from sparrow.client.batch import (
    RECORD_OVERHEAD_BYTES,
    ROOM_OVERHEAD_BYTES,
    Delivery,
    Headers,
    ProducerBatch,
    copy_of,
    decode_columns,
)
from sparrow.client.message import as_bytes, checked_parts, checked_time, parts_bytes
from sparrow.client.schedule import Schedule, with_schedule
from sparrow.client.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from sparrow.base.clock import Clock
    from sparrow.client.options import ProducerOptions
    from sparrow.client.partition_queue import PartitionQueue
    from sparrow.client.session import Session

_NO_HEADERS: Headers = ()
MAX_GROWTH = 4
"""Batches grow up to this many times `batch_bytes` while the broker is behind."""
_ABANDON_TIMEOUT_S = 1.0
"""The longest wait for sent messages when a block ends with an exception."""


class Producer:
    """A stream of messages to any topics, made by `client.producer(…)`; use it as `async with`, or
    `await start()` and `close()`.

    Loop thread only; any number of tasks may send.
    """

    def __init__(
        self,
        session: Session,
        options: ProducerOptions,
        *,
        clock: Clock | None = None,
        close_timeout_s: float = 10.0,
        on_close: Callable[[Producer], None] | None = None,
    ) -> None:
        self.options = options
        self._session = session
        self._loop = session.loop
        self._clock = clock or SystemClock()
        self.close_timeout_s = close_timeout_s
        self._on_close = on_close
        self._sender = Sender(session, options, self)
        self._accumulators: dict[str, TopicAccumulator] = {}
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._linger_s = options.linger_ms / 1000
        self._max_pending_bytes = options.max_pending_bytes
        self._pending_bytes = 0
        self._room_waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._unsettled: dict[ProducerBatch, None] = {}
        self._lingering: deque[ProducerBatch] = deque()
        self._linger_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._serial = 0
        self._has_filled = False
        self._now_ms = 0
        self._unseen: deque[ProducerBatch] = deque(maxlen=64)
        self._failure: SparrowError | None = None
        watch(self)

    def forked(self, parent: int) -> None:
        """Handle a fork (see `sparrow.base.forks`): unconfirmed messages stay with the parent."""
        error = used_after_fork(f"the producer of the client of {self._session.address}", parent)
        self._failure = error
        self._accumulators = {}  # the next message looks up its topic, and finds the failure
        self._room_waiters.clear()
        self._pending_bytes = 0
        self._now_ms = 1  # so that the clock, and with it the loop, is not asked
        for batch in self._unsettled:
            batch.waiters.clear()
            batch.fail(error)
        self._unsettled = {}
        self._lingering.clear()

    def __repr__(self) -> str:
        return f"<Producer of {self._session.address}, {self._state}>"

    @property
    def _state(self) -> str:
        if self._session.is_forked:
            return self._session.state
        if self._failure is not None:
            return "closed" if isinstance(self._failure, ConnectionLost) else f"ended by {self._failure.code}"
        if self._expiry_timer is None:
            return "not started"
        return f"{self._session.state}, {self._pending_bytes} bytes not confirmed"

    @property
    def failure(self) -> SparrowError | None:
        """The error that ended the producer, or None."""
        return self._failure

    @property
    def pending_bytes(self) -> int:
        """The part of `max_pending_bytes` that unconfirmed messages take."""
        return self._pending_bytes

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> Self:
        """Open the channel.

        Raises:
            ConnectionLost: the broker could not be reached within the client's `call_timeout_s`.
            SparrowError: the broker refuses.
        """
        self._session.check_process()
        if self._expiry_timer is not None:
            return self
        self._session.attach(self._sender)
        self._schedule_expiry()
        timeout_s = self._session.options.call_timeout_s
        await asyncio.wait([self._sender.opened], timeout=timeout_s)
        if not self._sender.opened.done():
            await self._sender.close(0)
            raise self._sender.refusal or ConnectionLost(
                f"the broker at {self._session.address} opened no producer within {timeout_s:g} s"
            )
        self._sender.opened.result()
        return self

    async def flush(self) -> None:
        """Send everything now, and wait until all messages sent before this call are confirmed or
        failed.

        Raises:
            SparrowError: the first failure since the last flush whose delivery was not awaited.
        """
        self._session.check_process()
        self._send_lingering()
        last = self._serial
        while batches := [batch for batch in self._unsettled if batch.serial <= last]:
            for batch in batches:
                if not batch.is_settled:
                    await batch.wait_quietly()
        self._raise_unseen()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close the channel; give up messages that are not confirmed in time.

        Args:
            timeout_s: default: the client's `close_timeout_s`, but at least the linger.

        Raises:
            SparrowError: as `flush`; TimedOut if messages were given up.
        """
        if self._session.is_forked:
            return
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
        """Close without waiting long, and without raising errors of sent messages."""
        with suppress(SparrowError):
            await self.close(_ABANDON_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # show the block's own error
            await self.abandon()

    async def _shut(self, limit_s: float) -> None:
        if self._on_close is not None:
            self._on_close(self)
        for timer in (self._linger_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        for task in self._lookups.values():
            task.cancel()
        await self._sender.close(min(limit_s, self.close_timeout_s))
        if self._failure is None:
            self._fail(ConnectionLost("the producer is closed"), unsent=self._given_up(limit_s))

    def _given_up(self, limit_s: float) -> SparrowError:
        return TimedOut(
            f"the producer was closed with messages that the broker at {self._session.address} had not "
            f"confirmed within {limit_s:g} s; whether those were written is not known{self._sender.why()}"
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
        """Accept a message, waiting for room if there is none. Await the returned delivery for the
        message's offset.

        Args:
            value: None is a tombstone on compacted topics.
            timestamp_ms: the message's time, ms since 1970; default: now.
            schedule: options for queues: delay_ms, deliver_at, priority, ttl_ms, expires_at,
                message_id, parents (see `Schedule`).

        Raises:
            InvalidArgument: an argument has the wrong type, arguments contradict each other, or the
                producer was not started.
            RecordTooLarge: the message is larger than any frame of this broker.
            UnknownTopic, InvalidTopicName, NotAuthorized: the topic cannot be published to.
            UnknownPartition: the topic has no such partition.
            TimedOut: no room, or partitions not known, within the delivery timeout.
            ConnectionLost: the producer is closed, or the client gave up connecting.
        """
        accumulator = self._accumulators.get(topic)
        if accumulator is None or not accumulator.queues:
            accumulator = await self._ready_accumulator(topic)
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
        delivery = self._take(accumulator, value, key, plain_headers, timestamp_ms, partition, size_bytes)
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
        """Accept a message without waiting; a topic that cannot be published to fails the delivery.

        Raises:
            Overloaded: there is no room now. InvalidArgument, RecordTooLarge, UnknownPartition,
                ConnectionLost: as `send`.
        """
        if self._pending_bytes >= self._max_pending_bytes or self._room_waiters:
            raise self._no_room()
        if value is not None and type(value) is not bytes:
            value = as_bytes("value", value)
        key, plain_headers, extra_bytes = checked_parts(key, headers)
        size_bytes = RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + extra_bytes
        if schedule:
            plain_headers, extra_bytes = self._scheduled(plain_headers, schedule)
            size_bytes += extra_bytes
        self._pending_bytes += size_bytes + ROOM_OVERHEAD_BYTES
        return self._take(
            self._accumulator(topic), value, key, plain_headers, timestamp_ms, partition, size_bytes
        )

    def alike(
        self,
        topic: str,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        **schedule: Unpack[Schedule],
    ) -> Callable[[bytes], Delivery]:
        """Return a function that accepts messages which differ in their value alone, as
        `send_nowait`; all else is checked once, here.

        Raises:
            InvalidArgument: as `send_nowait`.
        """
        key, plain_headers, extra_bytes = checked_parts(key, headers)
        if schedule:
            plain_headers, more_bytes = self._scheduled(plain_headers, schedule)
            extra_bytes += more_bytes
        extra_bytes += RECORD_OVERHEAD_BYTES
        accumulator = self._accumulator(topic)

        def send(value: bytes) -> Delivery:
            nonlocal accumulator
            if self._pending_bytes >= self._max_pending_bytes or self._room_waiters:
                raise self._no_room()
            if not accumulator.queues:  # not known yet, or the topic is gone
                accumulator = self._accumulator(topic)
            size_bytes = len(value) + extra_bytes
            self._pending_bytes += size_bytes + ROOM_OVERHEAD_BYTES
            return self._take(accumulator, value, key, plain_headers, None, None, size_bytes)

        return send

    async def room(self) -> None:
        """Wait until there is room for another message. Raises as `send`."""
        if self._pending_bytes >= self._max_pending_bytes or self._room_waiters:
            await self._wait_for_room(0)

    def _no_room(self) -> Overloaded:
        return Overloaded(
            f"the producer has {self._pending_bytes} bytes unconfirmed, its limit is "
            f"{self._max_pending_bytes}; wait (send does), or raise max_pending_bytes"
        )

    def _scheduled(self, headers: Headers, schedule: Schedule) -> tuple[Headers, int]:
        """Return the headers with those of the options, and an upper bound of the bytes that these
        take.
        """
        whole = with_schedule(headers, schedule, self._now_ms or self._read_clock())
        return whole, parts_bytes(None, None, whole[len(headers) :])

    def _take(  # noqa: PLR0917 - the hot path: keywords would cost a tenth of it
        self,
        accumulator: TopicAccumulator,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
        size_bytes: int,
    ) -> Delivery:
        """Append a message, whose room is reserved, to its batch."""
        try:
            if timestamp_ms is not None:
                checked_time(timestamp_ms)
            if self._failure is not None:
                raise copy_of(self._failure)
            if size_bytes > self._sender.max_batch_bytes:
                raise _too_large(size_bytes, self._sender.max_batch_bytes)
            batch = (
                accumulator.batch_for(key, partition, size_bytes)
                if accumulator.queues
                else self._unplaced(accumulator, partition)
            )
        except SparrowError:
            self._free(size_bytes + ROOM_OVERHEAD_BYTES)
            raise
        if (
            timestamp_ms is None
        ):  # read after `batch_for`, so that a new batch has no message of an older time
            timestamp_ms = self._now_ms or self._read_clock()
        index = batch.append(value, key, headers, timestamp_ms)
        batch.size_bytes += size_bytes
        if batch.size_bytes >= accumulator.batch_bytes:
            self._full(batch)
        return Delivery(batch, index)

    def _unplaced(self, accumulator: TopicAccumulator, partition: int | None) -> ProducerBatch:
        self._check_started()
        self._look_up(accumulator)
        return accumulator.collect(partition)

    def _full(self, batch: ProducerBatch) -> None:
        self._has_filled = True
        self._now_ms = 0
        self._due(batch)

    def _read_clock(self) -> int:
        """Return the wall time in ms, the same for all messages until the loop's next iteration."""
        self._now_ms = self._clock.wall_ms()
        if not self._sender.is_scheduled:
            self._loop.call_soon(self.next_iteration)
        return self._now_ms

    # ── room ──────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for_room(self, room_bytes: int) -> None:
        """Wait until there is room, and reserve it. First come, first served."""
        if self._failure is not None:
            raise copy_of(self._failure)
        future = self._loop.create_future()
        self._room_waiters.append((future, room_bytes))
        self._send_lingering()
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that arrives together with the
            # result.
            async with asyncio.timeout(self.options.delivery_timeout_s):
                await future
        except TimeoutError:
            raise TimedOut(
                f"no room for a message within {self.options.delivery_timeout_s:g} s: {self._pending_bytes} "
                f"bytes are not confirmed by {self._session.address}"
                f"{self._sender.why() or '; check that the broker is reachable and keeps up'}"
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

    def _open_batch(self, queue: PartitionQueue) -> ProducerBatch:
        now = self._loop.time()
        self._serial += 1
        deadline = now + self.options.delivery_timeout_s
        batch = ProducerBatch(queue.topic, queue.partition, self._serial, deadline, loop=self._loop)
        self._unsettled[batch] = None
        if self._linger_s <= 0:
            batch.is_due = True
            self._sender.enqueue(queue)
        else:
            batch.due_at = now + self._linger_s
            self._lingering.append(batch)
            if self._linger_timer is None:
                self._linger_timer = self._loop.call_at(batch.due_at, self._linger_ended)
        return batch

    def _linger_ended(self) -> None:
        """Send the batches that have lingered long enough, and start the timer for the next."""
        self._linger_timer = None
        lingering = self._lingering
        # The loop's timers may fire early by the resolution of its clock.
        now = self._loop.time() + 0.001
        while lingering and (lingering[0].due_at <= now or lingering[0].is_due):
            self._due(lingering.popleft())
        if lingering:
            self._linger_timer = self._loop.call_at(lingering[0].due_at, self._linger_ended)

    def _send_lingering(self) -> None:
        """Send all lingering batches now."""
        while self._lingering:
            self._due(self._lingering.popleft())

    def _due(self, batch: ProducerBatch) -> None:
        if not batch.is_due:
            batch.is_due = True
            # a batch that was closed because it was full may be in the queue already
            if not batch.is_settled and batch.partition != UNPLACED:
                self._sender.enqueue(self._accumulators[batch.topic].queues[batch.partition])

    # ── callbacks of the sender ───────────────────────────────────────────────────────────────────

    def next_iteration(self) -> None:
        """Forget the time, which may have gone on."""
        self._now_ms = 0

    def settled(self, batch: ProducerBatch) -> None:
        """Free the room of a batch that is confirmed or failed."""
        del self._unsettled[batch]
        if batch.error is not None and not batch.is_seen:
            self._unseen.append(batch)
        self._free(batch.room_bytes)

    def too_large(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split a batch in two that keep their share of its sequences, its order and its
        deadline.
        """
        assert batch.data is not None  # it was sent
        self._accumulators[batch.topic].shrink(len(batch.data))
        whole = decode_columns(batch.data)
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
        """Look the topic up again before its next message."""
        accumulator = self._accumulators.get(topic)
        if accumulator is not None and not any(True for queue in accumulator.queues for _ in queue.batches()):
            del self._accumulators[topic]
            for queue in accumulator.queues:
                self._sender.drop(queue)

    def failed(self, error: SparrowError) -> None:
        """End the producer."""
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

    def _accumulator(self, topic: str) -> TopicAccumulator:
        accumulator = self._accumulators.get(topic)
        if accumulator is None:
            accumulator = self._accumulators[topic] = TopicAccumulator(
                topic,
                min(self.options.batch_bytes, self._sender.max_batch_bytes),
                min(MAX_GROWTH * self.options.batch_bytes, self._sender.max_batch_bytes),
                self._open_batch,
                self._full,
                is_idempotent=self.options.idempotent,
            )
        return accumulator

    async def _ready_accumulator(self, topic: str) -> TopicAccumulator:
        """Return the topic's accumulator once its partitions are known."""
        if self._failure is not None:
            raise copy_of(self._failure)
        self._check_started()
        accumulator = self._accumulator(topic)
        task = self._look_up(accumulator)
        await asyncio.wait([task])
        if not accumulator.queues:
            error = task.exception() if not task.cancelled() else None
            raise (
                copy_of(error)
                if isinstance(error, SparrowError)
                else ConnectionLost("the producer is closed")
            )
        return accumulator

    def _look_up(self, accumulator: TopicAccumulator) -> asyncio.Task[None]:
        """Return the task that looks up the topic's partitions; at most one runs per topic."""
        task = self._lookups.get(accumulator.topic)
        if task is None:
            task = self._lookups[accumulator.topic] = self._loop.create_task(
                self._read_partitions(accumulator)
            )
            task.add_done_callback(lambda done: self._looked_up(accumulator, done))
        return task

    async def _read_partitions(self, accumulator: TopicAccumulator) -> None:
        topic = await self._session.call(
            "topic.ensure",
            {"name": accumulator.topic},
            is_read=True,
            timeout_s=self.options.delivery_timeout_s,
        )
        accumulator.checked_at = self._loop.time()
        known = len(accumulator.queues)
        accumulator.grow(topic["partition_count"])
        for queue in accumulator.queues[known:]:
            self._sender.add(queue)

    def _looked_up(self, accumulator: TopicAccumulator, task: asyncio.Task[None]) -> None:
        del self._lookups[accumulator.topic]
        error = None if task.cancelled() else task.exception()
        batch, wanted = accumulator.take_unplaced()
        if batch is not None and not batch.is_settled:
            if isinstance(error, SparrowError):
                batch.fail(error)
                self.settled(batch)
            elif accumulator.queues:
                self._place(accumulator, batch, wanted)
        if not accumulator.queues:
            self._accumulators.pop(accumulator.topic, None)

    def _place(self, accumulator: TopicAccumulator, batch: ProducerBatch, wanted: list[int | None]) -> None:
        """Move messages that arrived before the partitions were known to their partition queues."""
        del self._unsettled[batch]
        deliveries = []
        for (value, key, headers, timestamp_ms), partition in zip(batch.rows(), wanted, strict=True):
            size_bytes = RECORD_OVERHEAD_BYTES + parts_bytes(value, key, headers)
            try:
                deliveries.append(
                    self._take(accumulator, value, key, headers, timestamp_ms, partition, size_bytes)
                )
            except SparrowError as error:
                deliveries.append(self._failed_delivery(batch, error))
        batch.move(deliveries)

    def _failed_delivery(self, unplaced: ProducerBatch, error: SparrowError) -> Delivery:
        batch = ProducerBatch(unplaced.topic, unplaced.partition, self._serial, 0.0, loop=self._loop)
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
            self._sender.expire(now)
        for accumulator in self._accumulators.values():
            if accumulator.queues and now - accumulator.checked_at >= self.options.metadata_refresh_s:
                accumulator.checked_at = now
                self._look_up(accumulator)
        self._schedule_expiry()


def _too_large(size_bytes: int, max_bytes: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"a message of {size_bytes} bytes; the broker takes frames with batches of at most {max_bytes} "
        "bytes; split it, or raise max_frame of the broker"
    )
