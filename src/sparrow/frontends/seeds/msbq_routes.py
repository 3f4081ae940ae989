"""What a queue of msbq has for its streams: leased as long as somebody takes it, handed out, acknowledged when the peer's socket took it.

One consumer of the Sparrow queue stands for all streams that are registered for it, on whatever connections. P2P: each message goes to one stream, in turns among
those whose connections take what we send. PUBSUB: each goes to every stream that is registered when it is handed out. The protocol has no
acknowledgement, so the operating system's stands for it: a message is done when the socket took its last byte, given back without being
counted when the connection ends before, and its lease goes on in between.

What waits in this process for slow sockets is bounded for each queue and for the port: beyond that nothing more is leased. So one stream of a PUBSUB queue that
does not read holds the others up, until its connection is ended for that (`Session`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded, SparrowError, Unavailable
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.frontends.leased_records import read_leased
from sparrow.protocol.seeds.msbq import PUBSUB, MessageFrames, quoted, quoted_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.frontends.seeds.msbq import MsbqPort, Session
    from sparrow.records.record import Record

TYPE_HEADER: Final = "msbq-type"
"""The Type that a message was published with."""
LEASE_RECORDS: Final = 512
LEASE_BYTES: Final = 256 << 10
LEASE_WAIT_MS: Final = 60_000
UNTAKEN_BYTES: Final = 1 << 20
"""Of one queue: so much may wait for slow sockets before nothing more is leased."""
PORT_UNTAKEN_BYTES: Final = 64 << 20
"""The same of all queues together."""
RETRY_S: Final = 1.0
"""How long until a queue is asked again that could not be read."""
_SETTLE_RETRY_S: Final = 0.05

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Member:
    """A stream that is registered for a queue."""

    __slots__ = ("frames", "session", "stream")

    def __init__(self, session: Session, stream: str, route: str) -> None:
        self.session = session
        self.stream = stream
        self.frames = MessageFrames(route, stream)


class Handout:
    """Messages that were written to sockets and not taken by all of them yet."""

    __slots__ = ("_is_taken", "_waiting", "leased_s", "places", "route")

    def __init__(self, route: Route, places: Sequence[Place], sessions: int, leased_s: float) -> None:
        self.route = route
        self.places = places
        self.leased_s = leased_s
        """When their lease began, on the loop's clock."""
        self._waiting = sessions
        self._is_taken = False

    def taken(self) -> None:
        """One of the sockets took all of them."""
        self._is_taken = True
        self._one_less()

    def lost(self) -> None:
        """One of the connections ended before."""
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self.route.settle(Verb.ACK if self._is_taken else Verb.RETURN, self.places)


