"""One TCP connection to a broker, from hello to its end. It is never reopened: `session.py` opens
the next one.

Strategy: the socket feeds the sans-IO state machine, events are dispatched by channel number to the
handler that opened the channel, and everything sent within one iteration of the loop leaves in one
write. A connection ends exactly once, with the reason in `ended`; handlers get nothing afterwards.

A broker that drains sends GOODBYE. The connection then accepts nothing new (`accepts` becomes
False), waits at most `DRAIN_TIMEOUT_S` for pending replies (`hold` and `release` count them), says
goodbye, and ends as a lost connection does.

A silent broker is detected by a PING every `ping_interval_s`: when nothing at all arrived from one
ping to the next, the connection ends.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Protocol, cast

from sparrow.base.errors import (
    ConnectionLost,
    Draining,
    Overloaded,
    ProtocolError,
    SparrowError,
    TimedOut,
    from_code,
)
from sparrow.base.forks import Descriptor
from sparrow.base.transport import write_pieces
from sparrow.client.port_probe import explain, may_be_wrong_port
from sparrow.client.requests import PendingRequests
from sparrow.client.security import untrusted_error
from sparrow.protocol.native.connection import Connection as Machine
from sparrow.protocol.native.connection import Ended, Received, Role, State, Violation
from sparrow.protocol.native.messages import (
    CONTROL_CHANNEL,
    Closed,
    Error,
    Goodbye,
    Head,
    Hello,
    Ping,
    Request,
    Response,
    Welcome,
)

if TYPE_CHECKING:
    from sparrow.client.url import Address

DRAIN_TIMEOUT_S = 5.0
"""Longest time that a connection waits for confirmations after the broker's goodbye."""
_FIRST_BYTES = 4096
DEFAULT_PING_INTERVAL_S = 20.0
"""Used if the broker announces no idle timeout."""


class ChannelHandler(Protocol):
    """The owner of a channel. All methods are called on the loop and must not block."""

    def received(self, head: Head, batches: memoryview | None) -> None:
        """Handle a frame on the channel. After `Error` or `Closed` the channel is gone."""
        ...

    def writable(self) -> None:
        """Continue sending, after a time in which `accepts` was False."""
        ...


