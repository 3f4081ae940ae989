"""A subscription to topics: whole batches are read from the log, and records sent within the
client's credit.

Without a group, the client says where to begin. In a group, the broker distributes the partitions
among the members and stores what they commit. The socket keeps the member alive: the member lives
as long as the socket is open, and its partitions go to others at once when it closes in any way. A
revoked partition is given up at once, too: what was not committed of it is delivered again to its
next owner.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import (
    CorruptBatch,
    InvalidArgument,
    OffsetOutOfRange,
    SparrowError,
    UnknownTopic,
    from_code,
)
from sparrow.broker.access.authz import Operation
from sparrow.broker.reading.positions import BEGINNING, StartPosition
from sparrow.broker.reading.subscription import DROPPED, Selector
from sparrow.frontends.batches import split_batches
from sparrow.frontends.http.positions import is_positions, parse_positions
from sparrow.frontends.http.render_cache import Form
from sparrow.frontends.http.sockets import server_frames
from sparrow.frontends.http.sockets.channel import MAX_FRAME_BYTES, Channel, CloseReason
from sparrow.frontends.http.sockets.client_frames import FOR_QUEUES, PartitionOffset
from sparrow.frontends.start_position import parse_start_position
from sparrow.frontends.transport.send_budget import BATCH_BYTES
from sparrow.records.readable import FAIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.reading.reader import ReadDelivery
    from sparrow.broker.reading.subscription import Subscription
    from sparrow.frontends.batches import PartitionBatch
    from sparrow.frontends.http.render_cache import RenderedBatch
    from sparrow.frontends.http.sockets.channel import SocketContext
    from sparrow.frontends.http.sockets.client_frames import Commit, Subscribe
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.records.topic_partition import TopicPartition

READ_BYTES: Final = 128 << 10
"""Bytes of batches that are read at once."""
MAX_RENDERED_BYTES: Final = 1 << 20
"""Compressed batches may become much larger: above this no further batch is rendered."""
SESSION_TIMEOUT_MS: Final = 45_000
HEARTBEAT_S: Final = 10.0
COMMITTED: Final = "committed"


class TopicChannel(Channel):
    """A subscription to topics; see the module's text. It is the broker's
    `SubscriptionListener`.
    """

    def __init__(self, session: SocketContext, frame: Subscribe) -> None:
        self._as_base64 = frame.encoding == "base64"
        self._on_corrupt = frame.on_corrupt
        self._subscription: Subscription | None = None
        self._positions: dict[TopicPartition, int] = {}
        """Next offset to read, by assigned partition."""
        self._epochs: dict[TopicPartition, int] = {}
        """Epoch of the assignment, by partition: records that were read in an earlier one are not
        sent.
        """
        self._lost: dict[TopicPartition, int] = {}
        """Offsets at which reading could not continue, by partition."""
        self._rendered_bytes = 0
        """Bytes of records rendered since the buffer was empty."""
        self._heartbeat: asyncio.TimerHandle | None = None
        self._commits = asyncio.Lock()
        super().__init__(session, frame)

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────

    async def begin(self, frame: Subscribe) -> bytes:
        session, broker = self.session, self.session.broker
        if frame.partition is not None and frame.topic is not None:
            await session.publisher.ensure(frame.topic, principal=session.principal)
            broker.topics.partition(
                frame.topic, frame.partition, operation=Operation.READ, principal=session.principal
            )
        self._subscription = await broker.records.subscribe(
            selectors_of(frame),
            listener=self,
            group=frame.group,
            client_name=session.client_name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            committed_only=frame.isolation == COMMITTED,
            principal=session.principal,
        )
        if frame.group:
            self._beat()
        member = self._subscription.member_id or None
        return server_frames.frame("subscribed", id=frame.id, subscription=self.name, member=member)

    async def finish(self, reason: CloseReason) -> None:  # noqa: ARG002 - a group's member leaves, whatever the reason
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()

    def _beat(self) -> None:
        if self._subscription is not None:
            self._subscription.heartbeat()
            self._heartbeat = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)

    def commit(self, frame: Commit) -> None:
        if self._subscription is None or not self._subscription.member_id:
            super().commit(frame)
        self.session.spawn(partial(self._commit, frame), frame)

    async def _commit(self, frame: Commit) -> bytes:
        offsets = {(each.topic, each.partition): (each.offset, each.metadata) for each in frame.offsets}
        async with self._commits:  # one after the other: the last one counts
            if self._subscription is not None:
                await self._subscription.commit(offsets)
        return server_frames.frame("committed", id=frame.id, subscription=self.name)

    # ── called by the broker: SubscriptionListener ────────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        fresh = [entry for entry in added if entry[:2] not in self._lost]
        for topic, partition, offset in added:
            self._positions[topic, partition] = offset
            lost_at = self._lost.pop((topic, partition), None)
            if lost_at is None:
                self._epochs[topic, partition] = epoch
            else:
                self._send_gap(topic, partition, lost_at, offset)
        if fresh:
            self.send(
                server_frames.frame(
                    "assigned", subscription=self.name, partitions=server_frames.offsets(fresh)
                )
            )

    def revoked(self, epoch: int, partitions: list[TopicPartition], reason: str) -> None:
        # reading continues elsewhere: `assigned` follows at once
        if reason == OffsetOutOfRange.code:
            self._lost.update((key, self._positions.pop(key, 0)) for key in partitions)
            return
        for key in partitions:
            self._positions.pop(key, None)
            self._epochs.pop(key, None)
        self.window.drop(partitions)
        self.send(
            server_frames.frame(
                "revoked",
                subscription=self.name,
                partitions=server_frames.partitions(partitions),
                error=self._why(reason, partitions),
            )
        )
        if not reason and self._subscription is not None:
            self._subscription.confirm_revoked(epoch, partitions)

    def _why(self, reason: str, partitions: Sequence[TopicPartition]) -> object:
        if reason in ("", DROPPED):
            return None
        names = ", ".join(sorted({topic for topic, _ in partitions}))
        text = (
            f"Topic {names!r} was deleted." if reason == UnknownTopic.code else f"{names!r} cannot be read."
        )
        return server_frames.problem(from_code(reason, text))

    def ended(self, error: SparrowError) -> None:
        self.fail(error)

    def _send_gap(self, topic: str, partition: int, lost_at: int, offset: int, reason: str = "") -> None:
        """Report a gap, with the members `from` and `to`, which cannot be keyword arguments in
        Python.
        """
        gap: dict[str, Any] = {"topic": topic, "partition": partition, "from": lost_at, "to": offset}
        if reason:
            gap["reason"] = reason
        self.send(server_frames.frame("gap", subscription=self.name, **gap))

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def send_all(self) -> None:
        while (subscription := self._subscription) is not None:
            # In this order: otherwise all that wait would read, although the first fills the
            # connection.
            await subscription.wait()
            await self.wait_for_room()
            with self.session.reserve() as reservation:
                await reservation.take(BATCH_BYTES, BATCH_BYTES)
                found = await subscription.read(READ_BYTES, max_records=self.window.credit, max_wait_ms=0)
                reservation.resize(sum(len(each.data) for each in found))
                for delivery, epoch in [(each, self._epoch_of(each)) for each in found]:
                    await self._hold(delivery, epoch, reservation)
            await self._send_buffered()
            # A read that finds data does not wait: let other tasks run.
            await asyncio.sleep(0)

    def _epoch_of(self, delivery: ReadDelivery) -> int | None:
        return self._epochs.get((delivery.topic, delivery.partition))

    async def _hold(self, delivery: ReadDelivery, epoch: int | None, reservation: Reservation) -> None:
        """Buffer the records of a delivery, unless the partition is revoked while they are
        rendered.
        """
        key = (delivery.topic, delivery.partition)
        if epoch is not None and self._epochs.get(key) == epoch:
            self._positions[key] = delivery.next_offset
        for batch in split_batches(*key, delivery.data):
            rendered = await self._maybe_rendered(batch, delivery.offset)
            if epoch is None or self._epochs.get(key) != epoch:
                return
            if rendered is None:
                continue
            pieces = rendered.since(delivery.offset).pieces
            self.window.hold(key, pieces)
            size_bytes = sum(map(len, pieces))
            self._rendered_bytes += size_bytes
            reservation.add(size_bytes)
            reservation.sent(size_bytes)
            if self._rendered_bytes > MAX_RENDERED_BYTES:
                await self._send_buffered()

    async def _maybe_rendered(self, batch: PartitionBatch, offset: int) -> RenderedBatch | None:
        """Return the rendered records of a batch; None if it cannot be read and is skipped.

        Raises:
            CorruptBatch: the batch cannot be read; everything before it was sent.
        """
        try:
            return await self.session.render_cache.batch(batch, form=Form.OBJECT, as_base64=self._as_base64)
        except CorruptBatch as error:
            corrupt_batches = self.session.broker.measures.corrupt_batches
            corrupt_batches.met("websocket", self._on_corrupt, error)
            await self._send_buffered()
            if self._on_corrupt == FAIL:
                raise
            first, end = max(offset, batch.header.base_offset), batch.header.next_offset
            self._send_gap(batch.topic, batch.partition, first, end, error.code)
            return None

    async def _send_buffered(self) -> None:
        while len(self.window):
            await self.wait_for_room()
            taken = self.window.take(MAX_FRAME_BYTES)
            if taken:
                await self.send_records(taken)
        self._rendered_bytes = 0


def selectors_of(frame: Subscribe) -> list[Selector]:
    """Return the selectors of a subscribe frame.

    Raises:
        InvalidArgument: it names nothing, or two things at once.
    """
    given = frame.given(("topic", "topics", "pattern", *FOR_QUEUES))
    if len(given) != 1 or given[0] in FOR_QUEUES:
        raise InvalidArgument(
            f"subscribe names {' and '.join(given) or 'nothing'}; give one of topic, topics, "
            "pattern, or else a queue"
        )
    if frame.partition is not None and (frame.topic is None or frame.group):
        raise InvalidArgument("partition needs a topic and no group, which assigns partitions itself")
    start, named = _start(frame)
    partitions = None if frame.partition is None else frozenset((frame.partition,))
    if frame.pattern:
        return [Selector(frame.pattern, is_pattern=True, start=start)]
    return [_selector(topic, start, named, partitions) for topic in frame.topics or [frame.topic or ""]]


def _start(frame: Subscribe) -> tuple[StartPosition, Sequence[PartitionOffset]]:
    """Return the start position, and the offsets of partitions that begin elsewhere."""
    text = str(frame.start)
    if not is_positions(text):
        return parse_start_position(text), frame.positions
    if frame.topic is None or frame.positions:
        raise InvalidArgument(
            "from with positions of partitions needs exactly one topic, and no positions beside it"
        )
    named = [
        PartitionOffset(frame.topic, partition, offset) for partition, offset in parse_positions(text).items()
    ]
    return StartPosition(BEGINNING), named


def _selector(
    topic: str, start: StartPosition, positions: Sequence[PartitionOffset], partitions: frozenset[int] | None
) -> Selector:
    offsets = {each.partition: each.offset for each in positions if each.topic == topic}
    return Selector(topic, start=start, offsets=offsets, partitions=partitions)
