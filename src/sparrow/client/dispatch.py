"""Batches leave: the producer's channel, its window, and what the broker's answers mean.

The rules of one partition are `line.py`'s; here is what concerns all of them.

- **Window.** Bytes sent and unanswered stay within what the broker granted, one batch excepted. Nothing is sent while the socket is full.
- **Lost link.** The channel is opened again with the same identity, and everything unanswered is sent again, in order. The first batch goes
  alone: where links die young, each brings at least one answer instead of the same flood in vain.
- **Restart.** When a batch is given up in the middle of a line, the numbers behind it do not fit any more. Then nothing new is sent until the
  broker has answered everything that it may have; then a new identity is asked for, and what is left is numbered from 0. (Kafka's
  clients raise the epoch for the same reason; frames of the old identity that are still under way can never fit again.)
- **What an answer means**, by error: one that may pass is sent again with backoff until the delivery timeout; a batch that is too large is
  split; a gap is a restart; being fenced ends the producer; anything else ends that batch alone.
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
from sparrow.client.calls import failure_error
from sparrow.client.options import ACKS_NONE
from sparrow.client.retry import Backoff
from sparrow.client.sealing import seal
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
    from sparrow.client.connection import Connection
    from sparrow.client.delivery import Batch
    from sparrow.client.line import Line
    from sparrow.client.link import Link
    from sparrow.client.options import ProducerOptions


_NOTHING_WRITTEN = (DiskFull, Overloaded, Draining)
"""Who is refused like this knows that this sending wrote nothing."""


class _State(Enum):
    DOWN = "down"
    """No channel; the next link opens one."""
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    """CLOSE was sent, for a restart or for good."""
    ENDED = "ended"


class Owner(Protocol):
    """The producer behind a dispatcher."""

    def settled(self, batch: Batch) -> None:
        """A batch is confirmed or failed; its room is free."""
        ...

    def too_large(self, batch: Batch) -> list[Batch]:
        """The broker finds this batch too large: two that replace it."""
        ...

    def topic_gone(self, topic: str) -> None:
        """The broker does not know the topic, or not that partition."""
        ...

    def failed(self, error: SparrowError) -> None:
        """The producer cannot go on."""
        ...


class Dispatcher:
    """One producer's channel. Loop thread only."""

    def __init__(self, connection: Connection, options: ProducerOptions, owner: Owner) -> None:
        self.opened: asyncio.Future[None] = connection.loop.create_future()
        """Done when the channel was open for the first time."""
        self.refusal: SparrowError | None = None
        """Why the broker did not open the channel, the last time."""
        self.max_batch_bytes = MAX_FRAME_BYTES - HEAD_RESERVE_BYTES
        self._connection = connection
        self._loop = connection.loop
        self._options = options
        self._owner = owner
        self._state = _State.DOWN
        self._link: Link | None = None
        self._channel = 0
        self._producer_id = -1
        self._epoch = -1
        self._window_bytes = 0
        self._window_used = 0
        self._next_ref = 0
        self._unanswered: dict[int, tuple[Batch, int]] = {}
        self._lines: list[Line] = []
        self._runnable: deque[Line] = deque()
        self._is_scheduled = False
        self._wants_restart = False
        self._is_probing = False
        self._last_refusal: SparrowError | None = None
        """Why the broker took nothing when it was asked last."""
        self._backoff = Backoff(connection.options.backoff_initial_s, connection.options.backoff_max_s)
        self._closed: asyncio.Future[None] | None = None

    # ── what the producer asks ────────────────────────────────────────────────────────────────────

    def add(self, line: Line) -> None:
        """A partition that is published to from here on."""
        self._lines.append(line)

    def drop(self, line: Line) -> None:
        """A partition whose topic is gone; nothing of it is waited for."""
        self._lines.remove(line)

    def enqueue(self, line: Line) -> None:
        """The line has something to send."""
        if not line.is_queued:
            line.is_queued = True
            self._runnable.append(line)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._pump)

    def expire(self, now: float) -> None:
        """Give up what is past its deadline."""
        late = [(line, batch) for line in self._lines for batch in line.batches() if batch.deadline <= now]
        for line, batch in late:
            if not batch.is_settled:
                self._give_up(line, batch, self._late_error(batch))
        self._go_on()

    async def close(self, timeout_s: float) -> None:
        """Close the channel, wait for the broker to confirm that."""
        self._connection.detach(self)
        if (
            self._state is _State.OPEN
            and self._link is not None
            and self._link.may_send(Close, self._channel)
        ):
            self._closed = self._loop.create_future()
            self._send_close()
            await asyncio.wait([self._closed], timeout=timeout_s)
        self._state = _State.ENDED

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def link_up(self, link: Link) -> None:
        self._link = link
        self.max_batch_bytes = link.max_batch_bytes
        self._open()

    def link_down(self, error: SparrowError) -> None:  # noqa: ARG002 - a tenant's method
        self._link = None
        if self._state is not _State.ENDED:
            self._channel_lost()

    def connection_ended(self, error: SparrowError) -> None:
        self._end(error)

    def writable(self) -> None:
        self._go_on()

    def received(self, head: Head, batches: memoryview | None) -> None:  # noqa: ARG002 - a channel's method
        if isinstance(head, Confirm):
            for confirmation in head.confirmations:
                self._answer(confirmation)
            self._go_on()
        elif isinstance(head, ProducerOpened):
            self._channel_open(head)
        elif isinstance(head, Error):
            self._channel_refused(from_code(head.code, head.text))
        elif isinstance(head, Closed):
            self._channel_closed()

    def _open(self) -> None:
        if self._link is None or not self._link.is_open or self._state is not _State.DOWN:
            return
        if self._wants_restart and not any(line.is_undecided for line in self._lines):
            self._restart()
        try:
            self._channel = self._link.open_channel(
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
        for line in self._lines:
            self._queue(line)
        self._go_on()

    def _channel_lost(self) -> None:
        """Everything unanswered must be sent again."""
        if self._link is not None:
            self._link.release(len(self._unanswered))
        self._state = _State.DOWN
        self._is_probing = bool(self._unanswered) or self._is_probing
        self._unanswered.clear()
        self._window_used = 0
        for line in self._lines:
            if line.link_lost() and line.is_idempotent:
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
        self._loop.call_later(self._backoff.next_delay_s(), self._open)

    def _channel_closed(self) -> None:
        self._state = _State.DOWN
        if self._closed is not None:
            if not self._closed.done():
                self._closed.set_result(None)
            return
        self._open()

    def _send_close(self) -> None:
        assert self._link is not None  # the state is OPEN
        self._link.send(Close(), self._channel)
        self._state = _State.CLOSING

    def _end(self, error: SparrowError) -> None:
        """For good."""
        if self._state is _State.ENDED:
            return
        self._state = _State.ENDED
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # whoever waits learns it; nobody need wait
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        for line in self._lines:
            for batch in list(line.batches()):
                if not batch.is_settled:
                    batch.fail(error)
                    self._owner.settled(batch)
        self._owner.failed(error)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        """Something changed: whatever may go, goes."""
        if (
            self._wants_restart
            and self._state is _State.OPEN
            and not any(line.is_undecided for line in self._lines)
        ):
            self._send_close()
        self._pump()

    def _queue(self, line: Line) -> None:
        if not line.is_queued and (line.again or line.ready or line.open is not None):
            line.is_queued = True
            self._runnable.append(line)

    def _pump(self) -> None:
        self._is_scheduled = False
        link = self._link
        if self._state is not _State.OPEN or link is None:
            return
        runnable, now = self._runnable, self._loop.time()
        while runnable and link.accepts:
            line = runnable.popleft()
            batch = line.next_batch(now, only_undecided=self._wants_restart)
            if batch is None:
                line.is_queued = False
            elif self._send(link, line, batch):
                runnable.append(line)
            else:
                runnable.appendleft(line)
                break
        link.flush()

    def _send(self, link: Link, line: Line, batch: Batch) -> bool:
        """Send a batch; False if the window has no room for it now."""
        data = self._sealed(line, batch)
        if data is None:
            return True
        if len(data) > self.max_batch_bytes:
            self._refuse_here(line, batch, len(data))
            return True
        if self._window_used and (self._is_probing or self._window_used + len(data) > self._window_bytes):
            return False
        line.start(batch)
        self._next_ref += 1
        link.send(
            Publish(self._next_ref, line.topic, line.partition, self._options.acks), self._channel, data
        )
        if self._options.acks == ACKS_NONE:
            self._done(line, batch)
        else:
            link.hold()
            self._window_used += len(data)
            self._unanswered[self._next_ref] = (batch, len(data))
        return True

    def _refuse_here(self, line: Line, batch: Batch, size_bytes: int) -> None:
        """No frame of this broker takes the batch: what its refusal would do, without asking."""
        line.start(batch)
        batch.may_be_written = False
        if len(batch) > 1:
            line.replace(batch, self._owner.too_large(batch))
        else:
            text = (
                f"a message of {size_bytes} bytes; the broker takes batches of at most {self.max_batch_bytes}"
            )
            self._failed_for_good(batch, RecordTooLarge(text))

    def _sealed(self, line: Line, batch: Batch) -> bytes | None:
        """The batch's bytes; None if they cannot be made, which fails the batch."""
        if batch.data is not None and (batch.sequence >= 0 or not line.is_idempotent):
            return batch.data
        sequence = line.number(batch)
        try:
            return seal(batch, self._options.compression, self._producer_id, self._epoch, sequence)
        except SparrowError as error:
            batch.sequence = sequence
            self._give_up(line, batch, error)
            return None

    def _done(self, line: Line, batch: Batch) -> None:
        """Nothing is promised for acks=0: it is done when it is written."""
        line.answered(batch)
        batch.confirm(-1, -1)
        self._owner.settled(batch)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def _answer(self, confirmation: Confirmation) -> None:
        batch, size_bytes = self._unanswered.pop(confirmation.ref, (None, 0))
        if batch is None:
            return
        self._window_used -= size_bytes
        self._is_probing = False
        assert self._link is not None  # it delivered the answer
        self._link.release()
        if confirmation.failure is not None:
            self._refused(batch, confirmation.failure)
        else:
            self._backoff.reset()
            self._last_refusal = None
            self._confirmed(batch, confirmation.base_offset, confirmation.timestamp)
        self._queue(batch.line)

    def _confirmed(self, batch: Batch, base_offset: int, timestamp: int) -> None:
        batch.line.confirmed(batch)
        if not batch.is_settled:
            batch.confirm(base_offset, timestamp)
            self._owner.settled(batch)

    def _refused(self, batch: Batch, failure: Failure) -> None:
        line, error = batch.line, failure_error(failure)
        if isinstance(error, ProducerFenced):
            self._end(error)
        elif isinstance(error, OutOfOrderSequence | UnknownProducer):
            self._out_of_order(batch)
        elif isinstance(error, DuplicateSequence):
            self._duplicate(batch)
        elif batch.is_settled:  # given up before
            line.answered(batch)
            self._check_gap(line, batch, error)
        elif isinstance(error, RecordTooLarge) and len(batch) > 1:
            line.replace(batch, self._owner.too_large(batch))
        elif failure.retriable:
            self._last_refusal = error
            delay_s = self._backoff.next_delay_s()
            may_be_written = batch.was_unsure or not isinstance(error, _NOTHING_WRITTEN)
            line.refuse(batch, may_be_written=may_be_written, retry_at=self._loop.time() + delay_s)
            self._loop.call_later(delay_s, self.enqueue, line)
        else:
            self._failed_for_good(batch, error)

    def _out_of_order(self, batch: Batch) -> None:
        line = batch.line
        if batch.is_settled:
            line.answered(batch)
            self._wants_restart = True
            return
        # Behind a batch that was refused this is to be expected; at the head of the line the numbers do not fit any more.
        if not line.refused and line.sent[0] is batch:
            self._wants_restart = True
        line.refuse(batch, may_be_written=False)

    def _duplicate(self, batch: Batch) -> None:
        if batch.sends > 1:
            self._confirmed(batch, -1, -1)
        else:
            self._out_of_order(batch)

    def _failed_for_good(self, batch: Batch, error: SparrowError) -> None:
        line = batch.line
        line.answered(batch)
        self._check_gap(line, batch, error)
        batch.fail(error)
        self._owner.settled(batch)
        if isinstance(error, NotFound):
            self._owner.topic_gone(line.topic)

    def _check_gap(self, line: Line, batch: Batch, error: SparrowError) -> None:
        if isinstance(error, BadInput | NotFound | Conflict | Refused):
            batch.may_be_written = False
        if line.leaves_gap(batch):
            self._wants_restart = True

    # ── giving up ─────────────────────────────────────────────────────────────────────────────────

    def _give_up(self, line: Line, batch: Batch, error: SparrowError) -> None:
        line.withdraw(batch)
        if batch not in line.sent and line.leaves_gap(batch):
            self._wants_restart = True
        batch.fail(error)
        self._owner.settled(batch)

    def _late_error(self, batch: Batch) -> TimedOut:
        where = f"{len(batch)} messages for topic {batch.line.topic!r}"
        if batch.may_be_written:
            return TimedOut(
                f"{where} were sent to {self._connection.address} and not confirmed within"
                f" {self._options.delivery_timeout_s:g} s; whether they were written is not known{self.why()}"
            )
        return TimedOut(
            f"{where} could not be sent to {self._connection.address} within {self._options.delivery_timeout_s:g} s and"
            f" were not written{self.why() or '; check that the broker is reachable and has room'}"
        )

    def why(self) -> str:
        """What the broker said last where it refuses to take anything now, to be put behind an error; else ""."""
        refusal = self._last_refusal
        return f"; the broker says: {refusal.text} ({refusal.code})" if refusal else ""

    def _forget_identity(self, error: SparrowError) -> None:
        """The broker does not know the identity any more: what it may have cannot be told from what it has not."""
        for line in self._lines:
            for batch in [b for b in line.again if b.may_be_written]:
                self._give_up(line, batch, error)
        self._wants_restart = True

    def _restart(self) -> None:
        self._wants_restart = False
        self._producer_id = self._epoch = -1
        for line in self._lines:
            line.restart()
