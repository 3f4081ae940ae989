"""Queue channels: credit, leases and settlements in, LEASED and SETTLED out.

A pushing channel has one task, as a subscription has. It leases while the channel has credit and
the connection can be written to, so no record is leased for a client that does not read. A LEASE is
a task until its response. Settlements are in `settlement_queue.py`.

Leased records are released only when the client says that it is done: by CLOSE, or by a goodbye
that is not the response to the broker's. If the connection is lost or the broker ends the channel,
the leases run until they expire: the client may still be at work and come back with the same
consumer id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import FrameTooLarge, InvalidArgument, RecordTooLarge, SparrowError, Unavailable
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.native.channels import CloseReason
from sparrow.frontends.native.failures import translate
from sparrow.frontends.native.lease_frames import send_leased
from sparrow.frontends.native.settlement_queue import SettlementQueue
from sparrow.frontends.native.work_queue import WorkQueue
from sparrow.protocol.native import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.frontends.native.context import SessionContext

PUSHED: Final = -1
MAX_WAIT_MS: Final = 3_600_000
MAX_RECORDS_AT_ONCE: Final = 100_000
"""Limit of one lease of a push; the next lease follows at once."""
MAX_CREDIT: Final = 1 << 62
FAILURES_WITH_TEXT: Final = 100
_COLLECT_S: Final = 0.001
_FEW_OF: Final = 4
"""A consumer that lacks less than this part of its prefetch gets more `_COLLECT_S` later."""
RETRY_S: Final = 0.5
"""Delay before a lease that could not be stored is tried again."""


class QueueChannel:
    """One consumer of one connection."""

    __slots__ = (
        "_consumer",
        "_credit",
        "_is_closed",
        "_is_draining",
        "_is_leasing",
        "_is_push",
        "_leasing",
        "_max_deliver_bytes",
        "_number",
        "_pulling",
        "_session",
        "_settlements",
        "_waker",
        "work",
    )

    def __init__(self, session: SessionContext, number: int, head: m.OpenQueue) -> None:
        self._session = session
        self._number = number
        self._is_push = head.push
        self._credit = head.credit
        self._max_deliver_bytes = min(head.max_deliver_bytes, session.max_deliver_bytes)
        self._consumer: QueueConsumer | None = None
        self._settlements: SettlementQueue | None = None
        self._leasing: asyncio.Task[None] | None = None
        self._pulling: m.Lease | None = None
        self._waker: asyncio.Future[None] | None = None
        self._is_closed = False
        self._is_leasing = False
        self._is_draining = False
        self.work = WorkQueue(1, session.may_work, session.work_changed)

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────

    async def open(self, head: m.OpenQueue) -> m.QueueOpened:
        """Open the consumer. `start` or LEASE comes after QUEUE_OPENED was sent."""
        _check_open(head)
        session = self._session
        self._consumer = consumer = await session.broker.queues.open_consumer(
            head.queue,
            consumer_id=head.consumer_id,
            client_name=session.client_name,
            subscriber=head.subscriber,
            prefetch=head.prefetch,
            create=head.create,
            principal=session.principal,
        )
        consumer.ended = self._end
        self._settlements = SettlementQueue(
            consumer, self._send_settled, session.settling_changed, self._end, session.logger
        )
        return m.QueueOpened(consumer.id, consumer.lease_ms, consumer.prefetch, consumer.subscriber)

    def start(self) -> None:
        """Lease whenever there is credit. No effect on a channel that does not push."""
        if self._is_push and not self._is_closed and not self._is_draining:
            self._leasing = asyncio.get_running_loop().create_task(self._push())

    def drain(self) -> None:
        """Lease nothing more; leased records can still be settled."""
        self._is_draining = True
        self._stop_leasing()
        unanswered, self._pulling = self._pulling, None
        if unanswered is not None:
            self._send_head(m.LeaseDone(unanswered.ref))

    def stop(self) -> None:
        """Send nothing more on the channel; `close` follows."""
        self._is_closed = True
        self.work.cancel()
        self._stop_leasing()

    async def close(self, reason: CloseReason) -> None:
        """Stop. Settlements that were received before are still carried out."""
        if reason is CloseReason.LEFT:
            self._stop_leasing()
        else:
            self.stop()
        if self._leasing is not None:
            await asyncio.wait([self._leasing])  # it releases what it has not sent
        if self._settlements is not None:
            await self._settlements.finished()
        self._is_closed = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.ended = None
            await consumer.close(release=reason is CloseReason.LEFT)

    def heartbeat(self) -> None:
        """Do nothing: leases have their own timeout."""

    def is_silent_too_long(self, idle_timeout_ms: int) -> bool:  # noqa: ARG002 - leases have their own time
        """Return False: leases have their own timeout."""
        return False

    def wake(self) -> None:
        """Continue to lease: credit came, or the connection can be written to again."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    @property
    def is_idle(self) -> bool:
        """True if no response and no settlement is pending."""
        return self.work.is_idle and (self._settlements is None or self._settlements.is_idle)

    def _stop_leasing(self) -> None:
        if self._leasing is not None and self._leasing is not asyncio.current_task():
            self._leasing.cancel()

    def _end(self, error: SparrowError) -> None:
        if not self._is_closed:
            self._session.end_channel(self._number, error)

    def _send_head(self, head: m.Head, *, is_last: bool = False) -> None:
        """Send a frame: at once if the client waits for nothing else, else with the frames that
        follow it in this iteration of the event loop.
        """
        if not self._is_closed:
            self._session.send(head, self._number)
            if is_last:
                self._session.flush()
            else:
                self._session.flush_soon()

    # ── frames of the client ──────────────────────────────────────────────────────────────────────

    def handle(self, head: m.Head) -> None:
        """Handle a frame of the client.

        Raises:
            InvalidArgument: its arguments are wrong; the channel ends.
        """
        if isinstance(head, m.Settle):
            if self._settlements is not None:
                self._settlements.add(head)
        elif isinstance(head, m.QueueCredit):
            self.on_credit(head)
        elif isinstance(head, m.Lease):
            self.on_lease(head)

    def _send_settled(self, ref: int, failures: list[m.SettleFailure]) -> None:
        is_last = self._settlements is not None and not self._settlements.unanswered and not self._is_leasing
        try:
            self._send_head(m.Settled(ref, failures), is_last=is_last)
        except FrameTooLarge:  # with thousands of failures the texts of a few are enough
            short = [m.SettleFailure(f.settlement, f.range, f.code, "", f.retriable) for f in failures]
            try:
                self._send_head(m.Settled(ref, failures[:FAILURES_WITH_TEXT] + short[FAILURES_WITH_TEXT:]))
            except FrameTooLarge as error:
                self._end(error)

    def on_credit(self, head: m.QueueCredit) -> None:
        if head.records < 0:
            raise InvalidArgument(
                f"QUEUE_CREDIT of {head.records} records: credit is only added; send a positive number."
            )
        self._credit = min(self._credit + head.records, MAX_CREDIT)
        self.wake()

    def on_lease(self, head: m.Lease) -> None:
        _check_lease(head, is_push=self._is_push)
        if self._pulling is not None:
            raise InvalidArgument("LEASE while another is unanswered; wait for its LEASE_DONE first.")
        if self._is_draining:
            self._send_head(m.LeaseDone(head.ref))
            return
        self._pulling = head
        self._leasing = asyncio.get_running_loop().create_task(self._respond_to_lease(head))

    # ── lease ─────────────────────────────────────────────────────────────────────────────────────

    def _may_deliver(self) -> bool:
        """Return True if the connection can be written to and the quota allows a delivery."""
        return self._session.can_write and self._session.throttle.may_deliver()

    async def _push(self) -> None:
        session = self._session
        reservation = session.reserve()
        try:
            while (consumer := self._consumer) is not None and not self._is_closed:
                # Wait in this order: otherwise all waiting channels would lease, although the first
                # one fills the connection.
                await consumer.wait(MAX_WAIT_MS)
                if self._credit <= 0 or not self._may_deliver():
                    consumer.wake_another()
                    await self._wait_for_room(needs_credit=True)
                if self._has_plenty(consumer):
                    consumer.wake_another()
                    await asyncio.sleep(_COLLECT_S)
                limit = min(self._credit, MAX_RECORDS_AT_ONCE)
                max_bytes = session.throttle.max_delivery_bytes(self._max_deliver_bytes)
                self._is_leasing = True
                try:
                    leased = await consumer.lease(limit, max_bytes=max_bytes, memory=reservation)
                except Unavailable as error:
                    leased = await self._not_stored(error)
                self._is_leasing = False
                self._credit -= self._deliver(leased, PUSHED)
                session.flush()
                reservation.sent()
                if not leased or not consumer.syncs_leases:  # it did not wait for the disk
                    await asyncio.sleep(0)  # yield to other channels
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "leasing", session.logger))
        finally:
            self._is_leasing = False
            reservation.give_back()

    def _has_plenty(self, consumer: QueueConsumer) -> bool:
        """Return True if the consumer has most of what it may have at hand: a few more records one
        by one would cost a lease, a write and a frame each.
        """
        room = min(self._credit, consumer.prefetch - consumer.leased)
        return 0 < room * _FEW_OF < consumer.prefetch

    async def _respond_to_lease(self, head: m.Lease) -> None:
        consumer = self._consumer
        assert consumer is not None  # the channel is open
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(head.wait_ms, MAX_WAIT_MS) / 1000
        wanted_bytes = min(head.max_bytes, self._session.max_deliver_bytes)
        reservation = self._session.reserve()
        try:
            while True:
                await self._wait_for_room(needs_credit=False)
                max_bytes = self._session.throttle.max_delivery_bytes(wanted_bytes)
                self._is_leasing = True
                try:
                    leased = await consumer.lease(head.max_records, max_bytes=max_bytes, memory=reservation)
                except Unavailable as error:
                    leased = await self._not_stored(error)
                self._is_leasing = False
                left_s = deadline - loop.time()
                if leased or left_s <= 0:
                    break
                await consumer.wait(round(left_s * 1000) or 1)
                if not self._may_deliver():
                    consumer.wake_another()
            self._pulling = None
            self._send_head(m.LeaseDone(head.ref, self._deliver(leased, head.ref)))
            self._session.flush()
            reservation.sent()
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "LEASE", self._session.logger))
        finally:
            self._is_leasing = False
            reservation.give_back()

    async def _not_stored(self, error: Unavailable) -> list[Leased]:
        """Return no records after `RETRY_S`, as a lease could not be stored."""
        if not error.retriable:
            raise error
        self._is_leasing = False
        await asyncio.sleep(RETRY_S)
        return []

    async def _wait_for_room(self, *, needs_credit: bool) -> None:
        await self._session.throttle.wait_to_deliver()
        while not self._session.can_write or (needs_credit and self._credit <= 0):
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker

    def _deliver(self, leased: Sequence[Leased], ref: int) -> int:
        """Queue leased records for sending; return their number."""
        session = self._session
        records = size_bytes = 0
        for each in leased:
            unsent = send_leased(each, ref, session.send, self._number)
            for first, last, _ in each.ranges:
                records += last - first + 1
            size_bytes += len(each.data)
            if unsent:
                records -= sum(last - first + 1 for first, last in unsent)
                self._nack_too_large(each, unsent)
        if session.throttle.quotas.has_limits:
            session.throttle.delivered(size_bytes)
        return records

    def _nack_too_large(self, leased: Leased, unsent: Sequence[tuple[int, int]]) -> None:
        """Nack records that do not fit into a frame. The delivery counts as failed, so that the
        record becomes a dead letter and blocks no others.
        """
        assert self._consumer is not None
        error = RecordTooLarge(
            f"The record's batch in {leased.topic!r}-{leased.partition} exceeds the frame limit of "
            "the native listener; raise the broker's max_frame_bytes, or consume it through another one."
        )
        self._session.logger.warning(
            "queue %r, offset %d: %s", self._consumer.queue_name, unsent[0][0], error
        )
        text = f"{error.code}: {error.text}"
        lease_ms = self._consumer.lease_ms
        self._consumer.settle(
            [
                Settlement(Verb.NACK, leased.topic, leased.partition, first, last, lease_ms, text)
                for first, last in unsent
            ]
        ).add_done_callback(_ignore_failure)


def _ignore_failure(future: asyncio.Future[list[SparrowError | None]]) -> None:
    """Ignore a failure: if the settlement was not stored, the lease expires."""
    if not future.cancelled():
        future.exception()


def _check_open(head: m.OpenQueue) -> None:
    if head.credit < 0 or head.max_deliver_bytes < 1 or head.prefetch < 0:
        raise InvalidArgument(
            f"OPEN_QUEUE with credit {head.credit}, prefetch {head.prefetch} and max_deliver_bytes "
            f"{head.max_deliver_bytes}; the "
            "first two must not be negative, the last must be positive."
        )


def _check_lease(head: m.Lease, *, is_push: bool) -> None:
    if is_push:
        raise InvalidArgument("LEASE on a channel that pushes; open the queue with push=False to lease.")
    if head.max_records < 1 or head.max_bytes < 1 or head.wait_ms < 0:
        raise InvalidArgument(
            f"LEASE with max_records {head.max_records}, max_bytes {head.max_bytes}, wait_ms "
            f"{head.wait_ms}; the first two must be "
            "positive, the third not negative."
        )
