"""A consumer of a queue: one channel, reopened after lost connections, and the settlements of the
records that it leased.

- **Identity.** The consumer chooses its own ID, so that a channel opened on the next connection
  continues with the leases of the last one, even if the broker's first response was lost.
- **Lost connection.** Unconfirmed settlements are sent again before any credit is given on the new
  connection, so a record that was nacked and leased again cannot be nacked twice by the repetition.
- **Ends.** A closed consumer releases its leases; settling after that raises `NotLeased`.

The two kinds lease in different ways: `prefetcher.py` (the broker pushes) and `leaser.py` (the
client asks).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sparrow.base.errors import ConnectionLost, InvalidArgument, NotLeased, SparrowError, TimedOut, from_code
from sparrow.base.forks import used_after_fork, watch
from sparrow.base.retry import Backoff
from sparrow.client.batch import copy_of
from sparrow.client.lease import Lease, LeaseTable
from sparrow.client.settlements import EXTEND, QUIET, Settlements
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
    from collections.abc import Awaitable, Callable, Iterable

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.connection import Connection
    from sparrow.client.options import QueueOptions
    from sparrow.client.session import Session
    from sparrow.client.settlements import Part, SettlementKey
    from sparrow.protocol.native.messages import Head

    OnFailure = Callable[[Part, SparrowError], None]

_logger = logging.getLogger("sparrow.client")

_MIN_SWEEP_S = 0.01
_MAX_SWEEP_S = 5.0
_CLOSED_TIMEOUT_S = 1.0


async def _no_publish(*_: object, **__: object) -> RecordMetadata:
    raise InvalidArgument("this queue cannot publish")


class Consumer:
    """Base of the two kinds of consumers. Loop thread only."""

    is_pushed = False

    def __init__(
        self,
        session: Session,
        queue: str,
        options: QueueOptions,
        consumer_id: str,
        *,
        on_failure: OnFailure,
    ) -> None:
        """Create a consumer that is not opened. `on_failure` is called with settlements that are
        not awaited and had no effect.
        """
        self.queue = queue
        self.options = options
        self.consumer_id = consumer_id
        self.session = session
        self.loop = session.loop
        self.lease_s = 0.0
        """Lease time of the queue; known once the channel was open."""
        self.failure: SparrowError | None = None
        """The error that ended the consumer, or None."""
        self.is_open = False
        self.connection: Connection | None = None
        self.channel = 0
        self._call_timeout_s = session.options.call_timeout_s
        self.publish: Callable[..., Awaitable[RecordMetadata]] = _no_publish
        """Publishes the replies of jobs; set by the queue."""
        self.report = on_failure
        """Called with a settlement that is not awaited and had no effect."""
        self._settlements = Settlements(on_failure)
        self._lease_table = LeaseTable()
        self._refusal: SparrowError | None = None
        self._was_open = False
        self._is_flushing = False
        self._changed = asyncio.Event()
        self._progress: asyncio.Event | None = None
        """Set, and forgotten, at the next response; None while nothing waits for one."""
        self._closed: asyncio.Future[None] | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._backoff = Backoff(session.options.backoff_initial_s, session.options.backoff_max_s)
        watch(self)

    def forked(self, parent: int) -> None:
        """Handle a fork (see `sparrow.base.forks`): leases stay with the parent."""
        self.failure = used_after_fork(f"the queue {self.queue!r}", parent)
        self.is_open = False
        self.connection = None

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return str(self.session.address)

    @property
    def leased_records(self) -> int:
        """Number of records that are leased and not settled."""
        return self._lease_table.records

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open the channel.

        Raises:
            ConnectionLost: the broker could not be reached within the client's `call_timeout_s`.
            SparrowError: the broker refuses.
        """
        self.session.attach(self)
        try:
            async with asyncio.timeout(self._call_timeout_s):
                await self.until_open()
        except TimeoutError:
            error = self._refusal or ConnectionLost(
                f"the broker at {self.session.address} did not open queue {self.queue!r} within "
                f"{self._call_timeout_s:g} s"
            )
            self.fail(error)
            raise copy_of(error) from None
        except BaseException:
            self.fail(ConnectionLost(f"opening queue {self.queue!r} was given up"))
            raise

    async def until_open(self) -> None:
        """Wait until the channel is open. Raises the error that ended the consumer."""
        while not self.is_open:
            if self.failure is not None:
                raise copy_of(self.failure)
            await self._changed.wait()

    async def flush(self) -> None:
        """Wait until everything settled before this call is confirmed, or given up."""
        self._flush()
        serial = self._settlements.last_serial
        while not self._settlements.is_done(serial) and self.failure is None:
            if self._progress is None:
                self._progress = asyncio.Event()
            await self._progress.wait()

    async def close(self, timeout_s: float) -> None:
        """Wait for settlements under way, release all leases, and end the consumer."""
        if self.failure is None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.flush()
            except TimeoutError:
                _logger.warning("queue %r was closed with settlements that were not confirmed", self.queue)
            await self._send_close()
        self.fail(NotLeased(f"queue {self.queue!r} was closed here, and its unsettled jobs were released"))

    async def _send_close(self) -> None:
        connection = self.connection
        if connection is not None and connection.may_send(Close, self.channel):
            self._closed = self.loop.create_future()
            connection.send(Close(), self.channel)
            await asyncio.wait([self._closed], timeout=_CLOSED_TIMEOUT_S)

    def fail(self, error: SparrowError) -> None:
        """End the consumer with an error; do nothing if it has ended."""
        if self.failure is not None:
            return
        self.failure = error
        self.is_open = False
        self.session.detach(self)
        for timer in (self._sweep_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._lease_table.end()
        self._settlements.fail(error)
        self._change()
        self._notify_progress()
        self.ended()

    # ── hooks of the two kinds ────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        """Handle the opened channel, after unconfirmed settlements were sent again."""

    def leased(self, lease: Lease) -> None:
        """Handle a new lease."""
        raise NotImplementedError

    def other(self, head: Head) -> None:
        """Handle a frame that only one kind of consumer gets."""

    def interrupted(self) -> None:
        """Handle the loss of the channel; another one will be opened."""

    def settled(self, records: int) -> None:
        """Handle settled or expired records of leases."""

    def give_credit(self) -> None:
        """Let the broker push more, after settlements were sent."""

    def stale(self, now: float) -> None:
        """Release leases that were not handed out and are getting old."""

    def ended(self) -> None:
        """Handle the end of the consumer."""

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def submit(self, lease: Lease, key: SettlementKey, first: int, last: int, outcome: object) -> None:
        """Settle the records `first` to `last` of a lease; it is sent at the end of this iteration
        of the loop.

        Raises:
            NotLeased: the consumer is closed.
            SparrowError: the error that ended it.
        """
        if self.failure is not None:
            raise copy_of(self.failure)
        if not lease.delivery:
            key = lease.key_of(key, first, last)
        self._settlements.add((key, first, last, outcome))
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)
        if key[0] != EXTEND and not lease.is_over:
            records = last - first + 1
            self._lease_table.settled(lease, records)
            self.settled(records)

    def unconfirmed(self) -> list[Part]:
        """Return the settlements that the broker has not confirmed. Any thread, while that of the
        loop is blocked.
        """
        return self._settlements.unconfirmed()

    def settle_for(self, parts: Iterable[Part]) -> None:
        """Make settlements of an earlier consumer with the same ID; `flush` sends them. The broker
        may have kept some already, so that one without effect is not reported.
        """
        for key, first, last, _ in parts:
            self._settlements.add((key, first, last, QUIET))

    def _flush(self) -> None:
        """Send what was settled, and the credit that it frees, in one write."""
        self._is_flushing = False
        if self.failure is not None:
            return
        self._settlements.build(self.loop.time() + self._call_timeout_s)
        if self._expiry_timer is None and not self._settlements.is_empty:
            self._watch_deadlines()
        self._send_settlements()
        self.give_credit()
        if self.connection is not None:
            self.connection.flush()

    def _send_settlements(self) -> None:
        """Put the settlements that may be sent now behind what the connection sends next."""
        connection = self.connection
        if connection is None or not self.is_open or not connection.may_send(Settle, self.channel):
            return  # sent on the next connection
        for settle in self._settlements.take(self.loop.time()):
            connection.put(settle, self.channel)
            connection.hold()

    def _handle_settled(self, head: Settled) -> None:
        retry_at = self.loop.time() + self._backoff.ceiling_s if head.failures else 0.0
        if self._settlements.handle_reply(head, retry_at):
            assert self.connection is not None  # it delivered the response
            self.connection.release()
            if head.failures:
                self._send_again()
            else:
                self._backoff.reset()
            if self._progress is not None:
                self._notify_progress()

    def _send_again(self) -> None:
        """Send what must be repeated, now or after its delay."""
        self._send_settlements()
        rest_until = self._settlements.next_retry_at()
        if rest_until is not None:
            self._backoff.next_delay_s()
            self.loop.call_at(rest_until + 0.001, self._flush)

    def _notify_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def _watch_deadlines(self) -> None:
        deadline = self._settlements.next_deadline()
        if deadline is None:
            self._expiry_timer = None
        else:
            self._expiry_timer = self.loop.call_at(deadline + 0.001, self._expire)

    def _expire(self) -> None:
        given_up = self._settlements.expire(self.loop.time(), self._late)
        if self.connection is not None and given_up:
            self.connection.release(given_up)
        self._notify_progress()
        self._watch_deadlines()

    def _late(self, part: Part) -> TimedOut:
        return TimedOut(
            f"the broker at {self.session.address} did not confirm the settlement of "
            f"{part[0][1]}-{part[0][2]} at offset {part[1]} within {self._call_timeout_s:g} s; whether it "
            "was done is not known"
        )

    # ── leases ────────────────────────────────────────────────────────────────────────────────────

    def _take(self, head: Leased, batches: memoryview) -> None:
        if not head.ranges:
            return
        self.lease_s = head.lease_ms / 1000  # the policy may have changed
        lease = Lease(self, head, batches, self.loop.time())
        self._settlements.leased_again(lease.topic, lease.partition, lease.ranges)
        self._lease_table.add(lease)
        if self._sweep_timer is None:
            self._sweep_soon()
        self.leased(lease)

    def _sweep_soon(self) -> None:
        interval_s = min(max(self.lease_s / 8, _MIN_SWEEP_S), _MAX_SWEEP_S)
        self._sweep_timer = self.loop.call_later(interval_s, self._sweep)

    def _sweep(self) -> None:
        now = self.loop.time()
        self.stale(now)
        ended = self._lease_table.remove_expired(now)
        if ended:
            self.settled(ended)
            self.give_credit()
        if self._lease_table:
            self._sweep_soon()
        else:
            self._sweep_timer = None

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def connection_up(self, connection: Connection) -> None:
        self.connection = connection
        self._open_channel()

    def connection_down(self, error: SparrowError) -> None:  # noqa: ARG002 - a tenant's
        self.connection = None
        self._lost()

    def session_ended(self, error: SparrowError) -> None:
        self.fail(error)

    def writable(self) -> None:
        """Do nothing: a consumer sends no bulk data."""

    def received(self, head: Head, batches: memoryview | None) -> None:
        if self.failure is not None:
            self._received_after_end(head)
        elif type(head) is Leased:
            assert batches is not None  # the frame's type says so
            self._take(head, batches)
        elif type(head) is Settled:
            self._handle_settled(head)
        elif isinstance(head, QueueOpened):
            self._opened(head)
        elif isinstance(head, Error):
            self._refused(from_code(head.code, head.text))
        elif isinstance(head, Closed):
            if self._closed is not None and not self._closed.done():
                self._closed.set_result(None)
        else:
            self.other(head)

    def _received_after_end(self, head: Head) -> None:
        """Handle a frame after the end: close a channel that opens only now, which releases its
        leases.
        """
        connection = self.connection
        if (
            isinstance(head, QueueOpened)
            and connection is not None
            and connection.may_send(Close, self.channel)
        ):
            connection.send(Close(), self.channel)

    def _open_channel(self) -> None:
        connection, options = self.connection, self.options
        if connection is None or self.failure is not None or self.is_open:
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
            self.channel = connection.open_channel(head, self)
        except ConnectionLost:
            pass  # the next connection tries again
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
        """Handle an error with which the broker ended the channel, or did not open it."""
        self._refusal = error
        self._lost()
        if error.retriable:
            self.loop.call_later(self._backoff.next_delay_s(), self._open_channel)
        else:
            self.fail(error)

    def _lost(self) -> None:
        self.is_open = False
        self._settlements.connection_lost()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self.interrupted()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
