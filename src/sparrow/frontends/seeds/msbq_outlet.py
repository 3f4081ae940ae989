"""What one connection of msbq still has to be sent: frames wait here until the peer has room for them, and are taken when its socket has them.

The original's client takes whatever one read gives it for a whole frame, fills up what is missing with zeros, and is lost from then on. So a frame must never
arrive in parts: frames are written whole, few at a time, and only what fits into the window that the peer has advertised (`TCP_INFO` of Linux; elsewhere
nobody asks). The peer's window opens without a word to this process, so whoever waits for it looks again every millisecond.

A peer that takes nothing for too long is cut off; until then the leases of what it is to get go on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.frontends.seeds.msbq import Session
    from sparrow.frontends.seeds.msbq_routes import Handout

CHUNK_BYTES: Final = 16 << 10
"""Of frames that are written together."""
LOOK_AGAIN_S: Final = 0.001
MOST_OF_A_LEASE: Final = 1 / 3
"""After this share of a lease it is prolonged."""

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_COUNTERS: Final = struct.Struct("=120xQ16xI52xQQ12xI")
"""Of `struct tcp_info` (linux/tcp.h): bytes_acked, notsent_bytes, bytes_sent, bytes_retrans, snd_wnd."""


class Chunk:
    """Whole frames that are written together."""

    __slots__ = ("_frames", "handouts", "size_bytes")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.size_bytes = 0
        self.handouts: list[tuple[Handout, int]] = []
        """Those whose last frame is in it, and how large they are in all."""

    def has_room_for(self, frame: bytes) -> bool:
        """Whether the frame may be written with the others."""
        return not self.size_bytes or self.size_bytes + len(frame) <= CHUNK_BYTES

    def add(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.size_bytes += len(frame)

    def data(self) -> bytes:
        return b"".join(self._frames)


class Outlet:
    """Of one connection. Loop thread only."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.waiting_bytes = 0
        """What is not written yet."""
        self._chunks: deque[Chunk] = deque()
        self._written: list[Chunk] = []
        """What the transport has, and the socket not yet."""
        self._is_full = False
        self._looking: asyncio.TimerHandle | None = None
        self._watch = Watch(self, session)
        self._given_bytes = 0
        self._most_room_bytes = 2 * CHUNK_BYTES
        """The most room that the peer ever had. A frame may need more than it will ever have: half of this must do."""

    @property
    def has_room(self) -> bool:
        """Whether the socket took everything so far."""
        return not self._is_full and not self._chunks

    @property
    def taken_bytes(self) -> int:
        """How much the socket took in all."""
        transport = self._session.transport
        return self._given_bytes - (transport.get_write_buffer_size() if transport is not None else 0)

    def untaken(self) -> list[Handout]:
        """What the socket did not take yet."""
        return [handout for chunk in (*self._written, *self._chunks) for handout, _ in chunk.handouts]

    def push(self, frames: Sequence[bytes], handout: Handout | None = None) -> None:
        """Send these, after what waits; the handout is told what became of them."""
        if self._session.transport is None or self._session.transport.is_closing():
            if handout is not None:
                handout.lost()
            return
        size_bytes = sum(map(len, frames))
        for frame in frames:
            if not self._chunks or not self._chunks[-1].has_room_for(frame):
                self._chunks.append(Chunk())
            self._chunks[-1].add(frame)
        self.waiting_bytes += size_bytes
        if handout is not None:
            self._chunks[-1].handouts.append((handout, size_bytes))
            handout.route.waits(size_bytes)
        if self._looking is None:
            self._write()

    def paused(self) -> None:
        """The transport has bytes that the socket does not take."""
        self._is_full = True

    def resumed(self) -> None:
        """It has none any more."""
        self._is_full = False
        written, self._written = self._written, []
        self._taken(written)
        if self._looking is None:
            self._write()

    def flush(self) -> None:
        """Give all to the transport, whether the peer has room or not: the connection ends."""
        while self._chunks:
            self._give(self._chunks.popleft())
        if self._is_full:
            self._watch.begin()

    def lost(self) -> None:
        """The connection is gone."""
        self._watch.end()
        if self._looking is not None:
            self._looking.cancel()
        lost = [*self._written, *self._chunks]
        self._written, self._chunks = [], deque()
        for chunk in lost:
            for handout, size_bytes in chunk.handouts:
                handout.route.waits(-size_bytes)
                handout.lost()

    def _write(self) -> None:
        """As much as the peer has room for."""
        self._looking = None
        while self._chunks and not self._is_full:
            if not self._fits(self._chunks[0].size_bytes):
                self._looking = self._session.port.loop.call_later(LOOK_AGAIN_S, self._write)
                break
            self._give(self._chunks.popleft())
        if not self.has_room:
            self._watch.begin()
        elif self._watch.is_on:
            self._watch.end()
            self._session.writable()

    def _give(self, chunk: Chunk) -> None:
        self.waiting_bytes -= chunk.size_bytes
        self._given_bytes += chunk.size_bytes
        self._session.write(chunk.data())
        if self._is_full:
            self._written.append(chunk)
        else:
            self._taken([chunk])

    def _taken(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            for handout, size_bytes in chunk.handouts:
                handout.route.waits(-size_bytes)
                handout.taken()

    def _fits(self, size_bytes: int) -> bool:
        """Whether the peer has room for so much, or for as much as it can be asked for."""
        transport = self._session.transport
        if transport is None or _TCP_INFO is None:
            return True
        data = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _COUNTERS.size)
        if len(data) < _COUNTERS.size:
            return True
        acked, unsent, sent, sent_again, window = _COUNTERS.unpack(data)
        room_bytes = window - (sent - sent_again - acked + unsent)
        self._most_room_bytes = max(self._most_room_bytes, room_bytes)
        return bool(room_bytes >= min(size_bytes, self._most_room_bytes // 2))


class Watch:
    """Of a connection whose peer has no room: leases go on as long as it takes something; if it takes nothing for too long, the connection ends."""

    def __init__(self, outlet: Outlet, session: Session) -> None:
        self._outlet = outlet
        self._session = session
        self._timer: asyncio.TimerHandle | None = None
        self._taken_bytes = 0
        self._progress_s = 0.0

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def begin(self) -> None:
        """It has no room."""
        if self._timer is None:
            self._taken_bytes = self._outlet.taken_bytes
            self._progress_s = self._session.port.loop.time()
            self._again()

    def end(self) -> None:
        """It has, or it is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _limit_s(self) -> float:
        return self._session.port.context.settings.stall_timeout_ms / 1000

    def _again(self) -> None:
        leases_s = [handout.route.lease_s * MOST_OF_A_LEASE for handout in self._outlet.untaken()]
        self._timer = self._session.port.loop.call_later(min(self._limit_s / 4, *leases_s, 1.0), self._look)

    def _look(self) -> None:
        self._timer = None
        now_s, taken_bytes = self._session.port.loop.time(), self._outlet.taken_bytes
        if taken_bytes > self._taken_bytes:
            self._taken_bytes, self._progress_s = taken_bytes, now_s
        elif now_s - self._progress_s >= self._limit_s:
            self._session.port.context.logger.warning(
                "msbq: the connection of %s ends: it took nothing of what was sent to it for %g s",
                self._session.peer,
                self._limit_s,
            )
            self._session.abort()
            return
        for handout in self._outlet.untaken():
            if now_s - handout.leased_s >= handout.route.lease_s * MOST_OF_A_LEASE:
                handout.route.prolong(handout)
        self._again()
