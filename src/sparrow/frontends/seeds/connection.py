"""One TCP connection of a seed's listener, and the port that it belongs to: the code that all seeds
share.

A `SeedConnection` owns the socket: when it is read, what is written, when it ends. It knows no
protocol; the subclass of a protocol interprets the bytes (`received`). Reading pauses while any
`PauseReason` is set. An idle connection has no task and no timer: one timer of the port finds
connections that stop in the middle of a message.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from sparrow.base.errors import BadFrame, Overloaded, SparrowError
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.seeds.caller import caller_by, set_caller
from sparrow.frontends.transport.admission import host_of
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.frontends.transport.send_budget import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.frontends.seeds.context import SeedContext
    from sparrow.frontends.seeds.publish_queue import PublishQueue
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.send_budget import Backlog

RECEIVE_BUDGET_BYTES: Final = 64 << 20
"""Memory of one port for all unfinished messages together."""
SMALL_BYTES: Final = 16 << 10
"""Unfinished messages up to this size are not counted: the number of connections is limited,
too.
"""
WRITE_HIGH_WATER_BYTES: Final = 256 << 10
UNCOUNTED_BYTES: Final = 4 << 10
"""Responses up to this size are not counted in the send budget: the high-water mark limits them."""
LAST_WORDS_S: Final = 0.5
"""Time for a peer to read why its connection ends."""
SHARE_OF_DRAIN_FOR_WORK: Final = 0.75
"""The share of the drain time in which received messages may become durable."""
NO_LINGER: Final = struct.pack("ii", 1, 0)
"""A socket with this option is reset when it is closed, also when the system closes it because this
process was killed.
"""
LINGER: Final = struct.pack("ii", 0, 0)
"""Undoes `NO_LINGER`."""


class PauseReason:
    """Reasons to pause reading from a connection, as bits."""

    NONE: Final = 0
    WRITE: Final = 1
    """The peer does not read what it is sent."""
    WINDOW: Final = 2
    """The unconfirmed bytes exceed the window, or a topic is being created."""
    WORK: Final = 4
    """A request is being handled; the next one waits."""
    BUDGET: Final = 8
    """The receive budget has no room for the announced message."""
    DRAIN: Final = 16
    """The port closes and accepts nothing more."""
    COALESCE: Final = 32
    """More bytes are expected in a moment, to be read together."""
    BY_US: Final = WINDOW | WORK | BUDGET | DRAIN | COALESCE
    """Reasons that the peer cannot clear."""


class SeedConnection(asyncio.Protocol):
    """One connection. Loop thread only."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.transport: asyncio.Transport | None = None
        self.peer = "?"
        self.host = ""
        self.slot: ConnectionSlot | None = None
        self._caller = ANONYMOUS
        self.started_s = 0.0
        """When the unfinished message began (loop time); 0: there is none."""
        self.stalled_s = 0.0
        """When the peer stopped reading (loop time); 0: it reads."""
        self._pause_reasons: int = PauseReason.NONE
        self._reserved_bytes = 0
        self._wanted_bytes = 0
        self._is_ending = False
        self._backlog: Backlog | None = None
        self._resets_on_close = False
        self._has_eof = False
        """True if the peer has closed its side."""
        self._leaving: asyncio.Task[None] | None = None
        self._writable_again: asyncio.Future[None] | None = None
        """Done when the peer reads again or the connection is lost."""

    # ── overridden by protocols ───────────────────────────────────────────────────────────────────

    def received(self, data: bytes) -> bool:
        """Handle received bytes. Return True if they completed a message. A SparrowError ends the
        connection.
        """
        raise NotImplementedError

    @property
    def bytes_wanted(self) -> int:
        """The size of the unfinished message as far as it is known; 0: there is none."""
        return 0

    def opened(self) -> None:
        """Prepare a new connection."""

    def writable(self) -> None:
        """Continue to send: the peer reads again."""

    def ended(self) -> None:
        """Clean up after a lost connection; received messages are still published."""

    @property
    def has_work(self) -> bool:
        """True if work for a peer that sends no more is unfinished."""
        return False

    async def until_done(self) -> None:
        """Wait until `has_work` is False."""

    def drained(self) -> None:
        """Say goodbye, if the protocol has one, and close: the port closes and all publishes are
        settled.
        """
        self.close()

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer = name_of(transport.get_extra_info("peername"))
        self.host = host_of(transport)
        self._caller = caller_by(self.port.name, self.host)
        set_caller(self._caller)
        if not self.port.admit(self):
            self.reset()
            return
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.opened()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        set_caller(self._caller)
        try:
            is_whole = self.received(data)
        except SparrowError as error:
            self.refuse(error.text)
            return
        except Exception:
            self.port.context.logger.exception(
                "%s: a bug ends the connection of %s", self.port.name, self.peer
            )
            self.abort()
            return
        if is_whole:
            self.settle()
        wanted_bytes = self.bytes_wanted
        if not wanted_bytes:
            self.started_s = 0.0
        elif is_whole or not self.started_s:
            self.started_s = self.port.loop.time()
        if wanted_bytes != self._wanted_bytes:
            self._reserve(wanted_bytes)

    def settle(self) -> None:
        """Keep the connection slot for good: the client has made a request."""
        if self.slot is not None:
            self.slot.settle()

    def eof_received(self) -> bool:
        """End the connection when all requests are handled and all responses written: the peer
        sends no more.
        """
        if self.bytes_wanted and self.is_open and self._leaving is None:
            self.port.context.logger.info("%s: %s left in the middle of a message", self.port.name, self.peer)
        if self._leaving is None and self.is_open and self.has_work:
            self.started_s = 0.0
            self._leaving = self.port.start(self._leave())
        self._has_eof = True
        if self._leaving is None:
            self.allow_clean_close()
        return self._leaving is not None  # the transport may ask again, after it was paused

    async def _leave(self) -> None:
        await self.until_done()
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.transport = None
        self._is_ending = True
        self._reserve(0)
        if self._backlog is not None:
            self._backlog.close()
        self._wake()
        if self.port.leave(self):
            self.ended()

    def pause_writing(self) -> None:
        self.stalled_s = self.port.loop.time()
        self.pause_reading(PauseReason.WRITE)

    def resume_writing(self) -> None:
        self.stalled_s = 0.0
        self.resume_reading(PauseReason.WRITE)
        self._wake()
        self.writable()

    def _wake(self) -> None:
        if self._writable_again is not None and not self._writable_again.done():
            self._writable_again.set_result(None)
        self._writable_again = None

    # ── for the protocols ─────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self._is_ending

    @property
    def can_write(self) -> bool:
        """True if the peer reads what it is sent."""
        return self.is_open and not self._pause_reasons & PauseReason.WRITE

    @property
    def is_paused_by_us(self) -> bool:
        return bool(self._pause_reasons & PauseReason.BY_US)

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection has ended."""
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)
            if len(data) > UNCOUNTED_BYTES:
                reservation = self.backlog.reservation()
                reservation.resize(len(data))
                reservation.sent()

    @property
    def backlog(self) -> Backlog:
        """The bytes that the peer has not read yet."""
        if self._backlog is None:
            self._backlog = self.port.context.send_budget.backlog(self._unsent_bytes, self._end_slow_reader)
        return self._backlog

    def _unsent_bytes(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def _end_slow_reader(self, why: str) -> None:
        self.port.context.logger.warning("%s: the connection of %s ends: %s", self.port.name, self.peer, why)
        self.abort()

    async def until_writable(self) -> None:
        """Wait until the peer reads and there is memory for more, or the connection is lost."""
        if self.is_open and self.port.context.send_budget.is_tight:
            with self.backlog.reservation() as reservation:
                await reservation.take(BATCH_BYTES, BATCH_BYTES)
        while self.is_open and self._pause_reasons & PauseReason.WRITE:
            if self._writable_again is None:
                self._writable_again = self.port.loop.create_future()
            await asyncio.shield(self._writable_again)

    def pause_reading(self, reason: int) -> None:
        """Pause reading for this reason."""
        if self._is_ending:
            return
        if not self._pause_reasons and self.transport is not None:
            self.transport.pause_reading()
        self._pause_reasons |= reason

    def resume_reading(self, reason: int) -> None:
        """Clear a reason; read again if no other reason is left."""
        if self._pause_reasons & reason:
            self._pause_reasons &= ~reason
            if not self._pause_reasons and self.transport is not None and not self.transport.is_closing():
                self.started_s = self.port.loop.time() if self.started_s else 0.0
                self.transport.resume_reading()

    def refuse(self, why: str) -> None:
        """Log a violation by the peer and close the connection."""
        self.port.context.logger.warning("%s: the connection of %s ends: %s", self.port.name, self.peer, why)
        self.close()

    def finish(self, why: str) -> None:
        """Log and close as `refuse` does, but let the peer read what was sent last: a socket that
        is closed while the peer still sends is reset.
        """
        self.port.context.logger.warning("%s: the connection of %s ends: %s", self.port.name, self.peer, why)
        self._is_ending = True
        self._reserve(0)
        self.allow_clean_close()
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.resume_reading()
        try:
            self.transport.write_eof()
        except OSError:  # the peer is gone already
            self.transport.abort()
        self.port.loop.call_later(LAST_WORDS_S, self.close)

    def close(self) -> None:
        """Read nothing more; close the socket when all written bytes are sent."""
        self._is_ending = True
        self._reserve(0)
        if self._has_eof:
            self.allow_clean_close()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the socket now; unsent bytes are lost."""
        self._is_ending = True
        if self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Close the socket so that the peer's next read or write fails. In a protocol without error
        messages, this is how a client learns that its messages are lost.
        """
        self._set_linger(NO_LINGER)
        self.abort()

    def reset_on_close(self) -> None:
        """Reset the connection whenever it is closed, also by the system when this process is
        killed. A publisher that closed its side takes a normal end for the confirmation that all
        messages are stored, so the connection ends normally only if that is true.
        """
        if not self._resets_on_close:
            self._resets_on_close = True
            self._set_linger(NO_LINGER)

    def allow_clean_close(self) -> None:
        """Let the connection end normally again, so that the peer can read what is sent last."""
        if self._resets_on_close:
            self._resets_on_close = False
            self._set_linger(LINGER)

    def _set_linger(self, option: bytes) -> None:
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # the peer is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)

    # ── memory ────────────────────────────────────────────────────────────────────────────────────

    def _reserve(self, wanted_bytes: int) -> None:
        """Replace the current memory reservation by one for the unfinished message."""
        budget = self.port.budget
        if self._pause_reasons & PauseReason.BUDGET:
            budget.withdraw(self._granted)
            self._pause_reasons &= ~PauseReason.BUDGET
        if self._reserved_bytes:
            budget.release(self._reserved_bytes)
            self._reserved_bytes = 0
        self._wanted_bytes = wanted_bytes
        if wanted_bytes <= SMALL_BYTES:
            return
        if budget.reserve(wanted_bytes, self._granted):
            self._reserved_bytes = wanted_bytes
        else:
            self.pause_reading(PauseReason.BUDGET)

    def _granted(self) -> None:
        self._reserved_bytes = self._wanted_bytes
        self.resume_reading(PauseReason.BUDGET)


class Port:
    """The connections of one port; a `SeedListener` of the frontend. Loop thread only.

    Args:
        make: creates the protocol of a new connection.
    """

    def __init__(self, name: str, context: SeedContext, make: Callable[[Port], SeedConnection]) -> None:
        self.name = name
        self.context = context
        self.loop = asyncio.get_running_loop()
        self.budget = ReceiveBudget(RECEIVE_BUDGET_BYTES)
        self.is_draining = False
        self.unsettled: set[PublishQueue] = set()
        """Queues with unconfirmed messages; their connections may be lost."""
        self._make = make
        self.admission = context.connection_limit.admission(
            lambda: self.connections,
            context.settings.max_connections,
            context.broker.measures.frontend(name, lambda: self.connections).refusals,
        )
        self._connections: set[SeedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def open_connections(self) -> list[SeedConnection]:
        """Return the open connections."""
        return list(self._connections)

    def connect(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        return self._make(self)

    def admit(self, connection: SeedConnection) -> bool:
        """Count a connection in. Return False if it may not be served."""
        if self.is_draining:
            return False
        try:
            connection.slot = self.admission.admit(connection.host, connection.reset)
        except Overloaded:  # it is counted, and logged in a summary
            return False
        self._connections.add(connection)
        if self._sweep_timer is None:
            self._sweep_later()
        return True

    def leave(self, connection: SeedConnection) -> bool:
        """Count a connection out. Return True if it had been admitted."""
        if connection not in self._connections:
            return False
        self._connections.discard(connection)
        if connection.slot is not None:
            connection.slot.release()
        if not self._connections and self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        return True

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine that the port waits for when it drains."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.context.logger.error("%s: a task failed", self.name, exc_info=error)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def _sweep_later(self) -> None:
        self._sweep_timer = self.loop.call_later(self._limit_s / 4, self._sweep)

    @property
    def _limit_s(self) -> float:
        return self.context.settings.idle_timeout_ms / 1000

    def _sweep(self) -> None:
        """End connections that stopped in the middle of a message, and those that do not read."""
        self._sweep_later()
        late_s = self.loop.time() - self._limit_s
        for connection in [
            each for each in self._connections if 0 < each.started_s < late_s and not each.is_paused_by_us
        ]:
            connection.refuse(f"a message that it began was not whole within {self._limit_s:g} s")
        for connection in [each for each in self._connections if 0 < each.stalled_s < late_s]:
            connection.refuse(f"for {self._limit_s:g} s it took nothing of what was sent to it")
            connection.abort()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing new, finish what was received, close all connections. Takes at most about
        `timeout_s`.
        """
        self.is_draining = True
        for connection in list(self._connections):
            connection.pause_reading(PauseReason.DRAIN)
        deadline = self.loop.time() + timeout_s
        await self._wait_until_settled(timeout_s * SHARE_OF_DRAIN_FOR_WORK)
        unsettled = {queue.source for queue in self.unsettled}
        for connection in list(self._connections):
            if connection in unsettled:
                connection.reset()
            else:
                connection.drained()
        await self._wait_until_gone(max(0.0, deadline - self.loop.time()))
        for connection in list(self._connections):
            connection.abort()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)

    async def _wait_until_settled(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self.unsettled:
                    await next(iter(self.unsettled)).settled()
        except TimeoutError:
            self.context.logger.warning(
                "%s: the messages of %d connections are not durable yet", self.name, len(self.unsettled)
            )

    async def _wait_until_gone(self, timeout_s: float) -> None:
        deadline = self.loop.time() + timeout_s
        while self._connections and self.loop.time() < deadline:  # noqa: ASYNC110 - rare, and short
            await asyncio.sleep(0.005)


def too_long(what: str, size_bytes: int, limit_bytes: int) -> BadFrame:
    """Return the error of an announced length over its limit."""
    return BadFrame(f"{what} of {size_bytes} bytes was announced; at most {limit_bytes} are taken")


def name_of(peername: object) -> str:
    """Return an address in the form for the log."""
    return f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "?"
