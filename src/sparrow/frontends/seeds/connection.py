"""One TCP connection of a seed's listener: the code that all seeds share.

The subclass of a protocol interprets the bytes (`received`). A publisher that closed its side takes
a normal end for the confirmation that all messages are stored, so a connection with unconfirmed
messages is reset when it ends (`reset_on_close`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import BadFrame, SparrowError
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.seeds.caller import caller_by, set_caller
from sparrow.frontends.transport.admission import host_of
from sparrow.frontends.transport.connection import Connection
from sparrow.frontends.transport.liveness import Verdict
from sparrow.frontends.transport.send_budget import BATCH_BYTES

if TYPE_CHECKING:
    from sparrow.frontends.seeds.context import Port

SMALL_BYTES: Final = 16 << 10
"""Unfinished messages up to this size are not counted: the number of connections is limited,
too.
"""
UNCOUNTED_BYTES: Final = 4 << 10
"""Responses up to this size are not counted in the send budget: the high-water mark limits them."""
NO_LINGER: Final = struct.pack("ii", 1, 0)
"""A socket with this option is reset when it is closed, also when the system closes it because this
process was killed.
"""
LINGER: Final = struct.pack("ii", 0, 0)
"""Undoes `NO_LINGER`."""


class SeedConnection(Connection["Port"], asyncio.Protocol):
    """One connection. Loop thread only."""

    uncounted_bytes = SMALL_BYTES

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self.peer = "?"
        self._caller = ANONYMOUS
        self._resets_on_close = False
        self._has_eof = False
        """True if the peer has closed its side."""
        self._leaving: asyncio.Task[None] | None = None

    # ── overridden by protocols ───────────────────────────────────────────────────────────────────

    def received(self, data: bytes) -> bool:
        """Handle received bytes. Return True if they completed a message. A SparrowError ends the
        connection.
        """
        raise NotImplementedError

    async def until_done(self) -> None:
        """Wait until `has_work` is False."""

    def drained(self) -> None:
        """Say goodbye, if the protocol has one, and close: the port closes and all publishes are
        settled.
        """
        self.close()

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = name_of(transport.get_extra_info("peername"))
        self._caller = caller_by(self.context.name, host_of(transport))
        set_caller(self._caller)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.is_leaving:
            return
        self.received_bytes += len(data)
        set_caller(self._caller)
        try:
            is_whole = self.received(data)
        except SparrowError as error:
            self.refuse(error.text)
            return
        except Exception:
            self.context.logger.exception("%s: a bug ends the connection of %s", self.context.name, self.peer)
            self.abort()
            return
        if is_whole:
            self.settle()
            self.message_completed()
        self.reserve_input(self.unfinished_bytes)

    def settle(self) -> None:
        """Keep the connection slot for good: the client has made a request."""
        if self.slot is not None:
            self.slot.settle()

    def eof_received(self) -> bool:
        """End the connection when all requests are handled and all responses written: the peer
        sends no more.
        """
        if self.unfinished_bytes and self.is_open and self._leaving is None:
            self.context.logger.info("%s: %s left in the middle of a message", self.context.name, self.peer)
        if self._leaving is None and self.is_open and self.has_work:
            self.started_s = 0.0
            self._leaving = self.context.spawn(self._leave())
        self._has_eof = True
        if self._leaving is None:
            self.allow_clean_close()
        return self._leaving is not None  # the transport may ask again, after it was paused

    async def _leave(self) -> None:
        await self.until_done()
        self.close()

    def turn_away(self) -> None:
        self.reset()

    def overdue(self, verdict: Verdict) -> None:
        deadlines = self.context.deadlines
        if verdict is Verdict.STALLED:
            self.refuse(f"a message that it began was not whole within {deadlines.stall_s:g} s")
        else:
            self.refuse(f"for {deadlines.unread_s:g} s it took nothing of what was sent to it")
            self.abort()

    # ── for the protocols ─────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.is_leaving

    def send(self, data: bytes) -> None:
        """Send bytes, unless the connection has ended."""
        if data and self.transport is not None and not (self._has_ended or self.transport.is_closing()):
            self.transport.write(data)
            if len(data) > UNCOUNTED_BYTES:
                reservation = self.backlog.reservation()
                reservation.resize(len(data))
                reservation.sent()

    async def until_writable(self) -> None:
        """Wait until the peer reads and there is memory for more, or the connection is lost."""
        if self.is_open and self.context.send_budget.is_tight:
            with self.backlog.reservation() as reservation:
                await reservation.take(BATCH_BYTES, BATCH_BYTES)
        if self.is_open:
            await super().until_writable()

    def refuse(self, why: str) -> None:
        """Log a violation by the peer and close the connection."""
        self._log_end(why)
        self.close()

    def finish(self, why: str) -> None:
        """Log and close as `refuse` does, but let the peer read the last bytes."""
        self._log_end(why)
        self.allow_clean_close()
        self.end()

    def _log_end(self, why: str) -> None:
        self.context.logger.warning("%s: the connection of %s ends: %s", self.context.name, self.peer, why)

    def close(self) -> None:
        """Read nothing more; close the socket when all written bytes are sent."""
        if self._has_eof:
            self.allow_clean_close()
        super().close()

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
        """Let the connection end normally again, so that the peer can read the last bytes."""
        if self._resets_on_close:
            self._resets_on_close = False
            self._set_linger(LINGER)

    def _set_linger(self, option: bytes) -> None:
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # the peer is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)


def too_long(what: str, size_bytes: int, limit_bytes: int) -> BadFrame:
    """Return the error of an announced length over its limit."""
    return BadFrame(f"{what} of {size_bytes} bytes was announced; at most {limit_bytes} are taken")


def name_of(peername: object) -> str:
    """Return an address in the form for the log."""
    return f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "?"
