"""Queue channels: credit, leases and settlements in, LEASED and SETTLED out.

One task per pushing channel, as with subscriptions: it leases while the channel has credit and the connection takes data, so nothing is
leased for a client that does not take it. A LEASE is a task for its time. Settlements are in `settling.py`.

What a consumer holds is given back only when the client says that it is done: by CLOSE, or by a goodbye that is not the answer to the
broker's. Else, when the connection is lost or the broker ends the channel, leases run until their time: the client may still be at work
and come back with the same consumer id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import FrameTooLarge, InvalidArgument, RecordTooLarge, SparrowError, Unavailable
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.frontends.native.failures import translate
from sparrow.frontends.native.lease_frames import send_leased
from sparrow.frontends.native.parting import Parting
from sparrow.frontends.native.settling import Settling
from sparrow.frontends.native.work import WorkQueue
from sparrow.protocol.native import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.frontends.native.session import Session
    from sparrow.protocol.native.frames import Buffer

PUSHED: Final = -1
MAX_WAIT_MS: Final = 3_600_000
MAX_RECORDS_AT_ONCE: Final = 100_000
"""Of one lease of a push; the next follows."""
MAX_CREDIT: Final = 1 << 62
FAILURES_WITH_TEXT: Final = 100
RETRY_S: Final = 0.5
"""How soon a lease is tried again that could not be kept."""


class QueueChannel:
    """One consumer of one connection."""

    __slots__ = (
        "_consumer",
        "_credit",
        "_is_draining",
        "_is_over",
        "_is_push",
        "_leasing",
        "_max_deliver_bytes",
        "_number",
        "_pulling",
        "_session",
        "_settling",
        "_waker",
        "work",
    )

    def __init__(self, session: Session, number: int, head: m.OpenQueue) -> None:
        self._session = session
        self._number = number
        self._is_push = head.push
        self._credit = head.credit
        self._max_deliver_bytes = min(head.max_deliver_bytes, session.max_deliver_bytes)
        self._consumer: QueueConsumer | None = None
        self._settling: Settling | None = None
        self._leasing: asyncio.Task[None] | None = None
        self._pulling: m.Lease | None = None
        self._waker: asyncio.Future[None] | None = None
        self._is_over = False
        self._is_draining = False
        self.work = WorkQueue(1, session.may_work, session.work_changed)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self, head: m.OpenQueue) -> m.QueueOpened:
        """Become a consumer. `start` or LEASE comes after QUEUE_OPENED was sent."""
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
        self._settling = Settling(
            consumer, self._answer_settle, session.settling_changed, self._end, session.logger
        )
        return m.QueueOpened(consumer.id, consumer.lease_ms, consumer.prefetch, consumer.subscriber)

    def start(self) -> None:
        """Lease whenever there is credit; nothing on a channel that does not push."""
        if self._is_push and not self._is_over and not self._is_draining:
            self._leasing = asyncio.get_running_loop().create_task(self._push())

    def drain(self) -> None:
        """Lease nothing any more; what is held can still be settled."""
        self._is_draining = True
        self._stop_leasing()
        unanswered, self._pulling = self._pulling, None
        if unanswered is not None:
            self._tell(m.LeaseDone(unanswered.ref))

    def stop(self) -> None:
        """From here on nothing is sent on the channel; `close` is still to come."""
        self._is_over = True
        self.work.cancel()
        self._stop_leasing()

    async def close(self, parting: Parting) -> None:
        """Stop; the settlements that came before still hold."""
        if parting is Parting.LEFT:
            self._stop_leasing()
        else:
            self.stop()
        if self._leasing is not None:
            await asyncio.wait([self._leasing])  # it undoes what it has not sent
        if self._settling is not None:
            await self._settling.finished()
        self._is_over = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.ended = None
            await consumer.close(give_back=parting is Parting.LEFT)

    def heartbeat(self) -> None:
        """The client is alive; leases have their own time."""

    def is_silent_too_long(self, idle_timeout_ms: int) -> bool:  # noqa: ARG002 - leases have their own time
        """Whether a client that was silent for so long loses its place."""
        return False

    def wake(self) -> None:
        """Credit came, or the connection takes data again."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""
        return self.work.is_idle and (self._settling is None or self._settling.is_idle)

    def _stop_leasing(self) -> None:
        if self._leasing is not None and self._leasing is not asyncio.current_task():
            self._leasing.cancel()

    def _end(self, error: SparrowError) -> None:
        if not self._is_over:
            self._session.end_channel(self._number, error)

    def _tell(self, head: m.Head) -> None:
        if not self._is_over:
            self._session.send(head, self._number)
            self._session.flush_soon()

    # ── what the client sends ─────────────────────────────────────────────────────────────────────

    def take(self, head: m.Head) -> None:
        """A frame of the client.

        Raises:
            InvalidArgument: it makes no sense; the channel ends.
        """
        _TAKERS[type(head)](self, head)

    def on_settle(self, head: m.Settle) -> None:
        if self._settling is not None:
            self._settling.add(head)

    def _answer_settle(self, ref: int, failures: list[m.SettleFailure]) -> None:
        try:
            self._tell(m.Settled(ref, failures))
        except FrameTooLarge:  # of thousands of failures a few texts will do
            short = [m.SettleFailure(f.settlement, f.range, f.code, "", f.retriable) for f in failures]
            try:
                self._tell(m.Settled(ref, failures[:FAILURES_WITH_TEXT] + short[FAILURES_WITH_TEXT:]))
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
            self._tell(m.LeaseDone(head.ref))
            return
        self._pulling = head
        self._leasing = asyncio.get_running_loop().create_task(self._answer_lease(head))

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def _push(self) -> None:
        try:
            while (consumer := self._consumer) is not None and not self._is_over:
                # In this order: else all channels that wait would lease, although the first fills the connection.
                await consumer.wait(MAX_WAIT_MS)
                if self._credit <= 0 or not self._session.may_deliver():
                    consumer.pass_on()
                await self._wait_for_room(needs_credit=True)
                limit = min(self._credit, MAX_RECORDS_AT_ONCE)
                leased = await self._lease(consumer, limit, self._max_deliver_bytes)
                self._credit -= self._deliver(leased, PUSHED)
                # A lease that finds records may not have waited: let the others have their turn.
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "leasing", self._session.logger))

    async def _answer_lease(self, head: m.Lease) -> None:
        consumer = self._consumer
        assert consumer is not None  # the channel is open
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(head.wait_ms, MAX_WAIT_MS) / 1000
        wanted_bytes = min(head.max_bytes, self._session.max_deliver_bytes)
        try:
            while True:
                await self._wait_for_room(needs_credit=False)
                leased = await self._lease(consumer, head.max_records, wanted_bytes)
                left_s = deadline - loop.time()
                if leased or left_s <= 0:
                    break
                await consumer.wait(round(left_s * 1000) or 1)
                if not self._session.may_deliver():
                    consumer.pass_on()
            self._pulling = None
            self._tell(m.LeaseDone(head.ref, self._deliver(leased, head.ref)))
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            self._end(translate(error, "LEASE", self._session.logger))

    async def _lease(self, consumer: QueueConsumer, limit: int, wanted_bytes: int) -> list[Leased]:
        """What can be leased now; nothing, after a while, when it cannot be kept."""
        max_bytes = max(1, self._session.max_delivery_bytes(wanted_bytes))
        try:
            return await consumer.lease(limit, max_bytes=max_bytes)
        except Unavailable as error:
            if not error.retriable:
                raise
            await asyncio.sleep(RETRY_S)
            return []

    async def _wait_for_room(self, *, needs_credit: bool) -> None:
        await self._session.wait_to_deliver()
        while not self._session.can_write or (needs_credit and self._credit <= 0):
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker

    def _deliver(self, leased: Sequence[Leased], ref: int) -> int:
        """Send what was leased; how many records were sent."""
        records = size_bytes = 0
        for each in leased:
            unsent = send_leased(each, ref, self._send)
            records += each.records
            size_bytes += len(each.data)
            if unsent:
                records -= sum(last - first + 1 for first, last in unsent)
                self._refuse(each, unsent)
        self._session.count_delivered(size_bytes)
        self._session.flush_deliveries(size_bytes)
        return records

    def _send(self, head: m.Leased, data: Buffer) -> None:
        self._session.send(head, self._number, data)

    def _refuse(self, leased: Leased, unsent: Sequence[tuple[int, int]]) -> None:
        """What this door cannot deliver counts as a delivery that failed: it ends in the dead letters, and holds up nobody."""
        assert self._consumer is not None
        error = RecordTooLarge(
            f"The record's batch in {leased.topic!r}-{leased.partition} is over the frame limit of the native door; raise the "
            "broker's max_frame_bytes, or consume it through another door."
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
        ).add_done_callback(_look)


