"""The sender of a producer: its channel, its window, and the handling of the broker's responses.

The rules of one partition are in `partition_queue.py`; here are those that concern all partitions.

- **Window.** Bytes in flight stay within what the broker granted, except for one batch. Nothing is
  sent while the socket is full.
- **Lost connection.** The channel is opened again with the same identity, and all unconfirmed
  batches are sent again, in order. The first batch goes alone: if connections die young, each one
  confirms at least one batch instead of failing under the same load again.
- **Restart.** When a batch in the middle of a queue is given up, the sequences behind it no longer
  fit. Then nothing new is sent until the broker has confirmed or refused everything that it may
  have; then a new identity is requested, and the remaining batches are numbered from 0. (Kafka's
  clients raise the epoch for the same reason; frames of the old identity that are still under way
  can never fit again.)
- **Refusals**, by error: a batch with a retriable error is sent again with backoff until the
  delivery timeout; a batch that is too large is split; a gap is a restart; being fenced ends the
  producer; any other error fails that batch alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import (
    BadInput,
    Conflict,
    ConnectionLost,
    DiskFull,
    Draining,
    DuplicateSequence,
    NotFound,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    RecordTooLarge,
    Refused,
    SparrowError,
    TimedOut,
    UnknownProducer,
    from_code,
)
from sparrow.base.retry import Backoff
from sparrow.client.batch import encode
from sparrow.client.options import ACKS_NONE
from sparrow.client.refusals import Refusals
from sparrow.client.requests import failure_error
from sparrow.protocol.native.frames import HEAD_RESERVE_BYTES, MAX_FRAME_BYTES
from sparrow.protocol.native.messages import (
    Close,
    Closed,
    Confirm,
    Confirmation,
    Error,
    Failure,
    Head,
    OpenProducer,
    ProducerOpened,
    Publish,
)

if TYPE_CHECKING:
    from sparrow.client.batch import ProducerBatch
    from sparrow.client.connection import Connection
    from sparrow.client.options import ProducerOptions
    from sparrow.client.partition_queue import PartitionQueue
    from sparrow.client.session import Session


_NOTHING_WRITTEN = (DiskFull, Overloaded, Draining)
"""Errors that prove that this sending wrote nothing."""


class _State(Enum):
    DOWN = "down"
    """No channel; the next connection opens one."""
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    """CLOSE was sent, for a restart or for good."""
    ENDED = "ended"


class BatchOwner(Protocol):
    """The producer that uses a sender."""

    def next_iteration(self) -> None:
        """Handle the loop's next iteration after `enqueue`."""
        ...

    def settled(self, batch: ProducerBatch) -> None:
        """Handle a batch that is confirmed or failed: its room is free."""
        ...

    def too_large(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Return two batches that replace one that is too large for the broker."""
        ...

    def topic_gone(self, topic: str) -> None:
        """Handle a topic or partition that the broker does not know."""
        ...

    def failed(self, error: SparrowError) -> None:
        """Handle an error that ends the producer."""
        ...


class Sender:
    """The channel of one producer. Loop thread only."""

    def __init__(self, session: Session, options: ProducerOptions, owner: BatchOwner) -> None:
        self.opened: asyncio.Future[None] = session.loop.create_future()
        """Done when the channel was open for the first time."""
        self.refusal: SparrowError | None = None
        """The error with which the broker last refused to open the channel."""
        self.max_batch_bytes = MAX_FRAME_BYTES - HEAD_RESERVE_BYTES
        self._session = session
        self._loop = session.loop
        self._options = options
        self._owner = owner
        self._state = _State.DOWN
        self._connection: Connection | None = None
        self._channel = 0
        self._producer_id = -1
        self._epoch = -1
        self._window_bytes = 0
        self._window_used = 0
        self._next_ref = 0
        self._in_flight: dict[int, tuple[PartitionQueue, ProducerBatch, int]] = {}
        self._queues: list[PartitionQueue] = []
        self._runnable: deque[PartitionQueue] = deque()
        self.is_scheduled = False
        """True if the owner's `next_iteration` will be called."""
        self._wants_restart = False
        self._is_probing = False
        self._is_refused = False
        """True if the broker refused something since it last confirmed a batch."""
        self._refusals = Refusals(session.address, options)
        self._backoff = Backoff(session.options.backoff_initial_s, session.options.backoff_max_s)
        self._closed: asyncio.Future[None] | None = None

    # ── calls of the producer ─────────────────────────────────────────────────────────────────────

    def add(self, queue: PartitionQueue) -> None:
        """Add the queue of a partition that is published to."""
        self._queues.append(queue)

    def drop(self, queue: PartitionQueue) -> None:
        """Remove the queue of a partition whose topic is gone."""
        self._queues.remove(queue)

    def enqueue(self, queue: PartitionQueue) -> None:
        """Schedule a queue that has something to send."""
        if not queue.is_runnable:
            queue.is_runnable = True
            self._runnable.append(queue)
        if not self.is_scheduled:
            self.is_scheduled = True
            self._loop.call_soon(self._next_iteration)

    def expire(self, now: float) -> None:
        """Give up batches that are past their deadline."""
        late = [
            (queue, batch) for queue in self._queues for batch in queue.batches() if batch.deadline <= now
        ]
        for queue, batch in late:
            if not batch.is_settled:
                self._give_up(queue, batch, self._late_error(batch))
        self._continue()

    async def close(self, timeout_s: float) -> None:
        """Close the channel and wait for the broker to confirm it."""
        self._session.detach(self)
        if (
            self._state is _State.OPEN
            and self._connection is not None
            and self._connection.may_send(Close, self._channel)
        ):
            self._closed = self._loop.create_future()
            self._send_close()
            await asyncio.wait([self._closed], timeout=timeout_s)
        self._state = _State.ENDED

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def connection_up(self, connection: Connection) -> None:
        self._connection = connection
        self.max_batch_bytes = connection.max_batch_bytes
        self._open()

    def connection_down(self, error: SparrowError) -> None:  # noqa: ARG002 - a tenant's method
        self._connection = None
        if self._state is not _State.ENDED:
            self._channel_lost()

    def session_ended(self, error: SparrowError) -> None:
        self._end(error)

    def writable(self) -> None:
        self._continue()

    def received(self, head: Head, batches: memoryview | None) -> None:  # noqa: ARG002 - a channel's method
        if isinstance(head, Confirm):
            for confirmation in head.confirmations:
                self._handle_confirmation(confirmation)
            if self._runnable or self._wants_restart:
                self._continue()
        elif isinstance(head, ProducerOpened):
            self._channel_open(head)
        elif isinstance(head, Error):
            self._channel_refused(from_code(head.code, head.text))
        elif isinstance(head, Closed):
            self._channel_closed()

    def _open(self) -> None:
        if self._connection is None or not self._connection.is_open or self._state is not _State.DOWN:
            return
        if self._wants_restart and not any(queue.is_undecided for queue in self._queues):
            self._restart()
        try:
            self._channel = self._connection.open_channel(
                OpenProducer(self._options.idempotent, self._producer_id, self._epoch), self
            )
        except ConnectionLost:
            return
        except SparrowError as error:
            self._end(error)
            return
        self._state = _State.OPENING

    def _channel_open(self, opened: ProducerOpened) -> None:
        self._producer_id = opened.producer_id
        self._epoch = opened.producer_epoch
        self._window_bytes = opened.window_bytes
        self._state = _State.OPEN
        if not self.opened.done():
            self.opened.set_result(None)
        for queue in self._queues:
            self._make_runnable(queue)
        self._continue()

    def _channel_lost(self) -> None:
        """Prepare to send all unconfirmed batches again."""
        if self._connection is not None:
            self._connection.release(len(self._in_flight))
        self._state = _State.DOWN
        self._is_probing = bool(self._in_flight) or self._is_probing
        self._in_flight.clear()
        self._window_used = 0
        self._runnable.clear()
        for queue in self._queues:
            queue.is_runnable = False
            if queue.connection_lost() and queue.is_idempotent:
                self._wants_restart = True
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _channel_refused(self, error: SparrowError) -> None:
        self.refusal = error
        self._channel_lost()
        if isinstance(error, UnknownProducer):
            self._forget_identity(error)
        elif not error.retriable:
            self._end(error)
            return
        self._loop.call_later(self._next_delay_s(), self._open)

    def _channel_closed(self) -> None:
        self._state = _State.DOWN
        if self._closed is not None:
            if not self._closed.done():
                self._closed.set_result(None)
            return
        self._open()

    def _send_close(self) -> None:
        assert self._connection is not None  # the state is OPEN
        self._connection.send(Close(), self._channel)
        self._state = _State.CLOSING

    def _end(self, error: SparrowError) -> None:
        """End the sender with an error, and fail all its batches."""
        if self._state is _State.ENDED:
            return
        self._state = _State.ENDED
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # callers that wait get it, but there may be none
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        for queue in self._queues:
            for batch in list(queue.batches()):
                if not batch.is_settled:
                    batch.fail(error)
                    self._owner.settled(batch)
        self._owner.failed(error)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def _continue(self) -> None:
        """Send what may be sent, after a change of state."""
        if (
            self._wants_restart
            and self._state is _State.OPEN
            and self._connection is not None
            and self._connection.may_send(Close, self._channel)
            and not any(queue.is_undecided for queue in self._queues)
        ):
            self._send_close()
        self._send_runnable()

    def _make_runnable(self, queue: PartitionQueue) -> None:
        if not queue.is_runnable and (queue.again or queue.ready or queue.open is not None):
            queue.is_runnable = True
            self._runnable.append(queue)

    def _next_iteration(self) -> None:
        self.is_scheduled = False
        self._owner.next_iteration()
        self._send_runnable()

    def _send_runnable(self) -> None:
        connection, runnable = self._connection, self._runnable
        if not runnable or self._state is not _State.OPEN or connection is None:
            return
        while runnable and connection.accepts:
            queue = runnable.popleft()
            batch = queue.next_batch(only_undecided=self._wants_restart)
            if batch is None:
                queue.is_runnable = False
            elif not self._send(connection, queue, batch):
                runnable.appendleft(queue)
                break
            elif queue.again or queue.ready or queue.open is not None:
                runnable.append(queue)
            else:
                queue.is_runnable = False
        connection.flush()

    def _send(self, connection: Connection, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Send a batch; return False if the window has no room for it now."""
        data = self._encoded(queue, batch)
        if data is None:
            return True
        if len(data) > self.max_batch_bytes:
            self._refuse_here(queue, batch, len(data))
            return True
        if self._window_used and (self._is_probing or self._window_used + len(data) > self._window_bytes):
            return False
        queue.start(batch)
        self._next_ref += 1
        connection.put(
            Publish(self._next_ref, queue.topic, queue.partition, self._options.acks), self._channel, data
        )
        if self._options.acks == ACKS_NONE:
            self._done(queue, batch)
        else:
            connection.hold()
            self._window_used += len(data)
            self._in_flight[self._next_ref] = (queue, batch, len(data))
        return True

    def _refuse_here(self, queue: PartitionQueue, batch: ProducerBatch, size_bytes: int) -> None:
        """Treat a batch that exceeds this broker's frames as if the broker had refused it."""
        queue.start(batch)
        batch.may_be_written = False
        if len(batch) > 1:
            queue.replace(batch, self._owner.too_large(batch))
        else:
            text = (
                f"a message of {size_bytes} bytes; the broker takes batches of at most {self.max_batch_bytes}"
            )
            self._failed_for_good(queue, batch, RecordTooLarge(text))

    def _encoded(self, queue: PartitionQueue, batch: ProducerBatch) -> bytes | None:
        """Return the batch's bytes; None if it cannot be encoded, which fails the batch."""
        if batch.data is not None and (batch.sequence >= 0 or not queue.is_idempotent):
            return batch.data
        sequence = queue.number(batch)
        try:
            return encode(batch, self._options.compression, self._producer_id, self._epoch, sequence)
        except SparrowError as error:
            batch.sequence = sequence
            self._give_up(queue, batch, error)
            return None

    def _done(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Settle a batch with acks=0, which is done once it is written to the socket."""
        queue.resolve(batch)
        batch.confirm(-1, -1)
        self._owner.settled(batch)

    # ── responses ─────────────────────────────────────────────────────────────────────────────────

    def _handle_confirmation(self, confirmation: Confirmation) -> None:
        found = self._in_flight.pop(confirmation.ref, None)
        if found is None:
            return
        queue, batch, size_bytes = found
        self._window_used -= size_bytes
        self._is_probing = False
        assert self._connection is not None  # it delivered the response
        self._connection.release()
        if confirmation.failure is not None:
            self._refused(queue, batch, confirmation.failure)
        else:
            if self._is_refused:
                self._taken()
            self._confirmed(queue, batch, confirmation.base_offset, confirmation.timestamp)
        self._make_runnable(queue)

    def _taken(self) -> None:
        """Record that the broker takes batches again."""
        self._is_refused = False
        self._backoff.reset()
        self._refusals.ended()

    def _next_delay_s(self) -> float:
        """Return the delay before another attempt, after the broker refused one."""
        self._is_refused = True
        return self._backoff.next_delay_s()

    def _confirmed(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, timestamp: int
    ) -> None:
        queue.confirm(batch)
        if not batch.is_settled:
            batch.confirm(base_offset, timestamp)
            self._owner.settled(batch)

    def _refused(self, queue: PartitionQueue, batch: ProducerBatch, failure: Failure) -> None:
        error = failure_error(failure)
        if isinstance(error, ProducerFenced):
            self._end(error)
        elif isinstance(error, OutOfOrderSequence | UnknownProducer):
            self._out_of_order(queue, batch)
        elif isinstance(error, DuplicateSequence):
            self._duplicate(queue, batch)
        elif batch.is_settled:  # given up before
            queue.resolve(batch)
            self._check_gap(queue, batch, error)
        elif isinstance(error, RecordTooLarge) and len(batch) > 1:
            queue.replace(batch, self._owner.too_large(batch))
        elif failure.retriable:
            self._refusals.refused(error, self._loop.time())
            delay_s = self._next_delay_s()
            may_be_written = batch.was_unsure or not isinstance(error, _NOTHING_WRITTEN)
            queue.refuse(batch, may_be_written=may_be_written, retry_at=self._loop.time() + delay_s)
            self._loop.call_later(delay_s, self._retry, queue)
        else:
            self._failed_for_good(queue, batch, error)

    def _retry(self, queue: PartitionQueue) -> None:
        """Schedule a queue with refused batches again. uvloop counts milliseconds, so its timers
        may be early by a part of one.
        """
        early_s = queue.retry_at - self._loop.time()
        if early_s > 0:
            self._loop.call_later(early_s, self._retry, queue)
        else:
            queue.rested()
            self.enqueue(queue)

    def _out_of_order(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.is_settled:
            queue.resolve(batch)
            self._wants_restart = True
            return
        # Expected behind a refused batch; at the head of the queue the sequences no longer fit.
        if not queue.refused and queue.sent[0] is batch:
            self._wants_restart = True
        queue.refuse(batch, may_be_written=False)

    def _duplicate(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.sends > 1:
            self._confirmed(queue, batch, -1, -1)
        else:
            self._out_of_order(queue, batch)

    def _failed_for_good(self, queue: PartitionQueue, batch: ProducerBatch, error: SparrowError) -> None:
        queue.resolve(batch)
        self._check_gap(queue, batch, error)
        batch.fail(error)
        self._owner.settled(batch)
        if isinstance(error, NotFound):
            self._owner.topic_gone(queue.topic)

    def _check_gap(self, queue: PartitionQueue, batch: ProducerBatch, error: SparrowError) -> None:
        if isinstance(error, BadInput | NotFound | Conflict | Refused):
            batch.may_be_written = False
        if queue.leaves_gap(batch):
            self._wants_restart = True

    # ── giving up ─────────────────────────────────────────────────────────────────────────────────

    def _give_up(self, queue: PartitionQueue, batch: ProducerBatch, error: SparrowError) -> None:
        queue.withdraw(batch)
        if batch not in queue.sent and queue.leaves_gap(batch):
            self._wants_restart = True
        batch.fail(error)
        self._owner.settled(batch)

    def _late_error(self, batch: ProducerBatch) -> TimedOut:
        where = f"messages for topic {batch.topic!r}"
        if batch.may_be_written:
            return TimedOut(
                f"{where} were sent to {self._session.address} and not confirmed within "
                f"{self._options.delivery_timeout_s:g} s; whether they were written is not known{self.why()}"
            )
        return TimedOut(
            f"{where} could not be sent to {self._session.address} within "
            f"{self._options.delivery_timeout_s:g} s and were not "
            f"written{self.why() or '; check that the broker is reachable and has room'}"
        )

    def why(self) -> str:
        """Return a suffix for errors with the broker's last refusal, if it takes nothing now; else
        "".
        """
        refusal = self._refusals.last
        return f"; the broker says: {refusal.text} ({refusal.code})" if refusal else ""

    def _forget_identity(self, error: SparrowError) -> None:
        """Give up the batches that the broker may have: without the identity it cannot recognise
        them.
        """
        for queue in self._queues:
            for batch in [b for b in queue.again if b.may_be_written]:
                self._give_up(queue, batch, error)
        self._wants_restart = True

    def _restart(self) -> None:
        self._wants_restart = False
        self._producer_id = self._epoch = -1
        for queue in self._queues:
            queue.restart()
