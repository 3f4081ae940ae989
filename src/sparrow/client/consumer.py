"""A consumer of a queue: one channel, kept up over lost links, and what it has to say of the records that it leased.

- **Who it is.** The consumer names itself, so that a channel opened on the next link takes up what the last one held, even where the
  broker's first answer was lost.
- **Lost link.** What is unanswered is said again before any credit is given on the new link; so a record that was nacked and leased anew
  cannot be nacked twice by the repetition.
- **Ends.** A closed consumer gives back what it holds; who settles after that gets `NotLeased`.

What is leased, and how, is the matter of `prefetching.py` (the broker pushes) and `leasing.py` (one asks).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sparrow.base.errors import ConnectionLost, NotLeased, SparrowError, TimedOut, from_code
from sparrow.client.delivery import repeated
from sparrow.client.held import Held
from sparrow.client.lease import Lease
from sparrow.client.retry import Backoff
from sparrow.client.settling import EXTEND, Settling
from sparrow.protocol.native.messages import (
    Close,
    Closed,
    Error,
    Leased,
    OpenQueue,
    QueueOpened,
    Settle,
    Settled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.client.connection import Connection
    from sparrow.client.link import Link
    from sparrow.client.options import QueueOptions
    from sparrow.client.settling import Key, Part
    from sparrow.protocol.native.messages import Head

    OnFailure = Callable[[Part, SparrowError], None]

_logger = logging.getLogger("sparrow.client")

_MIN_SWEEP_S = 0.01
_MAX_SWEEP_S = 5.0
_CLOSED_TIMEOUT_S = 1.0


class Consumer:
    """Base of the two kinds. Loop thread only."""

    is_pushed = False

    def __init__(
        self,
        connection: Connection,
        queue: str,
        options: QueueOptions,
        consumer_id: str,
        *,
        on_failure: OnFailure,
    ) -> None:
        """`on_failure` is told what had no effect of what was said without waiting."""
        self.queue = queue
        self.options = options
        self.consumer_id = consumer_id
        self.connection = connection
        self.loop = connection.loop
        self.lease_s = 0.0
        """How long the queue's leases last; known once it was open."""
        self.failure: SparrowError | None = None
        """Why it is over, or None."""
        self.is_open = False
        self.link: Link | None = None
        self.channel = 0
        self._call_timeout_s = connection.options.call_timeout_s
        self.report = on_failure
        """What was said without waiting had no effect."""
        self._settling = Settling(on_failure)
        self._held = Held()
        self._refusal: SparrowError | None = None
        self._was_open = False
        self._is_flushing = False
        self._changed = asyncio.Event()
        self._progress = asyncio.Event()
        """Set, and replaced, with each answer."""
        self._closed: asyncio.Future[None] | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._backoff = Backoff(connection.options.backoff_initial_s, connection.options.backoff_max_s)

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open the channel.

        Raises:
            ConnectionLost: the broker could not be reached within the client's `call_timeout_s`.
            SparrowError: the broker refuses.
        """
        self.connection.attach(self)
        try:
            async with asyncio.timeout(self._call_timeout_s):
                await self.until_open()
        except TimeoutError:
            error = self._refusal or ConnectionLost(
                f"the broker at {self.connection.address} did not open queue {self.queue!r} within {self._call_timeout_s:g} s"
            )
            self.fail(error)
            raise repeated(error) from None
        except BaseException:
            self.fail(ConnectionLost(f"opening queue {self.queue!r} was given up"))
            raise

    async def until_open(self) -> None:
        """Wait until the channel is open. Raises what ended the consumer."""
        while not self.is_open:
            if self.failure is not None:
                raise repeated(self.failure)
            await self._changed.wait()

    async def flush(self) -> None:
        """Wait until everything that was said until now is answered, or given up."""
        self._close_in()
        self._send_settlements()
        serial = self._settling.last_serial
        while not self._settling.is_done(serial) and self.failure is None:
            await self._progress.wait()

    async def close(self, timeout_s: float) -> None:
        """Wait for what was said to be answered, give back what is held, and end."""
        if self.failure is None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.flush()
            except TimeoutError:
                _logger.warning("queue %r was closed with settlements that were not confirmed", self.queue)
            await self._say_close()
        self.fail(NotLeased(f"queue {self.queue!r} was closed here, and what it held was given back"))

    async def _say_close(self) -> None:
        link = self.link
        if link is not None and link.may_send(Close, self.channel):
            self._closed = self.loop.create_future()
            link.send(Close(), self.channel)
            await asyncio.wait([self._closed], timeout=_CLOSED_TIMEOUT_S)

    def fail(self, error: SparrowError) -> None:
        """The consumer is over. The second time nothing happens."""
        if self.failure is not None:
            return
        self.failure = error
        self.is_open = False
        self.connection.detach(self)
        for timer in (self._sweep_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._held.end()
        self._settling.fail(error)
        self._change()
        self._answered()
        self.ended()

    # ── what the kinds add ────────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        """The channel is open, and what was unanswered is said again."""

    def leased(self, lease: Lease) -> None:
        """A lease came."""
        raise NotImplementedError

    def other(self, head: Head) -> None:
        """A frame that only one kind gets."""

    def interrupted(self) -> None:
        """The channel is gone, for now."""

    def settled(self, records: int) -> None:
        """So many of the records that are held are held no longer."""

    def told(self) -> None:
        """Settlements were sent."""

    def stale(self, now: float) -> None:
        """A good time to give back what was not handed out."""

    def ended(self) -> None:
        """The consumer is over."""

    # ── saying what becomes of records ────────────────────────────────────────────────────────────

    def submit(self, lease: Lease, key: Key, first: int, last: int, outcome: object) -> None:
        """Say something of the records `first` to `last` of a lease; it is sent at the end of this turn of the loop.

        Raises:
            NotLeased: the consumer is closed.
            SparrowError: what ended it.
        """
        if self.failure is not None:
            raise repeated(self.failure)
        if not lease.delivery:
            key = lease.key_of(key, first, last)
        if self._settling.add((key, first, last, outcome)) and not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)
        if key[0] != EXTEND and not lease.is_over:
            records = last - first + 1
            self._held.settled(lease, records)
            self.settled(records)

    def _flush(self) -> None:
        self._is_flushing = False
        if self.failure is None:
            self._close_in()
            self._send_settlements()
            self.told()

    def _close_in(self) -> None:
        self._settling.close_in(self.loop.time() + self._call_timeout_s)
        if self._expiry_timer is None and not self._settling.is_empty:
            self._watch_deadlines()

    def _send_settlements(self) -> None:
        link = self.link
        if link is None or not self.is_open or not link.may_send(Settle, self.channel):
            return  # it is said on the next link
        for settle in self._settling.take(self.loop.time()):
            link.send(settle, self.channel)
            link.hold()

    def _settlements_answered(self, head: Settled) -> None:
        retry_at = self.loop.time() + self._backoff.ceiling_s
        if self._settling.answer(head, retry_at):
            assert self.link is not None  # it delivered the answer
            self.link.release()
            if head.failures:
                self._repeat_failed()
            else:
                self._backoff.reset()
            self._answered()

    def _repeat_failed(self) -> None:
        """Send what is to be said again, now or when it has rested."""
        self._send_settlements()
        rest_until = self._settling.next_rest()
        if rest_until is not None:
            self._backoff.next_delay_s()
            self.loop.call_at(rest_until + 0.001, self._send_settlements)

    def _answered(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _watch_deadlines(self) -> None:
        deadline = self._settling.next_deadline()
        if deadline is None:
            self._expiry_timer = None
        else:
            self._expiry_timer = self.loop.call_at(deadline + 0.001, self._expire)

    def _expire(self) -> None:
        given_up = self._settling.expire(self.loop.time(), self._late)
        if self.link is not None and given_up:
            self.link.release(given_up)
        self._answered()
        self._watch_deadlines()

    def _late(self, part: Part) -> TimedOut:
        return TimedOut(
            f"the broker at {self.connection.address} did not confirm within {self._call_timeout_s:g} s what was said of"
            f" {part[0][1]}-{part[0][2]} at offset {part[1]}; whether it was done is not known"
        )

    # ── leases ────────────────────────────────────────────────────────────────────────────────────

    def _take(self, head: Leased, batches: memoryview) -> None:
        if not head.ranges:
            return
        self.lease_s = head.lease_ms / 1000  # the policy may have changed
        lease = Lease(self, head, batches, self.loop.time())
        if not self._settling.is_empty:
            self._settling.leased_again(lease.topic, lease.partition, lease.ranges)
        self._held.add(lease)
        if self._sweep_timer is None:
            self._sweep_soon()
        self.leased(lease)

    def _sweep_soon(self) -> None:
        interval_s = min(max(self.lease_s / 8, _MIN_SWEEP_S), _MAX_SWEEP_S)
        self._sweep_timer = self.loop.call_later(interval_s, self._sweep)

    def _sweep(self) -> None:
        now = self.loop.time()
        self.stale(now)
        ended = self._held.take_ended(now)
        if ended:
            self.settled(ended)
            self.told()
        if self._held:
            self._sweep_soon()
        else:
            self._sweep_timer = None

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def link_up(self, link: Link) -> None:
        self.link = link
        self._open_channel()

    def link_down(self, error: SparrowError) -> None:  # noqa: ARG002 - a tenant's
        self.link = None
        self._lost()

    def connection_ended(self, error: SparrowError) -> None:
        self.fail(error)

    def writable(self) -> None:
        """Nothing is sent in bulk here."""

    def received(self, head: Head, batches: memoryview | None) -> None:
        if self.failure is not None:
            self._too_late(head)
        elif type(head) is Leased:
            assert batches is not None  # the frame's type says so
            self._take(head, batches)
        elif type(head) is Settled:
            self._settlements_answered(head)
        elif isinstance(head, QueueOpened):
            self._opened(head)
        elif isinstance(head, Error):
            self._refused(from_code(head.code, head.text))
        elif isinstance(head, Closed):
            if self._closed is not None and not self._closed.done():
                self._closed.set_result(None)
        else:
            self.other(head)

    def _too_late(self, head: Head) -> None:
        """The consumer is over; a channel that is opened only now is closed again, and what it held goes back."""
        link = self.link
        if isinstance(head, QueueOpened) and link is not None and link.may_send(Close, self.channel):
            link.send(Close(), self.channel)

    def _open_channel(self) -> None:
        link, options = self.link, self.options
        if link is None or self.failure is not None or self.is_open:
            return
        head = OpenQueue(
            self.queue,
            self.consumer_id,
            options.subscriber,
            push=self.is_pushed,
            max_deliver_bytes=options.max_deliver_bytes,
            create=options.create and not self._was_open,
        )
        try:
            self.channel = link.open_channel(head, self)
        except ConnectionLost:
            pass  # the next link tries again
        except SparrowError as error:
            self._refused(error)

    def _opened(self, head: QueueOpened) -> None:
        self.lease_s = head.lease_ms / 1000
        self.consumer_id = head.consumer_id or self.consumer_id
        self.is_open = self._was_open = True
        self._refusal = None
        self._backoff.reset()
        self._send_settlements()
        self.opened()
        self._change()

    def _refused(self, error: SparrowError) -> None:
        """The broker ended the channel, or opened none."""
        self._refusal = error
        self._lost()
        if error.retriable:
            self.loop.call_later(self._backoff.next_delay_s(), self._open_channel)
        else:
            self.fail(error)

    def _lost(self) -> None:
        self.is_open = False
        self._settling.link_lost()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self.interrupted()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