class Route:
    """A queue with registered streams. Loop thread only.

    Args:
        name: as the client wrote it; `queue` is the Sparrow queue of it.
        vanishes: whether it is deleted with the last stream.
    """

    def __init__(
        self, port: MsbqPort, name: str, kind: str, *, consumer: QueueConsumer, vanishes: bool
    ) -> None:
        self.port = port
        self.name = name
        self.kind = kind
        self.vanishes = vanishes
        self.untaken_bytes = 0
        self.members: dict[tuple[Session, str], Member] = {}
        self._consumer = consumer
        self._quoted_kind = quoted(kind)
        self._turn = 0
        self._changed = asyncio.Event()
        self._settlements: list[tuple[Verb, Place]] = []
        self._flushing: asyncio.Handle | None = None
        self._settling: set[asyncio.Future[list[SparrowError | None]]] = set()
        self._running: asyncio.Task[None] | None = None

    @property
    def queue(self) -> str:
        return self._consumer.queue_name

    # ── streams come and go ───────────────────────────────────────────────────────────────────────

    def add(self, session: Session, stream: str) -> None:
        """Register a stream; once more is nothing."""
        self.members.setdefault((session, stream), Member(session, stream, self.name))
        self.wake()

    def remove(self, session: Session, stream: str) -> None:
        """The stream is gone."""
        self.members.pop((session, stream), None)
        self.wake()

    def waits(self, size_bytes: int) -> None:
        """So much more waits for sockets, or less."""
        self.untaken_bytes += size_bytes
        self.port.waits(size_bytes)
        if size_bytes < 0:
            self.wake()

    def wake(self) -> None:
        """Look again whether there is room."""
        self._changed.set()

    # ── handing out ───────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            await self._until(self._has_room)
            try:
                leases = await self._consumer.lease(
                    LEASE_RECORDS, max_bytes=LEASE_BYTES, wait_ms=LEASE_WAIT_MS
                )
                for lease in leases:
                    await self._hand_out(lease)
            except Unavailable as error:
                self._warn("its messages wait", error)
                await asyncio.sleep(RETRY_S)
            except SparrowError as error:
                self.port.route_ended(self, error)
                return

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Until the streams, or the room, are so."""
        while not is_so():
            self._changed.clear()
            self.port.waiting.add(self)
            await self._changed.wait()
        self.port.waiting.discard(self)

    def _has_room(self) -> bool:
        if not self._port_has_room():
            return False
        if self.kind == PUBSUB:
            return bool(self.members) and self.untaken_bytes < UNTAKEN_BYTES
        return any(member.session.has_room for member in self.members.values())

    def _port_has_room(self) -> bool:
        return self.port.untaken_bytes <= PORT_UNTAKEN_BYTES

    async def _hand_out(self, lease: Leased) -> None:
        leased_s = self.port.loop.time()
        try:
            handed, missing = await read_leased(lease)
        except SparrowError as error:
            self._reject(lease, error)
            return
        self._send([Settlement(Verb.ACK, lease.topic, lease.partition, *each[:2]) for each in missing])
        records = [each.record for each in handed]
        if self.kind == PUBSUB:
            await self._to_all(records, leased_s)
        else:
            self._in_turns(records, leased_s)

    def _in_turns(self, records: Sequence[Record], leased_s: float) -> None:
        members = list(self.members.values())
        members = [member for member in members if member.session.has_room] or members
        if not members:
            self.settle(Verb.RETURN, _places(records))
            return
        count = len(members)
        for index in range(min(count, len(records))):
            share = records[index::count]
            member = members[(self._turn + index) % count]
            frames = [member.frames.frame(*self._parts(record)) for record in share]
            member.session.outlet.push(frames, Handout(self, _places(share), 1, leased_s))
        self._turn += len(records)

    async def _to_all(self, records: Sequence[Record], leased_s: float) -> None:
        members = list(self.members.values())
        if not members:
            self.settle(Verb.RETURN, _places(records))
            return
        parts = [self._parts(record) for record in records]
        handout = Handout(self, _places(records), len(members), leased_s)
        for member in members:
            member.session.outlet.push([member.frames.frame(*part) for part in parts], handout)
            await self._until(self._port_has_room)

    def _parts(self, record: Record) -> tuple[bytes, bytes]:
        """The type and the body of a message, as they stand in a frame."""
        kind = self._quoted_kind
        for name, value in record.headers:
            if name == TYPE_HEADER and value is not None:
                kind = quoted(value.decode(errors="replace"))
        return kind, quoted_body(record.value)

    def _reject(self, lease: Leased, error: SparrowError) -> None:
        """What nobody can read must not stop the queue."""
        self.port.context.logger.error(
            "msbq: %d messages of %s/%d for queue %r go to the dead letters: %s",
            lease.records,
            lease.topic,
            lease.partition,
            self.queue,
            error.text,
        )
        self._send(
            [
                Settlement(Verb.REJECT, lease.topic, lease.partition, first, last, text=error.text)
                for first, last, _ in lease.ranges
            ]
        )

    # ── what became of it ─────────────────────────────────────────────────────────────────────────

    def settle(self, verb: Verb, places: Iterable[Place]) -> None:
        """Say it to the queue, together with what else is said in this turn of the loop."""
        self._settlements.extend((verb, place) for place in places)
        if self._flushing is None:
            self._flushing = self.port.loop.call_soon(self._flush)

    def prolong(self, handout: Handout) -> None:
        """The socket still has not taken these: their lease begins anew."""
        handout.leased_s = self.port.loop.time()
        self._send(_settlements([(Verb.EXTEND, place) for place in handout.places]))

    @property
    def lease_s(self) -> float:
        return self._consumer.lease_ms / 1000

    def _flush(self) -> None:
        self._flushing = None
        settlements, self._settlements = self._settlements, []
        if not self._send(_settlements(settlements)):
            self._settlements = settlements
            self._flushing = self.port.loop.call_later(_SETTLE_RETRY_S, self._flush)

    def _send(self, settlements: Sequence[Settlement]) -> bool:
        """False: the queue is being changed, try again."""
        if not settlements:
            return True
        try:
            settling = self._consumer.settle(settlements)
        except Overloaded:
            return False
        except SparrowError:
            return True  # closed, or deleted: nobody waits for an answer
        self._settling.add(settling)
        settling.add_done_callback(self._settled)
        return True

    def _settled(self, settling: asyncio.Future[list[SparrowError | None]]) -> None:
        self._settling.discard(settling)
        error = None if settling.cancelled() else settling.exception()
        if error is not None:
            self._warn("messages are delivered again", error)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begin to hand out."""
        self._running = self.port.start(self._run())

    def stop(self) -> None:
        """Lease nothing more; what was handed out can still be settled."""
        if self._running is not None:
            self._running.cancel()

    async def close(self) -> None:
        """Keep what became of the messages that were handed out; the others are ready again, and were not delivered."""
        self.stop()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flush()
        if self._settling:
            await asyncio.wait(set(self._settling))
        try:
            await self._consumer.close(give_back=True)
        except SparrowError as error:
            self._warn("what its consumers held is delivered again when the leases end", error)

    def _warn(self, what: str, error: BaseException) -> None:
        self.port.context.logger.warning("msbq: queue %r: %s: %s", self.queue, what, error)


def _places(records: Sequence[Record]) -> list[Place]:
    return [(record.topic, record.partition, record.offset) for record in records]


def _settlements(said: Iterable[tuple[Verb, Place]]) -> list[Settlement]:
    """As few as it takes: neighbours of one fate are one range."""
    runs: list[tuple[Verb, str, int, int, int]] = []
    for verb, (topic, partition, offset) in sorted(said):
        if runs and runs[-1][:3] == (verb, topic, partition) and runs[-1][4] == offset - 1:
            runs[-1] = verb, topic, partition, runs[-1][3], offset
        else:
            runs.append((verb, topic, partition, offset, offset))
    return [Settlement(*run) for run in runs]
