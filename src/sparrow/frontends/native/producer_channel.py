"""Producer channels: PUBLISH in, CONFIRM out. Work is done per batch, never per record, and no
publish has a task.

A batch goes to the broker as the view that came from the socket. When the broker has kept its
promise, a callback notes the confirmation; all confirmations of one iteration of the event loop
leave in one CONFIRM.

The window limits the unconfirmed bytes, with a fixed charge per batch on top, so that the number of
tiny batches is limited, too.

On a channel that publishes into a stage of a sink, each partition joins the transaction of the
stage before its first batch. Batches wait for that in order and within the window; all partitions
that wait at the same moment join together.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sparrow.base.errors import FrameTooLarge, InvalidArgument, RecordTooLarge
from sparrow.frontends.native.failures import failure_of, translate
from sparrow.protocol.native.messages import Closed, Confirm, Confirmation, ProducerOpened, Publish

if TYPE_CHECKING:
    import asyncio

    from sparrow.broker.publishes import Published
    from sparrow.broker.sinks.stage_publisher import StagePublisher
    from sparrow.frontends.native.context import SessionContext
    from sparrow.protocol.native.messages import OpenProducer

CHARGE_PER_BATCH_BYTES = 512
MAX_CONFIRMATIONS_PER_FRAME = 1000
NOT_IDEMPOTENT = -1
ACKS_ALL = -1


class ProducerChannel:
    """One producer of one connection."""

    __slots__ = (
        "_confirmations",
        "_is_closing",
        "_max_batch_bytes",
        "_number",
        "_session",
        "_stage",
        "_waiting",
        "unconfirmed_bytes",
    )

    def __init__(self, session: SessionContext, number: int) -> None:
        self._session = session
        self._number = number
        self._confirmations: list[Confirmation] = []
        self._max_batch_bytes = session.max_batch_bytes
        self._is_closing = False
        self._stage: StagePublisher | None = None
        self._waiting: dict[tuple[str, int], list[tuple[Publish, bytes]]] = {}
        """Batches whose partition has not yet joined the stage."""
        self.unconfirmed_bytes = 0
        """Kept by `SessionContext.charge`; 0: no batch is pending."""

    async def open(self, head: OpenProducer) -> ProducerOpened:
        """Return the identity to publish with.

        Raises:
            ProducerFenced, UnknownProducer: the requested identity cannot be used.
            StageExpired, NotAuthorized: the stage cannot be published into.
        """
        broker = self._session.broker
        window_bytes = self._session.limits.window_bytes
        if head.stage:
            self._stage = broker.sinks.publisher(head.stage, principal=self._session.principal)
            producer = self._stage.producer
            return ProducerOpened(producer.producer_id, producer.epoch, window_bytes)
        if not head.idempotent:
            return ProducerOpened(NOT_IDEMPOTENT, NOT_IDEMPOTENT, window_bytes)
        if head.producer_id >= 0:
            identity = broker.records.resume_producer(
                head.producer_id, head.producer_epoch, principal=self._session.principal
            )
        else:
            identity = await broker.records.open_producer(principal=self._session.principal)
        return ProducerOpened(identity.producer_id, identity.epoch, window_bytes)

    @property
    def is_settled(self) -> bool:
        """True if every batch is confirmed and the confirmation is sent."""
        return not self.unconfirmed_bytes and not self._confirmations

    def publish(self, head: Publish, batch: memoryview) -> None:
        """Pass a batch to the broker."""
        session = self._session
        size_bytes = len(batch)
        if size_bytes > self._max_batch_bytes:
            self._fail(head.ref, head.acks, self._too_large(size_bytes))
            return
        if self._stage is not None and not self._stage.has_joined((head.topic, head.partition)):
            self._wait_to_join(self._stage, head, batch)
            return
        try:
            future = (
                session.broker.records.publish(
                    head.topic, head.partition, batch, acks=head.acks, principal=session.principal
                )
                if self._stage is None
                else self._publish_staged(self._stage, head, batch)
            )
        except Exception as error:  # noqa: BLE001 - one batch fails, not the channel
            self._fail(head.ref, head.acks, error)
            return
        if session.throttle.quotas.has_limits:
            session.throttle.published(size_bytes)
        charge = size_bytes + CHARGE_PER_BATCH_BYTES
        session.charge(self, charge)
        if future.done():
            self._published(head.ref, head.acks, charge, future)
        else:
            future.add_done_callback(partial(self._published, head.ref, head.acks, charge))

    @staticmethod
    def _publish_staged(
        stage: StagePublisher, head: Publish, batch: bytes | memoryview
    ) -> asyncio.Future[Published]:
        _check_acks(head.acks)
        return stage.publish((head.topic, head.partition), batch)

    # ── join a stage ──────────────────────────────────────────────────────────────────────────────

    def _wait_to_join(self, stage: StagePublisher, head: Publish, batch: memoryview) -> None:
        """Store a copy of the batch until its partition has joined the stage."""
        key = (head.topic, head.partition)
        try:
            _check_acks(head.acks)
            stage.check(key)
        except Exception as error:  # noqa: BLE001 - one batch fails, not the channel
            self._fail(head.ref, head.acks, error)
            return
        if self._session.throttle.quotas.has_limits:
            self._session.throttle.published(len(batch))
        self._session.charge(self, len(batch) + CHARGE_PER_BATCH_BYTES)
        is_joining = bool(self._waiting)
        self._waiting.setdefault(key, []).append((head, bytes(batch)))
        if not is_joining:
            self._session.spawn(self._join(stage))

    async def _join(self, stage: StagePublisher) -> None:
        while self._waiting:
            keys = list(self._waiting)
            failure: Exception | None = None
            try:
                await stage.join(keys)
            except Exception as error:  # noqa: BLE001 - these batches fail, not the channel
                failure = error
            for key in keys:
                for head, batch in self._waiting.pop(key):
                    self._joined(stage, head, batch, failure)

    def _joined(self, stage: StagePublisher, head: Publish, batch: bytes, failure: Exception | None) -> None:
        charge = len(batch) + CHARGE_PER_BATCH_BYTES
        if failure is None:
            try:
                future = self._publish_staged(stage, head, batch)
                future.add_done_callback(partial(self._published, head.ref, head.acks, charge))
            except Exception as error:  # noqa: BLE001 - one batch fails, not the channel
                failure = error
        if failure is not None:
            self._session.charge(self, -charge)
            self._fail(head.ref, head.acks, failure)

    def close(self) -> None:
        """Close the channel; CLOSED follows the last confirmation."""
        self._is_closing = True
        self._session.confirm(self)

    def lost(self) -> None:
        """End the stage: the connection is lost, or an error ended the channel."""
        self._end_stage(is_complete=False)

    def _end_stage(self, *, is_complete: bool) -> None:
        if self._stage is not None:
            self._stage.end(is_complete=is_complete)

    def flush(self) -> None:
        """Send the pending confirmations, and CLOSED after the last."""
        confirmations = self._confirmations
        if confirmations:
            self._confirmations = []
            for start in range(0, len(confirmations), MAX_CONFIRMATIONS_PER_FRAME):
                self._send(confirmations[start : start + MAX_CONFIRMATIONS_PER_FRAME])
        if self._is_closing and not self.unconfirmed_bytes:
            self._is_closing = False
            self._end_stage(is_complete=True)
            self._session.forget(self._number)
            self._session.send(Closed(), self._number)

    def _send(self, confirmations: list[Confirmation]) -> None:
        """Send confirmations in one frame, or in several if the texts of failures exceed a small
        frame limit.
        """
        try:
            self._session.send(Confirm(confirmations), self._number)
        except FrameTooLarge:
            half = len(confirmations) // 2
            if not half:
                raise
            self._send(confirmations[:half])
            self._send(confirmations[half:])

    def _too_large(self, size_bytes: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"A batch of {size_bytes} bytes exceeds this listener's limit of {self._max_batch_bytes}; "
            "publish smaller batches."
        )

    def _published(self, ref: int, acks: int, charge: int, future: asyncio.Future[Published]) -> None:
        self._session.charge(self, -charge)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._fail(ref, acks, error)
        elif acks != 0:
            published = future.result()
            self._confirm(Confirmation(ref, published.base_offset, published.log_append_time_ms))
        elif self._is_closing:
            self._session.confirm(self)

    def _fail(self, ref: int, acks: int, error: BaseException) -> None:
        if not isinstance(error, Exception):
            raise error
        failure = translate(error, "PUBLISH", self._session.logger)
        if acks != 0:
            self._confirm(Confirmation(ref, -1, -1, failure_of(failure)))
        elif self._is_closing:
            self._session.confirm(self)

    def _confirm(self, confirmation: Confirmation) -> None:
        """Send a confirmation with others of this iteration of the event loop; at once if the
        client waits for no other.
        """
        is_last = not self.unconfirmed_bytes
        self._confirmations.append(confirmation)
        if len(self._confirmations) == 1:
            self._session.confirm(self, at_once=is_last)
        elif is_last:
            self._session.flush()


def _check_acks(acks: int) -> None:
    if acks != ACKS_ALL:
        raise InvalidArgument(
            f"acks {acks} is not possible in a stage, whose batches are confirmed on stable storage; "
            "publish with acks -1."
        )
