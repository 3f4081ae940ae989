"""The pump of one connection, and the port that its connections belong to: what all seeds' doors share.

A `Pump` has the socket: when it is read from, what is written, when it ends. It knows no protocol; the class of a door says what bytes mean
(`received`). Reading stops while any `Hold` is set. Nothing runs for an idle connection: one timer of the port looks for those that began
a message and do not go on with it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from sparrow.base.errors import BadFrame, SparrowError
from sparrow.frontends.budget import ReceiveBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.frontends.seeds.frontend import Context
    from sparrow.frontends.seeds.intake import Intake

RECEIVE_BUDGET_BYTES: Final = 64 << 20
"""Of one port: what the messages may take, all together, that are being received."""
SMALL_BYTES: Final = 64 << 10
"""A message under way of no more than this asks for no memory: connections are limited, too."""
WRITE_HIGH_WATER_BYTES: Final = 256 << 10
LAST_WORDS_S: Final = 0.5
"""How long a peer has to read why its connection ends."""
SHARE_OF_DRAIN_FOR_WORK: Final = 0.75
"""Of the time to drain: how long what was taken may take to become durable."""
NO_LINGER: Final = struct.pack("ii", 1, 0)
"""A socket with this option is reset when it is closed, also when that is done by the system because this process was killed."""
LINGER: Final = struct.pack("ii", 0, 0)
"""And not any more."""


class Hold:
    """Why a connection is not read from: bits."""

    NONE: Final = 0
    WRITE: Final = 1
    """The peer does not take what we send."""
    WINDOW: Final = 2
    """More is published and not confirmed than the window allows, or a topic is being made."""
    WORK: Final = 4
    """An answer is being made; the next request waits."""
    BUDGET: Final = 8
    """No memory for the message that is announced."""
    DRAIN: Final = 16
    """Nothing more is taken."""
    GATHER: Final = 32
    """More comes in a moment, and is read together."""
    BY_US: Final = WINDOW | WORK | BUDGET | DRAIN | GATHER
    """Reasons that the peer cannot change."""


class Pump(asyncio.Protocol):
    """One connection. Loop thread only."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.transport: asyncio.Transport | None = None
        self.peer = "?"
        self.began_s = 0.0
        """When the message under way began; 0: none is."""
        self.stalled_s = 0.0
        """Since when the peer does not take what we send; 0: it does."""
        self._holds: int = Hold.NONE
        self._reserved_bytes = 0
        self._wanted_bytes = 0
        self._is_ending = False
        self._is_staked = False
        self._has_eof = False
        """Whether the peer has closed its side."""
        self._leaving: asyncio.Task[None] | None = None
        self._takes: asyncio.Future[None] | None = None
        """Done when the peer takes what we send again, or is gone."""

    # ── what a door says ──────────────────────────────────────────────────────────────────────────

    def received(self, data: bytes) -> bool:
        """Take bytes; whether a message became whole by them. A ProtocolError ends the connection."""
        raise NotImplementedError

    @property
    def bytes_wanted(self) -> int:
        """How large the message under way is, as far as that is known; 0: none is under way."""
        return 0

    def opened(self) -> None:
        """The connection is there."""

    def writable(self) -> None:
        """The peer reads again."""

    def ended(self) -> None:
        """The connection is gone; what was taken goes on."""

    @property
    def has_work(self) -> bool:
        """Whether something is still to be done for the peer, who sends no more."""
        return False

    async def until_done(self) -> None:
        """Until it is."""

    def drained(self) -> None:
        """The port closes, and what was published is settled: say goodbye, if there is one, and close."""
        self.close()

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer = name_of(transport.get_extra_info("peername"))
        if not self.port.admit(self):
            self.reset()
            return
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.opened()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
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
        wanted_bytes = self.bytes_wanted
        if not wanted_bytes:
            self.began_s = 0.0
        elif is_whole or not self.began_s:
            self.began_s = self.port.loop.time()
        if wanted_bytes != self._wanted_bytes:
            self._reserve(wanted_bytes)

    def eof_received(self) -> bool:
        """The peer sends no more: the connection ends when all that it asked for is done, answered, and written."""
        if self.bytes_wanted and self.is_open and self._leaving is None:
            self.port.context.logger.info("%s: %s left in the middle of a message", self.port.name, self.peer)
        if self._leaving is None and self.is_open and self.has_work:
            self.began_s = 0.0
            self._leaving = self.port.start(self._leave())
        self._has_eof = True
        if self._leaving is None:
            self.unstake()
        return self._leaving is not None  # the transport may ask again, after it was paused

    async def _leave(self) -> None:
        await self.until_done()
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.transport = None
        self._is_ending = True
        self._reserve(0)
        self._wake()
        if self.port.leave(self):
            self.ended()

    def pause_writing(self) -> None:
        self.stalled_s = self.port.loop.time()
        self.hold(Hold.WRITE)

    def resume_writing(self) -> None:
        self.stalled_s = 0.0
        self.unhold(Hold.WRITE)
        self._wake()
        self.writable()

    def _wake(self) -> None:
        if self._takes is not None and not self._takes.done():
            self._takes.set_result(None)
        self._takes = None

    # ── called by the door ────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self._is_ending

    @property
    def can_write(self) -> bool:
        """Whether the peer takes what we send."""
        return self.is_open and not self._holds & Hold.WRITE

    @property
    def is_held_by_us(self) -> bool:
        return bool(self._holds & Hold.BY_US)

    def write(self, data: bytes) -> None:
        """Send, unless the connection has ended."""
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def until_writable(self) -> None:
        """Until the peer takes what we send, or is gone."""
        while self.is_open and self._holds & Hold.WRITE:
            if self._takes is None:
                self._takes = self.port.loop.create_future()
            await asyncio.shield(self._takes)

    def hold(self, reason: int) -> None:
        """Stop reading."""
        if self._is_ending:
            return
        if not self._holds and self.transport is not None:
            self.transport.pause_reading()
        self._holds |= reason

    def unhold(self, reason: int) -> None:
        """Read again, unless there is another reason not to."""
        if self._holds & reason:
            self._holds &= ~reason
            if not self._holds and self.transport is not None and not self.transport.is_closing():
                self.began_s = self.port.loop.time() if self.began_s else 0.0
                self.transport.resume_reading()

    def refuse(self, why: str) -> None:
        """The peer does what it must not: say so in the log, close."""
        self.port.context.logger.warning("%s: the connection of %s ends: %s", self.port.name, self.peer, why)
        self.close()

    def finish(self, why: str) -> None:
        """As `refuse`, but so that the peer can read our last words: a socket that is closed while the peer still sends is reset."""
        self.port.context.logger.warning("%s: the connection of %s ends: %s", self.port.name, self.peer, why)
        self._is_ending = True
        self._reserve(0)
        self.unstake()
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.resume_reading()
        try:
            self.transport.write_eof()
        except OSError:  # the peer is gone already
            self.transport.abort()
        self.port.loop.call_later(LAST_WORDS_S, self.close)

    def close(self) -> None:
        """Take nothing more; close the socket when all is sent."""
        self._is_ending = True
        self._reserve(0)
        if self._has_eof:
            self.unstake()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the socket now, whatever is still to be sent."""
        self._is_ending = True
        if self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Close the socket so that the peer's next read or write fails: where a protocol has no word for it, that is how a client
        learns that what it sent is not kept."""
        self._set_linger(NO_LINGER)
        self.abort()

    def stake(self) -> None:
        """To a publisher that closed its side the end of its connection says that all is kept. From now on it is reset, whoever closes it, also the system when
        this process is killed, unless the peer has closed its side and all is done."""
        if not self._is_staked:
            self._is_staked = True
            self._set_linger(NO_LINGER)

    def unstake(self) -> None:
        """Not any more: the peer shall read what is sent to it last."""
        if self._is_staked:
            self._is_staked = False
            self._set_linger(LINGER)

    def _set_linger(self, option: bytes) -> None:
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # the peer is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)

    # ── memory ────────────────────────────────────────────────────────────────────────────────────

    def _reserve(self, wanted_bytes: int) -> None:
        """Exchange the reservation for one of the message that is under way now."""
        budget = self.port.budget
        if self._holds & Hold.BUDGET:
            budget.withdraw(self._granted)
            self._holds &= ~Hold.BUDGET
        if self._reserved_bytes:
            budget.release(self._reserved_bytes)
            self._reserved_bytes = 0
        self._wanted_bytes = wanted_bytes
        if wanted_bytes <= SMALL_BYTES:
            return
        if budget.reserve(wanted_bytes, self._granted):
            self._reserved_bytes = wanted_bytes
        else:
            self.hold(Hold.BUDGET)

    def _granted(self) -> None:
        self._reserved_bytes = self._wanted_bytes
        self.unhold(Hold.BUDGET)


