"""The producer for threads.

Strategy: `send` appends the message to a chunk under a lock and returns; a task on the background
thread takes whole chunks and sends their messages. While that task waits for room, the chunk fills
up, and then `send` waits: the memory bound of the async producer applies here, too, plus one chunk.
The task is woken once per chunk, not once per message.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, Unpack

from sparrow.base.clock import SystemClock
from sparrow.base.errors import ConnectionLost, InvalidArgument, SparrowError, TimedOut
from sparrow.base.forks import watch
from sparrow.client.batch import Delivery as AsyncDelivery
from sparrow.client.batch import copy_of
from sparrow.client.schedule import Schedule, anchored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.producer import Producer as AsyncProducer
    from sparrow.sync.background import Background

_CHUNK_BYTES = 256 << 10
_MESSAGE_OVERHEAD_BYTES = 100
_Message = tuple[str, "bytes | None", "dict[str, Any] | None"]


class _Chunk:
    """Messages that cross to the background thread together; then their deliveries, in the same
    order.
    """

    __slots__ = ("has_deliveries", "messages", "outcomes", "size_bytes")

    def __init__(self) -> None:
        self.messages: list[_Message] = []
        self.outcomes: list[AsyncDelivery | SparrowError] = []
        self.size_bytes = 0
        self.has_deliveries = False


class Delivery:
    """The result of `send`. Any thread may use it."""

    __slots__ = ("_chunk", "_index", "_producer")

    def __init__(self, producer: Producer, chunk: _Chunk, index: int) -> None:
        self._producer = producer
        self._chunk = chunk
        self._index = index

    @property
    def done(self) -> bool:
        """True once the outcome of the message is known."""
        if not self._chunk.has_deliveries:
            return False
        outcome = self._chunk.outcomes[self._index]
        return isinstance(outcome, SparrowError) or outcome.done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the message is stored, and return its position.

        Raises:
            TimedOut: not known within `timeout_s`; call again to wait longer.
            SparrowError: the error of the message.
        """
        if not self._chunk.has_deliveries:
            self._producer.wait_for_deliveries(self._chunk, timeout_s)
        outcome = self._chunk.outcomes[self._index]
        if isinstance(outcome, SparrowError):
            self._producer.saw(outcome)
            raise copy_of(outcome)
        return outcome.result() if outcome.done else self._producer.wait_for(outcome, timeout_s)


