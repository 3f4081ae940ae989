"""Subscription channels: credit and pulls in, DELIVER out.

A pushing channel has one task. It delivers while the channel has credit and the connection can be
written to, with one read per iteration of the event loop: so the channels of a connection
alternate, and a slow consumer stalls only itself. A pull is a task until its response.

The result of `Subscription.read` is sent before anything else is awaited: only until then is it
certain that the partitions are still assigned to this subscription.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import FrameTooLarge, InvalidArgument, RecordTooLarge, SparrowError
from sparrow.broker.reading.positions import StartPosition
from sparrow.broker.reading.subscription import Selector
from sparrow.frontends.isolation import READ_COMMITTED, check_isolation
from sparrow.frontends.native.channels import CloseReason
from sparrow.frontends.native.failures import translate
from sparrow.frontends.native.work_queue import WorkQueue
from sparrow.frontends.transport.send_budget import BATCH_BYTES
from sparrow.protocol.native.messages import (
    Assigned,
    Commit,
    Credit,
    Deliver,
    PartitionAt,
    Pull,
    Pulled,
    Revoke,
    Revoked,
    Subscribe,
    Subscribed,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.broker.reading.reader import ReadDelivery
    from sparrow.broker.reading.subscription import Subscription
    from sparrow.frontends.native.context import SessionContext
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.protocol.native import messages

PUSHED = -1
MAX_WAIT_MS = 3_600_000
MAX_CREDIT_BYTES = 1 << 62


class SubscriptionChannel:
    """One subscription of one connection; the broker's `SubscriptionListener`."""

    __slots__ = (
        "_credit_bytes",
        "_is_closed",
        "_is_push",
        "_max_deliver_bytes",
        "_number",
        "_reading",
        "_session",
        "_session_timeout_ms",
        "_subscription",
        "_waker",
        "work",
    )

    def __init__(self, session: SessionContext, number: int, head: Subscribe) -> None:
        self._session = session
        self._number = number
        self._is_push = head.push
        self._credit_bytes = head.credit_bytes
        self._max_deliver_bytes = min(head.max_deliver_bytes, session.max_deliver_bytes)
        self._subscription: Subscription | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waker: asyncio.Future[None] | None = None
        self._is_closed = False
        self._session_timeout_ms = head.session_timeout_ms
        self.work = WorkQueue(1, session.may_work, session.work_changed)

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────

    async def open(self, head: Subscribe) -> Subscribed:
        """Subscribe at the broker. `start` or PULL comes after SUBSCRIBED was sent."""
        _check_subscribe(head)
        session = self._session
        self._subscription = await session.broker.records.subscribe(
            [_selector(s) for s in head.selectors],
            listener=self,
            group=head.group,
            member_id=head.member_id,
            client_name=session.client_name,
            session_timeout_ms=head.session_timeout_ms,
            rebalance_timeout_ms=head.rebalance_timeout_ms,
            committed_only=head.isolation == READ_COMMITTED,
            principal=session.principal,
        )
        return Subscribed(self._subscription.member_id, self._subscription.member_epoch)

    def start(self) -> None:
        """Deliver whenever there is credit. No effect on a pulling channel."""
        if self._is_push and not self._is_closed:
            self._reading = asyncio.get_running_loop().create_task(self._push())

    async def close(self, reason: CloseReason) -> None:
        """Stop. After a lost connection the group keeps the membership, so that the client can
        reconnect.
        """
        self.stop()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close(leave=reason is not CloseReason.LOST)

    def drain(self) -> None:
        """Do nothing: delivery continues until the client leaves."""

    def heartbeat(self) -> None:
        """Record that the client is alive."""
        if self._subscription is not None:
            self._subscription.heartbeat()

    def is_silent_too_long(self, idle_timeout_ms: int) -> bool:
        """Return True if the group waits for a silent member no longer than `idle_timeout_ms`."""
        return self._session_timeout_ms <= idle_timeout_ms

    @property
    def is_idle(self) -> bool:
        """True if no response is pending."""
        return self.work.is_idle

    def wake(self) -> None:
        """Continue to deliver: credit came, or the connection can be written to again."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def stop(self) -> None:
        """Send nothing more on the channel; `close` follows."""
        self._is_closed = True
        self.work.cancel()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    # ── frames of the client ──────────────────────────────────────────────────────────────────────

    def handle(self, head: messages.Head) -> None:
        """Handle a frame of the client.

        Raises:
            InvalidArgument: its arguments are wrong; the channel ends.
        """
        _HANDLERS[type(head)](self, head)

    def on_credit(self, head: Credit) -> None:
        """Add credit."""
        if head.bytes < 0:
            raise InvalidArgument(
                f"CREDIT of {head.bytes} bytes: credit is only added; send a positive number."
            )
        self._credit_bytes = min(self._credit_bytes + head.bytes, MAX_CREDIT_BYTES)
        self.wake()

    def on_pull(self, head: Pull) -> None:
        """Respond with the records that arrive within the wait."""
        _check_pull(head, is_push=self._is_push)
        if self._reading is not None and not self._reading.done():
            raise InvalidArgument("PULL while another is unanswered; wait for its PULLED first.")
        self._reading = asyncio.get_running_loop().create_task(self._respond_to_pull(head))

    def on_revoked(self, head: Revoked) -> None:
        """Confirm a revocation, after the commits that were sent before it."""
        self.work.add(lambda: self._confirm_revoked(head))

    async def _confirm_revoked(self, head: Revoked) -> None:
        if self._subscription is not None:
            try:
                self._subscription.confirm_revoked(head.epoch, head.partitions)
            except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
                self._end(translate(error, "REVOKED", self._session.logger))

    def on_commit(self, head: Commit) -> None:
        self.work.add(lambda: self._session.respond(head.ref, self._number, self._commit(head)))

    async def _commit(self, head: Commit) -> None:
        """Commit offsets; they are durable on return."""
        offsets = {(o.topic, o.partition): (o.offset, o.metadata) for o in head.offsets}
        if self._subscription is not None:
            await self._subscription.commit(offsets)

    def on_update(self, head: Update) -> None:
        self.work.add(lambda: self._session.respond(head.ref, self._number, self._update(head)))

    async def _update(self, head: Update) -> None:
        """Add and drop selectors."""
        _check_selectors(head.add)
        if self._subscription is not None:
            await self._subscription.update([_selector(s) for s in head.add], head.drop)

    # ── SubscriptionListener ──────────────────────────────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        self._send_head(Assigned(epoch, [PartitionAt(*entry) for entry in added]))

    def revoked(self, epoch: int, partitions: list[tuple[str, int]], reason: str) -> None:
        self._send_head(Revoke(epoch, partitions, reason))

    def ended(self, error: SparrowError) -> None:
        self._end(error)

    def _send_head(self, head: messages.Head) -> None:
        if not self._is_closed:
            self._session.send(head, self._number)
            self._session.flush_soon()

    def _end(self, error: SparrowError) -> None:
        if not self._is_closed:
            self._session.end_channel(self._number, error)

    # ── delivery ──────────────────────────────────────────────────────────────────────────────────

    async def _push(self) -> None:
        try:
            while not self._is_closed and self._subscription is not None:
                if self._subscription.is_ready:
                    await asyncio.sleep(0)  # let other channels deliver
                # Wait in this order: otherwise all waiting channels would read, although the first
                # one fills the connection.
                await self._subscription.wait()
                await self._wait_for_room(needs_credit=True)
                await self._deliver_some()
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "delivering", self._session.logger))

    async def _deliver_some(self) -> None:
        subscription = self._subscription
        if subscription is None:
            return
        max_bytes = self._session.throttle.max_delivery_bytes(
            min(self._max_deliver_bytes, self._credit_bytes)
        )
        with self._session.reserve() as reservation:
            room_bytes = await reservation.take(max(max_bytes, BATCH_BYTES), BATCH_BYTES)
            deliveries = await subscription.read(min(max_bytes, room_bytes), max_wait_ms=0)
            for delivery in deliveries:
                self._deliver(delivery, PUSHED)
                self._credit_bytes -= len(delivery.data)
            self._delivered(_size_of(deliveries), reservation)

    def _delivered(self, size_bytes: int, reservation: Reservation) -> None:
        """Count queued deliveries, and write them."""
        self._session.throttle.delivered(size_bytes)
        reservation.resize(size_bytes)
        reservation.sent()
        self._session.flush()

    async def _respond_to_pull(self, head: Pull) -> None:
        try:
            await self._wait_for_room(needs_credit=False)
            with self._session.reserve() as reservation:
                deliveries = await self._pull(head, reservation)
                for delivery in deliveries:
                    self._deliver(delivery, head.ref)
                size_bytes = _size_of(deliveries)
                self._send_head(Pulled(head.ref, sum(d.records for d in deliveries), size_bytes))
                self._delivered(size_bytes, reservation)
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "PULL", self._session.logger))

    async def _pull(self, head: Pull, reservation: Reservation) -> list[ReadDelivery]:
        """Return the records that arrive within the wait. Reserve no memory while there are
        none.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(head.wait_ms, MAX_WAIT_MS) / 1000
        max_bytes = self._session.throttle.max_delivery_bytes(
            min(head.max_bytes, self._session.max_deliver_bytes)
        )
        deliveries: list[ReadDelivery] = []
        while (subscription := self._subscription) is not None and not deliveries:
            if not await _wait_before(deadline, subscription):
                break
            room_bytes = await reservation.take(max(max_bytes, BATCH_BYTES), BATCH_BYTES)
            deliveries = await subscription.read(
                min(max_bytes, room_bytes), max_records=head.max_records, max_wait_ms=0
            )
            reservation.resize(_size_of(deliveries))
            if loop.time() >= deadline:
                break
        return deliveries

    async def _wait_for_room(self, *, needs_credit: bool) -> None:
        await self._session.throttle.wait_to_deliver()
        while not self._session.can_write or (needs_credit and self._credit_bytes <= 0):
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker

    def _deliver(self, delivery: ReadDelivery, ref: int) -> None:
        head = Deliver(
            delivery.topic,
            delivery.partition,
            delivery.offset,
            delivery.next_offset,
            delivery.high_watermark,
            ref,
        )
        try:
            self._session.send(head, self._number, delivery.data)
        except FrameTooLarge:
            raise RecordTooLarge(
                f"A batch of {len(delivery.data)} bytes at offset {delivery.offset} of "
                f"{delivery.topic!r}-{delivery.partition} "
                "exceeds the frame limit of this listener; raise the broker's max_frame_bytes, or "
                "start after this batch."
            ) from None


