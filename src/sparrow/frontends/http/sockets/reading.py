"""A subscription to topics: whole batches from the log, records to the client, as many as it gave credit for.

Alone, the client says where it begins. In a group the broker shares the partitions out among the members, and keeps what they commit. The socket is the member's sign of life:
as long as it is open the member lives, and when it is gone, in whatever way, its partitions go to others at once. A partition that is taken away is given up at once, too: what
was not committed of it comes again, to whoever has it then.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument, OffsetOutOfRange, SparrowError, UnknownTopic, from_code
from sparrow.broker.access.authz import Operation
from sparrow.broker.positions import BEGINNING, Start
from sparrow.broker.subscription import DROPPED, Selector
from sparrow.frontends.http.places import parse_place
from sparrow.frontends.http.positions import is_positions, parse_positions
from sparrow.frontends.http.rendering import Form
from sparrow.frontends.http.sockets import answers
from sparrow.frontends.http.sockets.channel import MAX_FRAME_BYTES, Channel, Parting
from sparrow.frontends.http.sockets.messages import FOR_QUEUES, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.reader import Delivery
    from sparrow.broker.subscription import Subscription
    from sparrow.frontends.http.sockets.messages import Commit, Subscribe
    from sparrow.frontends.http.sockets.session import Session
    from sparrow.frontends.http.sockets.window import Key

READ_BYTES: Final = 128 << 10
"""Of batches, at once."""
MAX_HELD_BYTES: Final = 1 << 20
"""What was compressed may be much more than was read: no further batch is made into records above this."""
SESSION_TIMEOUT_MS: Final = 45_000
HEARTBEAT_S: Final = 10.0
COMMITTED: Final = "committed"


class Reading(Channel):
    """See the module's text; the broker's `SubscriptionListener`."""

    def __init__(self, session: Session, frame: Subscribe) -> None:
        self._as_base64 = frame.encoding == "base64"
        self._subscription: Subscription | None = None
        self._positions: dict[Key, int] = {}
        """Partitions that it reads, each with the next offset to read."""
        self._epochs: dict[Key, int] = {}
        """The epoch at which it got each: what was read in an earlier one is not sent any more."""
        self._lost: dict[Key, int] = {}
        """Partitions that could not be read on at these offsets."""
        self._held_bytes = 0
        """Of records that were read since nothing was held."""
        self._heartbeat: asyncio.TimerHandle | None = None
        self._commits = asyncio.Lock()
        super().__init__(session, frame)

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    async def begin(self, frame: Subscribe) -> bytes:
        session, broker = self.session, self.session.broker
        if frame.partition is not None and frame.topic is not None:
            await session.publisher.ensure(frame.topic, principal=session.principal)
            broker.partition(
                frame.topic, frame.partition, operation=Operation.READ, principal=session.principal
            )
        self._subscription = await broker.subscribe(
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
        return answers.answer("subscribed", id=frame.id, subscription=self.name, member=member)

    async def finish(self, parting: Parting) -> None:  # noqa: ARG002 - a group's member leaves, whatever the reason
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
        return answers.answer("committed", id=frame.id, subscription=self.name)

    # ── what the broker tells: SubscriptionListener ───────────────────────────────────────────────

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        fresh = [entry for entry in added if entry[:2] not in self._lost]
        for topic, partition, offset in added:
            self._positions[topic, partition] = offset
            lost_at = self._lost.pop((topic, partition), None)
            if lost_at is None:
                self._epochs[topic, partition] = epoch
            else:
                self._tell_gap(topic, partition, lost_at, offset)
        if fresh:
            self.tell(answers.answer("assigned", subscription=self.name, partitions=answers.places(fresh)))

    def revoked(self, epoch: int, partitions: list[Key], reason: str) -> None:
        if reason == OffsetOutOfRange.code:  # it goes on elsewhere: `assigned` follows at once
            self._lost.update((key, self._positions.pop(key, 0)) for key in partitions)
            return
        for key in partitions:
            self._positions.pop(key, None)
            self._epochs.pop(key, None)
        self.window.drop(partitions)
        self.tell(
            answers.answer(
                "revoked",
                subscription=self.name,
                partitions=answers.partitions(partitions),
                error=self._why(reason, partitions),
            )
        )
        if not reason and self._subscription is not None:
            self._subscription.confirm_revoked(epoch, partitions)

    def _why(self, reason: str, partitions: Sequence[Key]) -> object:
        if reason in ("", DROPPED):
            return None
        names = ", ".join(sorted({topic for topic, _ in partitions}))
        text = (
            f"Topic {names!r} was deleted." if reason == UnknownTopic.code else f"{names!r} cannot be read."
        )
        return answers.problem(from_code(reason, text))

    def ended(self, error: SparrowError) -> None:
        self.fail(error)

    def _tell_gap(self, topic: str, partition: int, lost_at: int, offset: int) -> None:
        """As `from` and `to`, which are no names in Python."""
        gap: dict[str, Any] = {"topic": topic, "partition": partition, "from": lost_at, "to": offset}
        self.tell(answers.answer("gap", subscription=self.name, **gap))

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def send_all(self) -> None:
        while (subscription := self._subscription) is not None:
            # In this order: else all that wait would read, although the first fills the connection.
            await subscription.wait()
            await self.wait_for_room()
            found = await subscription.read(READ_BYTES, max_records=self.window.credit, max_wait_ms=0)
            for delivery, epoch in [(each, self._epoch_of(each)) for each in found]:
                await self._hold(delivery, epoch)
            await self._send_held()
            # A read that finds data does not wait: let the others have their turn.
            await asyncio.sleep(0)

    def _epoch_of(self, delivery: Delivery) -> int | None:
        return self._epochs.get((delivery.topic, delivery.partition))

    async def _hold(self, delivery: Delivery, epoch: int | None) -> None:
        """Keep the records of a delivery until there is credit, unless the partition is lost while they are rendered."""
        key = (delivery.topic, delivery.partition)
        if epoch is not None and self._epochs.get(key) == epoch:
            self._positions[key] = delivery.next_offset
        rendered = self.session.renderings.of(
            *key, delivery.data, form=Form.OBJECT, as_base64=self._as_base64
        )
        async for batch in rendered:
            if epoch is None or self._epochs.get(key) != epoch:
                return
            pieces = batch.since(delivery.offset).pieces
            self.window.hold(key, pieces)
            self._held_bytes += sum(map(len, pieces))
            if self._held_bytes > MAX_HELD_BYTES:
                await self._send_held()

    async def _send_held(self) -> None:
        while len(self.window):
            await self.wait_for_room()
            taken = self.window.take(MAX_FRAME_BYTES)
            if taken:
                await self.send_records(taken)
        self._held_bytes = 0


def selectors_of(frame: Subscribe) -> list[Selector]:
    """What a frame subscribes to.

    Raises:
        InvalidArgument: nothing, or two things at once.
    """
    given = frame.given(("topic", "topics", "pattern", *FOR_QUEUES))
    if len(given) != 1 or given[0] in FOR_QUEUES:
        raise InvalidArgument(
            f"subscribe names {' and '.join(given) or 'nothing'}; give one of topic, topics, pattern, or else a queue"
        )
    if frame.partition is not None and (frame.topic is None or frame.group):
        raise InvalidArgument("partition goes with a topic, and not with a group, which shares them out")
    start, named = _start(frame)
    partitions = None if frame.partition is None else frozenset((frame.partition,))
    if frame.pattern:
        return [Selector(frame.pattern, is_pattern=True, start=start)]
    return [_selector(topic, start, named, partitions) for topic in frame.topics or [frame.topic or ""]]


def _start(frame: Subscribe) -> tuple[Start, Sequence[Place]]:
    """Where to begin, and the offsets of partitions that begin elsewhere."""
    text = str(frame.start)
    if not is_positions(text):
        return parse_place(text), frame.positions
    if frame.topic is None or frame.positions:
        raise InvalidArgument("from with positions of partitions goes with one topic, and without positions")
    named = [Place(frame.topic, partition, offset) for partition, offset in parse_positions(text).items()]
    return Start(BEGINNING), named


def _selector(
    topic: str, start: Start, positions: Sequence[Place], partitions: frozenset[int] | None
) -> Selector:
    offsets = {each.partition: each.offset for each in positions if each.topic == topic}
    return Selector(topic, start=start, offsets=offsets, partitions=partitions)
