"""Delivery of a queue to the streams of msbq: messages are leased while a stream takes them, handed
out, and acknowledged when the socket of the peer took them.

One consumer of the Sparrow queue serves all streams that are registered for it, on any connection.
P2P: each message goes to one stream, in rotation among those whose connections take data. PUBSUB:
each message goes to every stream that is registered when it is handed out. The protocol has no
acknowledgement, so the operating system's is used: a message is acknowledged when the socket took
its last byte, and released uncounted when the connection ends before. Until then its lease is
extended.

The bytes that wait for slow sockets are limited for each queue and for the port; at the limit
nothing more is leased. So a stream of a PUBSUB queue that does not read delays the other streams
until its connection is ended for it (`StallWatch`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import Overloaded, SparrowError, Unavailable
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.leased_records import read_leased, settle_unreadable
from sparrow.frontends.seeds.context import Port
from sparrow.frontends.seeds.msbq_send_queue import Handout, RecordPosition, SendQueue
from sparrow.frontends.transport.liveness import NEVER
from sparrow.protocol.seeds.msbq import PUBSUB, MessageFrames, quoted, quoted_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.frontends.seeds.context import SeedContext
    from sparrow.records.record import Record

TYPE_HEADER: Final = "msbq-type"
"""The header with the Type that a message was published with."""
LEASE_RECORDS: Final = 512
LEASE_BYTES: Final = 256 << 10
LEASE_WAIT_MS: Final = 60_000
UNTAKEN_BYTES: Final = 1 << 20
"""Bytes of one queue that may wait for slow sockets; above it nothing more is leased."""
PORT_UNTAKEN_BYTES: Final = 64 << 20
"""The same for all queues together."""
RETRY_S: Final = 1.0
"""Delay before a queue that could not be read is tried again."""
_SETTLE_RETRY_S: Final = 0.05


class RouteMember:
    """A stream that is registered for a queue."""

    __slots__ = ("connection", "frames", "stream")

    def __init__(self, connection: StreamConnection, stream: str, route: str) -> None:
        self.connection = connection
        self.stream = stream
        self.frames = MessageFrames(route, stream)


class StreamConnection(Protocol):
    """A connection, as routes see it; see `MsbqConnection`."""

    @property
    def send_queue(self) -> SendQueue: ...
    @property
    def has_room(self) -> bool: ...
    def forget(self, route: MsbqRoute, stream: str) -> None: ...
    def report(self, text: str, stream: str) -> None: ...


class RoutesPort(Port):
    """The memory that all routes share. Loop thread only."""

    def __init__(self, name: str, context: SeedContext, make: Callable[[Port], asyncio.BaseProtocol]) -> None:
        super().__init__(name, context, make, unread_s=NEVER)  # `StallWatch` limits that
        self.untaken_bytes = 0
        """Bytes that were handed out and not yet taken by sockets."""
        self.waiting: set[MsbqRoute] = set()
        """Routes that wait for room."""

    def add_untaken(self, size_bytes: int) -> None:
        """Change the count of bytes that wait for sockets."""
        self.untaken_bytes += size_bytes
        if size_bytes < 0 and self.untaken_bytes <= PORT_UNTAKEN_BYTES:
            for route in list(self.waiting):
                route.wake()

    def route_ended(self, route: MsbqRoute, error: SparrowError) -> None:
        """Remove a route whose queue was deleted, or may not be read any more."""
        raise NotImplementedError


class MsbqRoute:
    """A queue with registered streams. Loop thread only.

    Args:
        name: as the client wrote it; `queue` is the name of the Sparrow queue.
        is_temporary: True if the queue is deleted with its last stream.
    """

    def __init__(
        self, port: RoutesPort, name: str, kind: str, *, consumer: QueueConsumer, is_temporary: bool
    ) -> None:
        self.port = port
        self.name = name
        self.kind = kind
        self.is_temporary = is_temporary
        self.untaken_bytes = 0
        self.members: dict[tuple[StreamConnection, str], RouteMember] = {}
        self._consumer = consumer
        self._quoted_kind = quoted(kind)
        self._next_member = 0
        self._changed = asyncio.Event()
        self._settlements: list[tuple[Verb, RecordPosition]] = []
        self._flushing: asyncio.Handle | None = None
        self._settling: set[asyncio.Future[list[SparrowError | None]]] = set()
        self._running: asyncio.Task[None] | None = None

    @property
    def queue(self) -> str:
        return self._consumer.queue_name

    # ── registered streams ────────────────────────────────────────────────────────────────────────

    def add(self, connection: StreamConnection, stream: str) -> None:
        """Register a stream. No effect if it is registered."""
        self.members.setdefault((connection, stream), RouteMember(connection, stream, self.name))
        self.wake()

    def remove(self, connection: StreamConnection, stream: str) -> None:
        """Remove a stream."""
        self.members.pop((connection, stream), None)
        self.wake()

    def add_untaken(self, size_bytes: int) -> None:
        """Change the count of bytes that wait for sockets."""
        self.untaken_bytes += size_bytes
        self.port.add_untaken(size_bytes)
        if size_bytes < 0:
            self.wake()

    def wake(self) -> None:
        """Check again whether there is room."""
        self._changed.set()

    # ── hand out ──────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            await self._wait_until(self._has_room)
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

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked after each change of streams or room."""
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
        return any(member.connection.has_room for member in self.members.values())

    def _port_has_room(self) -> bool:
        return self.port.untaken_bytes <= PORT_UNTAKEN_BYTES

    async def _hand_out(self, lease: Leased) -> None:
        leased_s = self.port.loop.time()
        handed, missing, unreadable = await read_leased(lease)
        settlements = lease.settlements(Verb.ACK, ranges=missing)
        corrupt_batches = self.port.broker.measures.corrupt_batches
        self._send(settlements + settle_unreadable(lease, unreadable, corrupt_batches))
        records = [each.record for each in handed]
        if self.kind == PUBSUB:
            await self._hand_out_to_all(records, leased_s)
        else:
            self._hand_out_in_rotation(records, leased_s)

    def _hand_out_in_rotation(self, records: Sequence[Record], leased_s: float) -> None:
        members = list(self.members.values())
        members = [member for member in members if member.connection.has_room] or members
        if not members:
            self.settle(Verb.RELEASE, _positions(records))
            return
        count = len(members)
        for index in range(min(count, len(records))):
            share = records[index::count]
            member = members[(self._next_member + index) % count]
            frames = [member.frames.frame(*self._parts(record)) for record in share]
            member.connection.send_queue.push(frames, Handout(self, _positions(share), 1, leased_s))
        self._next_member += len(records)

    async def _hand_out_to_all(self, records: Sequence[Record], leased_s: float) -> None:
        members = list(self.members.values())
        if not members:
            self.settle(Verb.RELEASE, _positions(records))
            return
        parts = [self._parts(record) for record in records]
        handout = Handout(self, _positions(records), len(members), leased_s)
        for member in members:
            member.connection.send_queue.push([member.frames.frame(*part) for part in parts], handout)
            await self._wait_until(self._port_has_room)

    def _parts(self, record: Record) -> tuple[bytes, bytes]:
        """Return the encoded type and body of a message."""
        kind = self._quoted_kind
        for name, value in record.headers:
            if name == TYPE_HEADER and value is not None:
                kind = quoted(value.decode(errors="replace"))
        return kind, quoted_body(record.value)

    # ── settlements ───────────────────────────────────────────────────────────────────────────────

    def settle(self, verb: Verb, positions: Iterable[RecordPosition]) -> None:
        """Settle records, together with all others of this iteration of the event loop."""
        self._settlements.extend((verb, position) for position in positions)
        if self._flushing is None:
            self._flushing = self.port.loop.call_soon(self._flush)

    def extend(self, handout: Handout) -> None:
        """Extend the lease of messages that the socket has not taken yet."""
        handout.leased_s = self.port.loop.time()
        self._send(_settlements([(Verb.EXTEND, position) for position in handout.positions]))

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
        """Settle now. Return False if the queue is being changed: try again."""
        if not settlements:
            return True
        try:
            settling = self._consumer.settle(settlements)
        except Overloaded:
            return False
        except SparrowError:
            return True  # closed or deleted: the result does not matter
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
        """Start to hand out messages."""
        self._running = self.port.spawn(self._run())

    def stop(self) -> None:
        """Lease nothing more; messages that were handed out can still be settled."""
        if self._running is not None:
            self._running.cancel()

    async def close(self) -> None:
        """Stop and settle what was handed out. Other messages are ready again and count as not
        delivered.
        """
        self.stop()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flush()
        if self._settling:
            await asyncio.wait(set(self._settling))
        try:
            await self._consumer.close(release=True)
        except SparrowError as error:
            self._warn("leased messages are delivered again when the leases end", error)

    def _warn(self, what: str, error: BaseException) -> None:
        self.port.logger.warning("msbq: queue %r: %s: %s", self.queue, what, error)


def _positions(records: Sequence[Record]) -> list[RecordPosition]:
    return [(record.topic, record.partition, record.offset) for record in records]


def _settlements(settlements: Iterable[tuple[Verb, RecordPosition]]) -> list[Settlement]:
    """Return as few settlements as possible: adjacent offsets with the same verb become one
    range.
    """
    runs: list[tuple[Verb, str, int, int, int]] = []
    for verb, (topic, partition, offset) in sorted(settlements):
        if runs and runs[-1][:3] == (verb, topic, partition) and runs[-1][4] == offset - 1:
            runs[-1] = verb, topic, partition, runs[-1][3], offset
        else:
            runs.append((verb, topic, partition, offset, offset))
    return [Settlement(*run) for run in runs]