_HANDLERS: Final[dict[type[messages.Head], Callable[[SubscriptionChannel, Any], None]]] = {
    Credit: SubscriptionChannel.on_credit,
    Pull: SubscriptionChannel.on_pull,
    Revoked: SubscriptionChannel.on_revoked,
    Commit: SubscriptionChannel.on_commit,
    Update: SubscriptionChannel.on_update,
}


async def _wait_before(deadline: float, subscription: Subscription) -> bool:
    """Wait until there may be something to read. Return False after the deadline."""
    try:
        async with asyncio.timeout_at(deadline):
            await subscription.wait()
    except TimeoutError:
        return False
    return True


def _size_of(deliveries: Sequence[ReadDelivery]) -> int:
    return sum(len(delivery.data) for delivery in deliveries)


def _selector(selector: messages.Selector) -> Selector:
    return Selector(
        selector.topic,
        selector.is_pattern,
        StartPosition(selector.start.at, selector.start.value),
        selector.offsets,
    )


def _check_selectors(selectors: Sequence[messages.Selector]) -> None:
    for selector in selectors:
        if any(offset < 0 for offset in selector.offsets.values()):
            raise InvalidArgument(
                f"A selector of {selector.topic!r} has a negative offset; offsets begin at 0."
            )


def _check_subscribe(head: Subscribe) -> None:
    _check_selectors(head.selectors)
    if head.credit_bytes < 0 or head.max_deliver_bytes < 1:
        raise InvalidArgument(
            f"SUBSCRIBE with credit_bytes {head.credit_bytes} and max_deliver_bytes "
            f"{head.max_deliver_bytes}; the first must not "
            "be negative, the second must be positive."
        )
    check_isolation(head.isolation)


def _check_pull(head: Pull, *, is_push: bool) -> None:
    if is_push:
        raise InvalidArgument("PULL on a channel that pushes; subscribe with push=False to pull.")
    if head.max_records < 0 or head.max_bytes < 1 or head.wait_ms < 0:
        raise InvalidArgument(
            f"PULL with max_records {head.max_records}, max_bytes {head.max_bytes}, wait_ms "
            f"{head.wait_ms}; the second must be "
            "positive, the others not negative."
        )
