"""Outgoing frames of one msbq connection: they wait here until the peer has room for them, and
count as taken when the socket has them.

The original's client takes the bytes of one read for a whole frame, fills up missing bytes with
zeros, and is out of step from then on. So a frame must never arrive in parts: frames are written
whole, a few at a time, and only if they fit into the window that the peer has advertised
(`TCP_INFO` of Linux; other systems are not asked). This process is not notified when the window
opens, so it polls every millisecond.

The connection of a peer that takes nothing for too long is ended; until then the leases of its
messages are extended.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.broker.queues.rules.settlement import Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.frontends.seeds.connection import SeedConnection

CHUNK_BYTES: Final = 16 << 10
"""Limit of the frames that are written together."""
POLL_S: Final = 0.001
EXTEND_AFTER_SHARE: Final = 1 / 3
"""Leases are extended after this share of their time."""

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_COUNTERS: Final = struct.Struct("=120xQ16xI52xQQ12xI")
"""Fields of `struct tcp_info` (linux/tcp.h): bytes_acked, notsent_bytes, bytes_sent, bytes_retrans,
snd_wnd.
"""


RecordPosition = tuple[str, int, int]
"""Topic, partition, offset."""


class HandoutRoute(Protocol):
    """The route of a handout; see `MsbqRoute`."""

    @property
    def lease_s(self) -> float: ...
    def add_untaken(self, size_bytes: int) -> None: ...
    def extend(self, handout: Handout) -> None: ...
    def settle(self, verb: Verb, positions: Sequence[RecordPosition]) -> None: ...


class Handout:
    """Messages that were written to sockets and are not yet taken by all of them."""

    __slots__ = ("_is_taken", "_waiting", "leased_s", "positions", "route")

    def __init__(
        self, route: HandoutRoute, positions: Sequence[RecordPosition], connections: int, leased_s: float
    ) -> None:
        self.route = route
        self.positions = positions
        self.leased_s = leased_s
        """When the lease began (loop time)."""
        self._waiting = connections
        self._is_taken = False

    def taken(self) -> None:
        """Record that one socket took all messages."""
        self._is_taken = True
        self._one_less()

    def lost(self) -> None:
        """Record that one connection ended before that."""
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self.route.settle(Verb.ACK if self._is_taken else Verb.RELEASE, self.positions)


class FrameChunk:
    """Whole frames that are written together."""

    __slots__ = ("_frames", "handouts", "size_bytes")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.size_bytes = 0
        self.handouts: list[tuple[Handout, int]] = []
        """Handouts whose last frame is in this chunk, with their total size."""

    def has_room_for(self, frame: bytes) -> bool:
        """Return True if the frame may be written with the others."""
        return not self.size_bytes or self.size_bytes + len(frame) <= CHUNK_BYTES

    def add(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.size_bytes += len(frame)

    def data(self) -> bytes:
        return b"".join(self._frames)


class SendQueue:
    """The outgoing frames of one connection. Loop thread only."""

    def __init__(self, connection: SeedConnection) -> None:
        self._connection = connection
        self.waiting_bytes = 0
        """Bytes that are not written yet."""
        self._chunks: deque[FrameChunk] = deque()
        self._written: list[FrameChunk] = []
        """Chunks that the transport has, but not yet the socket."""
        self._is_full = False
        self._poll_timer: asyncio.TimerHandle | None = None
        self._watch = StallWatch(self, connection)
        self._given_bytes = 0
        self._max_room_bytes = 2 * CHUNK_BYTES
        """The largest room of the peer so far. A frame may need more than the peer ever has: half
        of this is then enough.
        """

    @property
    def has_room(self) -> bool:
        """True if the socket took everything so far."""
        return not self._is_full and not self._chunks

    @property
    def taken_bytes(self) -> int:
        """Total bytes that the socket took."""
        transport = self._connection.transport
        return self._given_bytes - (transport.get_write_buffer_size() if transport is not None else 0)

    def untaken(self) -> list[Handout]:
        """Return the handouts that the socket has not taken completely."""
        return [handout for chunk in (*self._written, *self._chunks) for handout, _ in chunk.handouts]

    def push(self, frames: Sequence[bytes], handout: Handout | None = None) -> None:
        """Send frames after the waiting ones. The handout is notified when they are taken or
        lost.
        """
        if self._connection.transport is None or self._connection.transport.is_closing():
            if handout is not None:
                handout.lost()
            return
        size_bytes = sum(map(len, frames))
        for frame in frames:
            if not self._chunks or not self._chunks[-1].has_room_for(frame):
                self._chunks.append(FrameChunk())
            self._chunks[-1].add(frame)
        self.waiting_bytes += size_bytes
        if handout is not None:
            self._chunks[-1].handouts.append((handout, size_bytes))
            handout.route.add_untaken(size_bytes)
        if self._poll_timer is None:
            self._write()

    def paused(self) -> None:
        """Record that the socket does not take the bytes of the transport."""
        self._is_full = True

    def resumed(self) -> None:
        """Record that the socket took all bytes of the transport."""
        self._is_full = False
        written, self._written = self._written, []
        self._taken(written)
        if self._poll_timer is None:
            self._write()

    def flush(self) -> None:
        """Write everything, whether the peer has room or not: the connection ends."""
        while self._chunks:
            self._give(self._chunks.popleft())
        if self._is_full:
            self._watch.start()

    def lost(self) -> None:
        """Release all handouts: the connection is lost."""
        self._watch.end()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        lost = [*self._written, *self._chunks]
        self._written, self._chunks = [], deque()
        for chunk in lost:
            for handout, size_bytes in chunk.handouts:
                handout.route.add_untaken(-size_bytes)
                handout.lost()

    def _write(self) -> None:
        """Write as much as the peer has room for."""
        self._poll_timer = None
        while self._chunks and not self._is_full:
            if not self._fits(self._chunks[0].size_bytes):
                self._poll_timer = self._connection.context.loop.call_later(POLL_S, self._write)
                break
            self._give(self._chunks.popleft())
        if not self.has_room:
            self._watch.start()
        elif self._watch.is_on:
            self._watch.end()
            self._connection.writable()

    def _give(self, chunk: FrameChunk) -> None:
        self.waiting_bytes -= chunk.size_bytes
        self._given_bytes += chunk.size_bytes
        self._connection.send(chunk.data())
        if self._is_full:
            self._written.append(chunk)
        else:
            self._taken([chunk])

    def _taken(self, chunks: Iterable[FrameChunk]) -> None:
        for chunk in chunks:
            for handout, size_bytes in chunk.handouts:
                handout.route.add_untaken(-size_bytes)
                handout.taken()

    def _fits(self, size_bytes: int) -> bool:
        """Return True if the peer has room for `size_bytes`, or for half of the most it ever
        had.
        """
        transport = self._connection.transport
        if transport is None or _TCP_INFO is None:
            return True
        data = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _COUNTERS.size)
        if len(data) < _COUNTERS.size:
            return True
        acked, unsent, sent, sent_again, window = _COUNTERS.unpack(data)
        room_bytes = window - (sent - sent_again - acked + unsent)
        self._max_room_bytes = max(self._max_room_bytes, room_bytes)
        return bool(room_bytes >= min(size_bytes, self._max_room_bytes // 2))


class StallWatch:
    """Watches a connection whose peer has no room. It extends leases while the peer takes bytes,
    and ends the connection if it takes nothing for too long.
    """

    def __init__(self, send_queue: SendQueue, connection: SeedConnection) -> None:
        self._send_queue = send_queue
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None
        self._taken_bytes = 0
        self._progress_s = 0.0

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def start(self) -> None:
        """Start: the peer has no room."""
        if self._timer is None:
            self._taken_bytes = self._send_queue.taken_bytes
            self._progress_s = self._connection.context.loop.time()
            self._check_later()

    def end(self) -> None:
        """Stop: the peer has room, or the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _limit_s(self) -> float:
        return self._connection.context.settings.stall_timeout_ms / 1000

    def _check_later(self) -> None:
        leases_s = [handout.route.lease_s * EXTEND_AFTER_SHARE for handout in self._send_queue.untaken()]
        self._timer = self._connection.context.loop.call_later(
            min(self._limit_s / 4, *leases_s, 1.0), self._check
        )

    def _check(self) -> None:
        self._timer = None
        now_s, taken_bytes = self._connection.context.loop.time(), self._send_queue.taken_bytes
        if taken_bytes > self._taken_bytes:
            self._taken_bytes, self._progress_s = taken_bytes, now_s
        elif now_s - self._progress_s >= self._limit_s:
            self._connection.context.logger.warning(
                "msbq: the connection of %s ends: it took nothing of what was sent to it for %g s",
                self._connection.peer,
                self._limit_s,
            )
            self._connection.abort()
            return
        for handout in self._send_queue.untaken():
            if now_s - handout.leased_s >= handout.route.lease_s * EXTEND_AFTER_SHARE:
                handout.route.extend(handout)
        self._check_later()