class Port:
    """The connections of one port; a `Door` of the frontend. Loop thread only.

    Args:
        make: the pump of a new connection.
    """

    def __init__(self, name: str, context: Context, make: Callable[[Port], Pump]) -> None:
        self.name = name
        self.context = context
        self.loop = asyncio.get_running_loop()
        self.budget = ReceiveBudget(RECEIVE_BUDGET_BYTES)
        self.is_draining = False
        self.unsettled: set[Intake] = set()
        """Those whose messages are not confirmed yet; they may be of connections that are gone."""
        self._make = make
        self.has_place = context.places.of(lambda: self.connections)
        """Whether there is room for one more connection."""
        self._pumps: set[Pump] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many are connected."""
        return len(self._pumps)

    def pumps(self) -> list[Pump]:
        """The connections that there are."""
        return list(self._pumps)

    def connect(self) -> asyncio.BaseProtocol:
        """The protocol of a connection that has come in."""
        return self._make(self)

    def admit(self, pump: Pump) -> bool:
        """Whether there is room for one more."""
        if self.is_draining:
            return False
        if len(self._pumps) >= self.context.settings.max_connections or not self.has_place():
            self.context.logger.warning(
                "%s: %s is refused: %d are connected already", self.name, pump.peer, len(self._pumps)
            )
            return False
        self._pumps.add(pump)
        if self._sweeping is None:
            self._sweep_later()
        return True

    def leave(self, pump: Pump) -> bool:
        """It is gone; whether it had been admitted."""
        if pump not in self._pumps:
            return False
        self._pumps.discard(pump)
        if not self._pumps and self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        return True

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run something that the port waits for when it drains."""
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
        self._sweeping = self.loop.call_later(self._limit_s / 4, self._sweep)

    @property
    def _limit_s(self) -> float:
        return self.context.settings.idle_timeout_ms / 1000

    def _sweep(self) -> None:
        """End those that began a message and do not go on with it, and those that take nothing of what we send."""
        self._sweep_later()
        late_s = self.loop.time() - self._limit_s
        for pump in [each for each in self._pumps if 0 < each.began_s < late_s and not each.is_held_by_us]:
            pump.refuse(f"a message that it began was not whole within {self._limit_s:g} s")
        for pump in [each for each in self._pumps if 0 < each.stalled_s < late_s]:
            pump.refuse(f"for {self._limit_s:g} s it took nothing of what was sent to it")
            pump.abort()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    async def drain(self, timeout_s: float) -> None:
        """Take nothing new, finish what was taken, close all connections; takes at most about `timeout_s`."""
        self.is_draining = True
        for pump in list(self._pumps):
            pump.hold(Hold.DRAIN)
        deadline = self.loop.time() + timeout_s
        await self._until_settled(timeout_s * SHARE_OF_DRAIN_FOR_WORK)
        unsettled = {intake.sender for intake in self.unsettled}
        for pump in list(self._pumps):
            if pump in unsettled:
                pump.reset()
            else:
                pump.drained()
        await self._until_gone(max(0.0, deadline - self.loop.time()))
        for pump in list(self._pumps):
            pump.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)

    async def _until_settled(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self.unsettled:
                    await next(iter(self.unsettled)).settled()
        except TimeoutError:
            self.context.logger.warning(
                "%s: the messages of %d connections are not durable yet", self.name, len(self.unsettled)
            )

    async def _until_gone(self, timeout_s: float) -> None:
        deadline = self.loop.time() + timeout_s
        while self._pumps and self.loop.time() < deadline:  # noqa: ASYNC110 - rare, and short
            await asyncio.sleep(0.005)


def too_long(what: str, size_bytes: int, limit_bytes: int) -> BadFrame:
    """A length over its limit, before anything of it is kept."""
    return BadFrame(f"{what} of {size_bytes} bytes was announced; at most {limit_bytes} are taken")


def name_of(peername: object) -> str:
    """An address as the log has it."""
    return f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "?"