class Connection(asyncio.Protocol):
    """One TCP connection. Loop thread only."""

    def __init__(
        self, address: Address, loop: asyncio.AbstractEventLoop, ping_interval_s: float | None = None
    ) -> None:
        self.address = address
        self._gone: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""
        self.ended: asyncio.Future[SparrowError] = loop.create_future()
        """Done with the reason when the connection has ended."""
        self.welcomed: asyncio.Future[Welcome] = loop.create_future()
        self.accepts = False
        """True if data may be sent now: the broker has welcomed the client, neither side said
        goodbye, and the socket accepts data.
        """
        self.first_heard = b""
        """The first bytes that were received."""
        self.is_native = False
        """True once the peer has sent a frame of the native protocol."""
        self._loop = loop
        self._machine = Machine(Role.CLIENT)
        self.put = self._machine.send
        """Queues a frame, as `send`. It leaves with the `flush` that the caller makes in this
        iteration of the loop, or that follows the frames that are being received.
        """
        self._transport: asyncio.Transport | None = None
        self._descriptor: Descriptor | None = None
        self._handlers: dict[int, ChannelHandler] = {}
        self._next_channel = 1
        self._requests = PendingRequests(loop)
        self._ping_interval_s = ping_interval_s
        self._ping_timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._nonce = 0
        self._pending_replies = 0
        self._is_draining = False
        self._is_paused = False
        self._is_flushing = False

    # ── state ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that this broker accepts."""
        return self._machine.max_batch_bytes

    @property
    def is_over(self) -> bool:
        return self.ended.done()

    @property
    def is_open(self) -> bool:
        """True if channels may be opened and calls made."""
        return self._machine.state is State.OPEN and not self.ended.done() and not self._is_draining

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def send(self, head: Head, channel: int = CONTROL_CHANNEL, batch: bytes | None = None) -> None:
        """Queue a frame; it leaves at the end of this iteration of the loop, or at `flush`."""
        self._machine.send(head, channel, batch)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the queued frames."""
        self._is_flushing = False
        data = self._machine.data_to_send()
        if data and self._transport is not None:
            write_pieces(self._transport, data)

    def open_channel(self, head: Head, handler: ChannelHandler) -> int:
        """Send the frame that opens a channel on a free number, and return the number.

        Raises:
            Overloaded: the connection has as many channels as the broker allows.
            ConnectionLost: the connection has ended or accepts nothing new.
            InvalidArgument: the frame cannot be encoded.
        """
        if not self.is_open:
            raise self._lost("the connection takes nothing new")
        if self._machine.channels >= self._machine.max_channels:
            raise Overloaded(
                f"the connection to {self.address} has {self._machine.max_channels} producers and "
                "subscriptions open, which is the broker's limit; close some, or connect once more"
            )
        while self._next_channel in self._handlers:
            self._next_channel += 1
        number = self._next_channel
        self._next_channel = number + 1
        self.send(head, number)
        self._handlers[number] = handler
        return number

    def may_send(self, head: type[Head], channel: int) -> bool:
        """Return True if the channel may carry such a frame now."""
        return not self.ended.done() and self._machine.may_send(head, channel)

    async def call(self, verb: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Send a REQUEST and return its result.

        Raises:
            ConnectionLost: the connection ended first.
            TimedOut: no response within `timeout_s`.
            SparrowError: the broker's error.
        """
        if not self.is_open:
            raise self._lost("the connection takes nothing new")
        ref, future = self._requests.begin()
        try:
            self.send(Request(ref, verb, arguments))
        except SparrowError:
            future.cancel()
            raise
        self.hold()
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TimedOut(
                f"the broker at {self.address} did not answer {verb} within {timeout_s:g} s; "
                "whether it was done is not known"
            ) from None
        finally:
            self.release()

    # ── closing ───────────────────────────────────────────────────────────────────────────────────

    def hold(self) -> None:
        """Count a reply that a draining connection must wait for."""
        self._pending_replies += 1

    def release(self, replies: int = 1) -> None:
        """Count replies that arrived, or are not waited for any more."""
        self._pending_replies -= replies
        if self._is_draining and self._pending_replies <= 0:
            self._leave()

    async def close(self, timeout_s: float = 1.0) -> None:
        """Say goodbye, wait for the broker's, close the socket."""
        if self._machine.state is State.OPEN and not self.ended.done():
            self.send(Goodbye())
            self.flush()
            await asyncio.wait([self.ended], timeout=timeout_s)
        self.end(ConnectionLost(f"the connection to {self.address} was closed by this client"))
        await self.until_gone()

    async def until_gone(self, timeout_s: float = 0.5) -> None:
        """Wait after the end until TLS has closed its socket, so that the loop may be closed;
        without TLS return at once.
        """
        transport = self._transport
        if transport is None or not self.address.has_tls or self._gone.done():
            return
        await asyncio.wait([self._gone], timeout=timeout_s)
        if not self._gone.done():
            transport.abort()
            await asyncio.wait([self._gone], timeout=timeout_s)

    def forked(self) -> None:
        """Detach from the socket in a child process: it is the parent's."""
        self.accepts = False
        self._handlers.clear()
        if self._descriptor is not None and not self._gone.done():
            self._descriptor.detach()

    def end(self, reason: SparrowError) -> None:
        """End the connection now, because of `reason`; do nothing if it has ended."""
        if self.ended.done():
            return
        self.accepts = False
        self.ended.set_result(reason)
        if not self.welcomed.done():
            self.welcomed.set_exception(reason)
            self.welcomed.exception()  # callers that wait get it, but there may be none
        self._requests.fail(reason if isinstance(reason, ConnectionLost) else self._lost(reason.text))
        self._handlers.clear()
        for timer in (self._ping_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.close()
            # Data that the peer does not read would keep the socket open.
            self._loop.call_later(1.0, self._transport.abort)

    def _lost(self, what: str) -> ConnectionLost:
        return ConnectionLost(f"the connection to the broker at {self.address} was lost: {what}")

    def _leave(self) -> None:
        """Answer the goodbye of a draining broker."""
        if self._machine.may_send(Goodbye):
            self._machine.send(Goodbye())
            self.flush()
        self.end(self._lost("the broker is shutting down (it said goodbye)"))

    # ── the socket ────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1 << 20)
        sock = transport.get_extra_info("socket")
        self._descriptor = None if sock is None else Descriptor.of(sock.fileno())

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if not self.first_heard:
            self.first_heard = data[:_FIRST_BYTES]
        machine = self._machine
        machine.receive_data(data)
        if machine.state is not State.OPEN:
            # The data ends with a goodbye: what is handled before it must send nothing new.
            self.accepts = False
        for event in machine.events():
            if type(event) is Received:
                self.is_native = True
                handler = self._handlers.get(event.channel)
                if handler is not None:
                    if type(event.head) is Error or type(event.head) is Closed:
                        del self._handlers[event.channel]
                    handler.received(event.head, event.batches)
                elif event.channel == CONTROL_CHANNEL:
                    self._control(event.head)
            elif type(event) is Violation:
                self.flush()
                self.end(_violated(event.error, self.address))
        if not self._is_flushing:
            self.flush()

    def eof_received(self) -> bool:
        self._machine.receive_eof()
        for event in self._machine.events():
            if isinstance(event, Ended) and event.error is not None and self.welcomed.done():
                self.end(self._lost(event.error.text))
        self.end(self._lost(self._closed("the broker closed it")))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set_result(None)
        self.end(self._lost(self._closed(str(exc) if exc else "it was closed")))

    def _closed(self, how: str) -> str:
        if self.welcomed.done() or self.address.has_tls:
            return how
        return f"{how} before it answered (if it wants TLS, its URL begins with sparrows://)"

    def pause_writing(self) -> None:
        self._is_paused = True
        self.accepts = False

    def resume_writing(self) -> None:
        self._is_paused = False
        self._accept()

    def _accept(self) -> None:
        self.accepts = self.is_open and not self._is_paused
        if self.accepts:
            for handler in list(self._handlers.values()):
                handler.writable()

    # ── control frames ────────────────────────────────────────────────────────────────────────────

    def _control(self, head: Head) -> None:
        if isinstance(head, Response):
            self._requests.complete(head)
        elif isinstance(head, Welcome):
            self._welcome(head)
        elif isinstance(head, Goodbye):
            self._goodbye(head)
        elif isinstance(head, Error):
            error = from_code(head.code, head.text)
            if (
                type(error) is ProtocolError and not self.welcomed.done()
            ):  # it came from another port of the broker
                error = ProtocolError(f"{self.address} cannot be used: {head.text}")
            self.end(error)

    def _welcome(self, welcome: Welcome) -> None:
        self.welcomed.set_result(welcome)
        self._accept()
        if self._ping_interval_s is None:
            idle_s = welcome.idle_timeout_ms / 1000
            self._ping_interval_s = idle_s / 3 if idle_s > 0 else DEFAULT_PING_INTERVAL_S
        self._ping_timer = self._loop.call_later(self._ping_interval_s, self._ping)

    def _goodbye(self, goodbye: Goodbye) -> None:
        if not self.welcomed.done():
            self.end(turned_away(self.address, goodbye))
            return
        if self._machine.state is State.CLOSED:
            self.end(self._lost("goodbye was said on both sides"))
            return
        self._is_draining = True
        self.accepts = False
        self._drain_timer = self._loop.call_later(DRAIN_TIMEOUT_S, self._leave)
        if self._pending_replies <= 0:
            self._leave()

    def _ping(self) -> None:
        if not self._heard:
            self.end(self._lost(f"it was silent for {self._ping_interval_s:g} s and did not answer a ping"))
            if self._transport is not None:
                self._transport.abort()
            return
        self._heard = False
        self._nonce += 1
        if self._machine.may_send(Ping):
            self.send(Ping(self._nonce))
        if self._ping_interval_s is not None:
            self._ping_timer = self._loop.call_later(self._ping_interval_s, self._ping)


def _violated(error: ProtocolError, address: Address) -> ProtocolError:
    return type(error)(f"the peer at {address} does not speak as a Sparrow broker does: {error.text}")


async def open_connection(
    address: Address,
    hello: Hello,
    timeout_s: float,
    ping_interval_s: float | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    explains: bool = False,
) -> Connection:
    """Connect, say hello, wait for the welcome.

    Args:
        explains: on a failure, find out by further connections which protocol the peer speaks.

    Raises:
        ConnectionLost: no peer answers, or not within `timeout_s`. NotAuthenticated,
            UnsupportedVersion, …: the broker's error instead of a welcome.
        ProtocolError: the peer is not a Sparrow broker.
    """
    loop = asyncio.get_running_loop()
    connection = Connection(address, loop, ping_interval_s)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: connection, address.host, address.port, ssl=tls)
            connection.send(hello)
            await connection.welcomed
    except ssl.SSLCertVerificationError as error:
        refused = untrusted_error(address, error)
        connection.end(refused)
        raise refused from None
    except OSError as error:  # includes TimeoutError and SSLError
        reason: SparrowError = unreachable(address, str(error) or f"no answer within {timeout_s:.3g} s")
        reason.__context__ = error
        connection.end(reason)
        if explains and may_be_wrong_port(reason):
            reason = await asyncio.to_thread(explain, address, reason)
        raise reason from None
    except (ConnectionLost, ProtocolError) as error:
        connection.end(error)
        await connection.until_gone()
        if explains and not connection.is_native and may_be_wrong_port(error):
            raise await asyncio.to_thread(explain, address, error, connection.first_heard) from None
        raise
    except BaseException:
        connection.end(ConnectionLost(f"connecting to {address} was given up"))
        await connection.until_gone()
        raise
    return connection


def turned_away(address: Address, goodbye: Goodbye) -> Draining:
    """Return the error of a broker that says goodbye instead of a welcome; a standby names the
    broker that serves.
    """
    error = Draining(f"the broker at {address} takes no connections now: {goodbye.text or goodbye.code}")
    error.owner = goodbye.address
    return error


def unreachable(address: Address, why: str) -> ConnectionLost:
    """Return the error of a broker that cannot be reached; it names the address and the things to
    check.
    """
    return ConnectionLost(
        f"no broker can be reached at {address}: {why}; check that it runs (sparrow serve), that host and "
        "port are right (the native listener's default is 9094), and that no firewall is between"
    )