class Producer:
    """A stream of messages to any topics, made by `client.producer(…)`; use it as `with`. Any
    number of threads may send.
    """

    def __init__(self, background: Background, producer: AsyncProducer) -> None:
        self._background = background
        self._producer = producer
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._chunk = _Chunk()
        self._sending: _Chunk | None = None
        self._unseen: list[SparrowError] = []
        """Errors of messages that were not accepted, as long as their deliveries are not read."""
        self._is_feeder_idle = True
        self._is_closed = False
        # Events bind to the loop that first waits on them.
        self._wakeup = asyncio.Event()
        self._progress = asyncio.Event()
        self._feeder: asyncio.Task[None] | None = None
        watch(self)

    def forked(self, parent: int) -> None:  # noqa: ARG002 - the protocol's
        """Handle a fork (see `sparrow.base.forks`): unconfirmed messages stay with the parent."""
        self._is_closed = True  # the next send raises the reason
        self._changed = threading.Condition()  # another thread may have had the lock
        self._unseen = []

    def __repr__(self) -> str:
        return f"<blocking {repr(self._producer)[1:]}"

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    def start(self) -> Self:
        """Open the producer. Raises as the async producer's `start`."""
        self._background.run(self._start())
        return self

    async def _start(self) -> None:
        await self._producer.start()
        self._feeder = asyncio.create_task(self._feed())

    def flush(self) -> None:
        """Send everything and wait until it is confirmed. Raises the first failure whose delivery
        was not read.
        """
        self._background.run(self._flush())

    def close(self) -> None:
        """Flush and close; do nothing if closed. Raises as `flush`."""
        self._close(abandon=False)

    def _close(self, *, abandon: bool) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        if self._feeder is not None:
            self._background.run(self._finish(abandon=abandon))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(abandon=error is not None)

    async def _flush(self) -> None:
        await self._drain()
        await self._producer.flush()
        self._raise_unseen()

    async def _finish(self, *, abandon: bool) -> None:
        try:
            if not abandon:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._producer.close_timeout_s):
                        await self._drain()
        finally:
            await self._stop_feeding()
            await (self._producer.abandon() if abandon else self._producer.close())
        if not abandon:
            self._raise_unseen()

    async def _stop_feeding(self) -> None:
        assert self._feeder is not None  # it was started
        self._feeder.cancel()
        await asyncio.wait([self._feeder])
        with self._changed:
            chunk, self._chunk = self._chunk, _Chunk()
        if chunk.messages:
            self._give_up(chunk)

    def saw(self, error: SparrowError) -> None:
        """Mark a failure as read."""
        with self._changed:
            if error in self._unseen:
                self._unseen.remove(error)

    def _raise_unseen(self) -> None:
        with self._changed:
            unseen, self._unseen = self._unseen, []
        if unseen:
            raise copy_of(unseen[0])

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def send(
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
        """Accept a message, waiting for room if there is none; call the delivery's `result()` for
        its offset.

        Errors of the message itself are raised by the delivery, or by `flush`.

        Args:
            schedule: delay_ms, deliver_at, priority, ttl_ms, expires_at, message_id, parents, as
                for the async `Producer.send`.

        Raises:
            InvalidArgument: the producer was not started.
            ConnectionLost: the producer is closed.
        """
        options: dict[str, Any] | None = None
        if key is not None or headers is not None or timestamp_ms is not None or partition is not None:
            options = {"key": key, "headers": headers, "timestamp_ms": timestamp_ms, "partition": partition}
        if schedule:
            options = {**(options or {}), **anchored(schedule, self._clock.wall_ms())}
        with self._changed:
            if self._is_closed or self._feeder is None:
                raise self._not_open()
            chunk = self._chunk
            if chunk.size_bytes >= _CHUNK_BYTES:
                chunk = self._wait_for_chunk()
            index = len(chunk.messages)
            chunk.messages.append((topic, value, options))
            chunk.size_bytes += _MESSAGE_OVERHEAD_BYTES + (len(value) if value else 0)
            if self._is_feeder_idle:
                self._is_feeder_idle = False
                self._background.call_soon(self._wakeup.set)
        return Delivery(self, chunk, index)

    def _wait_for_chunk(self) -> _Chunk:
        while self._chunk.size_bytes >= _CHUNK_BYTES:
            self._changed.wait()
            if self._is_closed:
                raise self._not_open()
        return self._chunk

    def _not_open(self) -> SparrowError:
        self._background.check_process()
        if self._is_closed:
            return ConnectionLost("the producer is closed")
        return InvalidArgument("the producer was not started; use it as `with`, or call start()")

    # ── waiting for outcomes ──────────────────────────────────────────────────────────────────────

    def wait_for_deliveries(self, chunk: _Chunk, timeout_s: float | None) -> None:
        """Wait until the messages of a chunk have deliveries."""
        self._background.check_process()
        with self._changed:
            if not self._changed.wait_for(lambda: chunk.has_deliveries, timeout_s):
                raise TimedOut(f"the producer found no room for the message within {timeout_s:g} s")

    def wait_for(self, delivery: AsyncDelivery, timeout_s: float | None) -> RecordMetadata:
        """Wait for the outcome of a delivery."""
        try:
            return self._background.run(_outcome(delivery), timeout_s)
        except TimeoutError:
            raise TimedOut(
                f"the message was not confirmed within {timeout_s:g} s; it is still being tried"
            ) from None

    # ── on the background thread ──────────────────────────────────────────────────────────────────

    async def _feed(self) -> None:
        """Send chunk after chunk, without end."""
        while True:
            chunk = self._take_chunk()
            if chunk is None:
                await self._wait_for_messages()
            else:
                await self._send_chunk(chunk)

    def _take_chunk(self) -> _Chunk | None:
        with self._changed:
            chunk = self._chunk
            if not chunk.messages:
                self._is_feeder_idle = True
                return None
            self._chunk = _Chunk()
            self._sending = chunk
            self._changed.notify_all()
            return chunk

    async def _wait_for_messages(self) -> None:
        await self._wakeup.wait()
        self._wakeup.clear()

    async def _send_chunk(self, chunk: _Chunk) -> None:
        send, outcomes = self._producer.send, chunk.outcomes
        try:
            for topic, value, options in chunk.messages:
                try:
                    outcomes.append(await (send(topic, value, **options) if options else send(topic, value)))
                except SparrowError as error:
                    self._failed(chunk, copy_of(error))
        finally:
            self._give_up(chunk)

    def _failed(self, chunk: _Chunk, error: SparrowError) -> None:
        chunk.outcomes.append(error)
        with self._changed:
            self._unseen.append(error)

    def _give_up(self, chunk: _Chunk) -> None:
        """Fail the messages of the chunk that were not sent; usually there are none."""
        if len(chunk.outcomes) < len(chunk.messages):
            self._failed(chunk, ConnectionLost("the producer was closed before the message was sent"))
            chunk.outcomes.extend(chunk.outcomes[-1:] * (len(chunk.messages) - len(chunk.outcomes)))
        chunk.messages = []
        with self._changed:
            chunk.has_deliveries = True
            self._sending = None
            self._changed.notify_all()
        self._progress.set()

    async def _drain(self) -> None:
        """Wait until all messages accepted before this call are with the async producer."""
        with self._changed:
            chunk = self._chunk if self._chunk.messages else self._sending
        while chunk is not None and not chunk.has_deliveries:
            self._progress.clear()
            await self._progress.wait()


async def _outcome(delivery: AsyncDelivery) -> RecordMetadata:
    return await delivery