_TAKERS: Final[dict[type[m.Head], Callable[[QueueChannel, Any], None]]] = {
    m.Settle: QueueChannel.on_settle,
    m.QueueCredit: QueueChannel.on_credit,
    m.Lease: QueueChannel.on_lease,
}


def _look(answer: asyncio.Future[list[SparrowError | None]]) -> None:
    """Nobody waits for it: its lease ends if it was not kept."""
    if not answer.cancelled():
        answer.exception()


def _check_open(head: m.OpenQueue) -> None:
    if head.credit < 0 or head.max_deliver_bytes < 1 or head.prefetch < 0:
        raise InvalidArgument(
            f"OPEN_QUEUE with credit {head.credit}, prefetch {head.prefetch} and max_deliver_bytes {head.max_deliver_bytes}; the "
            "first two must not be negative, the last must be positive."
        )


def _check_lease(head: m.Lease, *, is_push: bool) -> None:
    if is_push:
        raise InvalidArgument("LEASE on a channel that pushes; open the queue with push=False to lease.")
    if head.max_records < 1 or head.max_bytes < 1 or head.wait_ms < 0:
        raise InvalidArgument(
            f"LEASE with max_records {head.max_records}, max_bytes {head.max_bytes}, wait_ms {head.wait_ms}; the first two must be "
            "positive, the third not negative."
        )
