"""Subscription channels: credit and pulls in, DELIVER out.

One task per pushing channel. It delivers while the channel has credit and the connection takes data, one read per turn of the
loop, so that the channels of a connection take turns and a slow consumer stalls only itself. A pull is a task for its time.

What `Subscription.read` returned is sent before anything else is awaited: only then are the partitions surely still ours.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import FrameTooLarge, InvalidArgument, RecordTooLarge, SparrowError
from sparrow.broker.positions import Start
from sparrow.broker.subscription import Selector
from sparrow.frontends.native.failures import translate
from sparrow.frontends.native.isolation import READ_COMMITTED, check_isolation
from sparrow.frontends.native.parting import Parting
from sparrow.frontends.native.work import WorkQueue
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

    from sparrow.broker.reader import Delivery
    from sparrow.broker.subscription import Subscription
    from sparrow.frontends.native.session import Session
    from sparrow.protocol.native import messages

PUSHED = -1
MAX_WAIT_MS = 3_600_000
MAX_CREDIT_BYTES = 1 << 62


class SubscriptionChannel:
    """One subscription of one connection; the broker's `SubscriptionListener`."""

    __slots__ = (
        "_credit_bytes",
        "_is_over",
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

    def __init__(self, session: Session, number: int, head: Subscribe) -> None:
        self._session = session
        self._number = number
        self._is_push = head.push
        self._credit_bytes = head.credit_bytes
        self._max_deliver_bytes = min(head.max_deliver_bytes, session.max_deliver_bytes)
        self._subscription: Subscription | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waker: asyncio.Future[None] | None = None
        self._is_over = False
        self._session_timeout_ms = head.session_timeout_ms
        self.work = WorkQueue(1, session.may_work, session.work_changed)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self, head: Subscribe) -> Subscribed:
        """Subscribe at the broker. `start` or PULL comes after SUBSCRIBED was sent."""
        _check_subscribe(head)
        session = self._session
        self._subscription = await session.broker.subscribe(
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
        """Deliver whenever there is credit; nothing on a pulling channel."""
        if self._is_push and not self._is_over:
            self._reading = asyncio.get_running_loop().create_task(self._push())

    async def close(self, parting: Parting) -> None:
        """Stop; a lost connection keeps a group's membership for a reconnect."""
        self.stop()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close(leave=parting is not Parting.LOST)

    def drain(self) -> None:
        """What is there is still delivered: the client says when it goes."""

    def heartbeat(self) -> None:
        """The client is alive."""
        if self._subscription is not None:
            self._subscription.heartbeat()

    def is_silent_too_long(self, idle_timeout_ms: int) -> bool:
        """Whether a silence of so long is longer than the group waits for a member; it is put out."""
        return self._session_timeout_ms <= idle_timeout_ms

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""
        return self.work.is_idle

    def wake(self) -> None:
        """Credit came, or the connection takes data again."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def stop(self) -> None:
        """From here on nothing is sent on the channel; `close` is still to come."""
        self._is_over = True
        self.work.cancel()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    # ── what the client sends ─────────────────────────────────────────────────────────────────────

    def take(self, head: messages.Head) -> None:
        """A frame of the client.

        Raises:
            InvalidArgument: it makes no sense; the channel ends.
        """
        _TAKERS[type(head)](self, head)

    def on_credit(self, head: Credit) -> None:
        """More may be delivered."""
        if head.bytes < 0:
            raise InvalidArgument(
                f"CREDIT of {head.bytes} bytes: credit is only added; send a positive number."
            )
        self._credit_bytes = min(self._credit_bytes + head.bytes, MAX_CREDIT_BYTES)
        self.wake()

    def on_pull(self, head: Pull) -> None:
        """Answer with what comes within the wait."""
        _check_pull(head, is_push=self._is_push)
        if self._reading is not None and not self._reading.done():
            raise InvalidArgument("PULL while another is unanswered; wait for its PULLED first.")
        self._reading = asyncio.get_running_loop().create_task(self._answer_pull(head))

    def on_revoked(self, head: Revoked) -> None:
        """The client is done with what it lost; in its turn behind the commits before it."""
        self.work.add(lambda: self._confirm_revoked(head))

    async def _confirm_revoked(self, head: Revoked) -> None:
        if self._subscription is not None:
            try:
                self._subscription.confirm_revoked(head.epoch, head.partitions)
            except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
                self._end(translate(error, "REVOKED", self._session.logger))

    def on_commit(self, head: Commit) -> None:
        self.work.add(lambda: self._session.answer(head.ref, self._number, self._commit(head)))

    async def _commit(self, head: Commit) -> None:
        """Durable when it returns."""
        offsets = {(o.topic, o.partition): (o.offset, o.metadata) for o in head.offsets}
        if self._subscription is not None:
            await self._subscription.commit(offsets)

    def on_update(self, head: Update) -> None:
        self.work.add(lambda: self._session.answer(head.ref, self._number, self._update(head)))

    async def _update(self, head: Update) -> None:
        """Add and drop selectors."""
        _check_selectors(head.add)
        if self._subscription is not None:
            await self._subscription.update([_selector(s) for s in head.add], head.drop)

    # ── what the broker tells: SubscriptionListener ───────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        self._tell(Assigned(epoch, [PartitionAt(*entry) for entry in added]))

    def revoked(self, epoch: int, partitions: list[tuple[str, int]], reason: str) -> None:
        self._tell(Revoke(epoch, partitions, reason))

    def ended(self, error: SparrowError) -> None:
        self._end(error)

    def _tell(self, head: messages.Head) -> None:
        if not self._is_over:
            self._session.send(head, self._number)
            self._session.flush_soon()

    def _end(self, error: SparrowError) -> None:
        if not self._is_over:
            self._session.end_channel(self._number, error)

    # ── delivering ────────────────────────────────────────────────────────────────────────────────

    async def _push(self) -> None:
        try:
            while not self._is_over and self._subscription is not None:
                # In this order: else all channels that wait would read, although the first fills the connection.
                await self._subscription.wait()
                await self._wait_for_room(needs_credit=True)
                await self._deliver_some()
                # A read that finds data does not wait: let the others have their turn.
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "delivering", self._session.logger))

    async def _deliver_some(self) -> None:
        subscription = self._subscription
        if subscription is None:
            return
        max_bytes = self._session.max_delivery_bytes(min(self._max_deliver_bytes, self._credit_bytes))
        deliveries = await subscription.read(max_bytes, max_wait_ms=0)
        for delivery in deliveries:
            self._deliver(delivery, PUSHED)
            self._credit_bytes -= len(delivery.data)
        size_bytes = _size_of(deliveries)
        self._session.count_delivered(size_bytes)
        self._session.flush_deliveries(size_bytes)

    async def _answer_pull(self, head: Pull) -> None:
        try:
            await self._wait_for_room(needs_credit=False)
            if self._subscription is None:
                return
            deliveries = await self._subscription.read(
                self._session.max_delivery_bytes(min(head.max_bytes, self._session.max_deliver_bytes)),
                max_records=head.max_records,
                max_wait_ms=min(head.wait_ms, MAX_WAIT_MS),
            )
            for delivery in deliveries:
                self._deliver(delivery, head.ref)
            size_bytes = _size_of(deliveries)
            self._session.count_delivered(size_bytes)
            self._tell(Pulled(head.ref, sum(d.records for d in deliveries), size_bytes))
            self._session.flush_deliveries(size_bytes)
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "PULL", self._session.logger))

    async def _wait_for_room(self, *, needs_credit: bool) -> None:
        await self._session.wait_to_deliver()
        while not self._session.can_write or (needs_credit and self._credit_bytes <= 0):
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker

    def _deliver(self, delivery: Delivery, ref: int) -> None:
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
                f"A batch of {len(delivery.data)} bytes at offset {delivery.offset} of {delivery.topic!r}-{delivery.partition} "
                "is over the frame limit of this door; raise the broker's max_frame_bytes, or begin behind it."
            ) from None


_TAKERS: Final[dict[type[messages.Head], Callable[[SubscriptionChannel, Any], None]]] = {
    Credit: SubscriptionChannel.on_credit,
    Pull: SubscriptionChannel.on_pull,
    Revoked: SubscriptionChannel.on_revoked,
    Commit: SubscriptionChannel.on_commit,
    Update: SubscriptionChannel.on_update,
}


def _size_of(deliveries: Sequence[Delivery]) -> int:
    return sum(len(delivery.data) for delivery in deliveries)


def _selector(selector: messages.Selector) -> Selector:
    return Selector(
        selector.topic, selector.is_pattern, Start(selector.start.at, selector.start.value), selector.offsets
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
            f"SUBSCRIBE with credit_bytes {head.credit_bytes} and max_deliver_bytes {head.max_deliver_bytes}; the first must not "
            "be negative, the second must be positive."
        )
    check_isolation(head.isolation)


def _check_pull(head: Pull, *, is_push: bool) -> None:
    if is_push:
        raise InvalidArgument("PULL on a channel that pushes; subscribe with push=False to pull.")
    if head.max_records < 0 or head.max_bytes < 1 or head.wait_ms < 0:
        raise InvalidArgument(
            f"PULL with max_records {head.max_records}, max_bytes {head.max_bytes}, wait_ms {head.wait_ms}; the second must be "
            "positive, the others not negative."
        )
