"""One TCP connection to a broker, from hello to its end; it is never revived (`connection.py` opens the next one).

Strategy: the socket feeds the sans-IO state machine, events go by channel number to whoever opened the channel, and everything that is
sent within one turn of the loop leaves in one write. A link ends exactly once, with the reason in `ended`; nothing is delivered to
a handler afterwards.

A broker that drains says GOODBYE: the link takes nothing new (`accepts` turns False), waits for the answers that it owes
(`hold` and `release` count them) for at most `DRAIN_TIMEOUT_S`, answers, and ends as a lost connection does.

A silent broker is found out by PING every `ping_interval_s`: when nothing at all arrived from one ping to the next, the link ends.
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
from sparrow.client.calls import Calls
from sparrow.client.security import untrusted
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
"""How long a link that was told goodbye waits for what it sent to be confirmed."""
DEFAULT_PING_INTERVAL_S = 20.0
"""Where the broker announces no idle timeout."""


class ChannelHandler(Protocol):
    """Who opened a channel. All methods are called on the loop and must not block."""

    def received(self, head: Head, batches: memoryview | None) -> None:
        """A frame on the channel. After `Error` or `Closed` the channel is gone."""
        ...

    def writable(self) -> None:
        """The link takes data again, after a while in which `accepts` was False."""
        ...


class Link(asyncio.Protocol):
    """One connection. Loop thread only."""

    def __init__(
        self, address: Address, loop: asyncio.AbstractEventLoop, ping_interval_s: float | None = None
    ) -> None:
        self.address = address
        self._gone: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""
        self.ended: asyncio.Future[SparrowError] = loop.create_future()
        """Done with the reason when the connection is over."""
        self.welcomed: asyncio.Future[Welcome] = loop.create_future()
        self.accepts = False
        """Whether data may be sent now: welcomed, the socket takes it, and nobody said goodbye."""
        self._loop = loop
        self._machine = Machine(Role.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._handlers: dict[int, ChannelHandler] = {}
        self._next_channel = 1
        self._calls = Calls(loop)
        self._ping_interval_s = ping_interval_s
        self._ping_timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._nonce = 0
        self._owed = 0
        self._is_draining = False
        self._is_paused = False
        self._is_flushing = False

    # ── what one may ask ──────────────────────────────────────────────────────────────────────────

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that this broker takes."""
        return self._machine.max_batch_bytes

    @property
    def is_over(self) -> bool:
        return self.ended.done()

    @property
    def is_open(self) -> bool:
        """Whether channels may be opened and calls made."""
        return self._machine.state is State.OPEN and not self.ended.done() and not self._is_draining

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def send(self, head: Head, channel: int = CONTROL_CHANNEL, batch: bytes | None = None) -> None:
        """Queue a frame; it leaves at the end of this turn of the loop, or at `flush`."""
        self._machine.send(head, channel, batch)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is queued."""
        self._is_flushing = False
        data = self._machine.data_to_send()
        if data and self._transport is not None:
            self._transport.writelines(data)

    def open_channel(self, head: Head, handler: ChannelHandler) -> int:
        """Send the frame that opens a channel on a free number, and return the number.

        Raises:
            Overloaded: the connection has as many channels as the broker allows.
            ConnectionLost: the connection is over or takes nothing new.
            InvalidArgument: what is asked for cannot be said.
        """
        if not self.is_open:
            raise self._lost("the connection takes nothing new")
        if self._machine.channels >= self._machine.max_channels:
            raise Overloaded(
                f"the connection to {self.address} has {self._machine.max_channels} producers and subscriptions open, which is"
                " the broker's limit; close some, or connect once more"
            )
        while self._next_channel in self._handlers:
            self._next_channel += 1
        number = self._next_channel
        self._next_channel = number + 1
        self.send(head, number)
        self._handlers[number] = handler
        return number

    def may_send(self, head: type[Head], channel: int) -> bool:
        """Whether the channel may carry such a frame now."""
        return not self.ended.done() and self._machine.may_send(head, channel)

    async def call(self, verb: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """One REQUEST and its answer.

        Raises:
            ConnectionLost: the connection ended first.
            TimedOut: no answer within `timeout_s`.
            SparrowError: what the broker answered.
        """
        if not self.is_open:
            raise self._lost("the connection takes nothing new")
        ref, future = self._calls.begin()
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
                f"the broker at {self.address} did not answer {verb} within {timeout_s:g} s; whether it was done is not known"
            ) from None
        finally:
            self.release()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def hold(self) -> None:
        """An answer is owed: a draining link waits for it."""
        self._owed += 1

    def release(self, answers: int = 1) -> None:
        """So many answers came, or are not waited for any more."""
        self._owed -= answers
        if self._is_draining and self._owed <= 0:
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
        """After the end: wait until TLS has closed its socket, so that the loop may be closed; without TLS that takes no time."""
        transport = self._transport
        if transport is None or not self.address.has_tls or self._gone.done():
            return
        await asyncio.wait([self._gone], timeout=timeout_s)
        if not self._gone.done():
            transport.abort()
            await asyncio.wait([self._gone], timeout=timeout_s)

    def end(self, reason: SparrowError) -> None:
        """End the link now, because of `reason`. The second time nothing happens."""
        if self.ended.done():
            return
        self.accepts = False
        self.ended.set_result(reason)
        if not self.welcomed.done():
            self.welcomed.set_exception(reason)
            self.welcomed.exception()  # whoever waits learns it; nobody need wait
        self._calls.fail(reason if isinstance(reason, ConnectionLost) else self._lost(reason.text))
        self._handlers.clear()
        for timer in (self._ping_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.close()
            # What the peer does not read would keep the socket open.
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

    def data_received(self, data: bytes) -> None:
        self._heard = True
        machine = self._machine
        machine.receive_data(data)
        for event in machine.events():
            if type(event) is Received:
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

    # ── frames of the connection itself ───────────────────────────────────────────────────────────

    def _control(self, head: Head) -> None:
        if isinstance(head, Response):
            self._calls.answer(head)
        elif isinstance(head, Welcome):
            self._welcome(head)
        elif isinstance(head, Goodbye):
            self._goodbye(head)
        elif isinstance(head, Error):
            self.end(from_code(head.code, head.text))

    def _welcome(self, welcome: Welcome) -> None:
        self.welcomed.set_result(welcome)
        self._accept()
        if self._ping_interval_s is None:
            idle_s = welcome.idle_timeout_ms / 1000
            self._ping_interval_s = idle_s / 3 if idle_s > 0 else DEFAULT_PING_INTERVAL_S
        self._ping_timer = self._loop.call_later(self._ping_interval_s, self._ping)

    def _goodbye(self, goodbye: Goodbye) -> None:
        if self._machine.state is State.CLOSED:
            self.end(self._lost("goodbye was said on both sides"))
            return
        if not self.welcomed.done():
            self.end(
                Draining(
                    f"the broker at {self.address} takes no connections now: {goodbye.text or goodbye.code}"
                )
            )
            return
        self._is_draining = True
        self.accepts = False
        self._drain_timer = self._loop.call_later(DRAIN_TIMEOUT_S, self._leave)
        if self._owed <= 0:
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


async def open_link(
    address: Address,
    hello: Hello,
    timeout_s: float,
    ping_interval_s: float | None = None,
    *,
    tls: ssl.SSLContext | None = None,
) -> Link:
    """Connect, say hello, wait for the welcome.

    Raises:
        ConnectionLost: nobody answers there, or not in `timeout_s`.
        NotAuthenticated, UnsupportedVersion, …: what the broker answered instead of a welcome.
        ProtocolError: who answers is no Sparrow broker.
    """
    loop = asyncio.get_running_loop()
    link = Link(address, loop, ping_interval_s)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: link, address.host, address.port, ssl=tls)
            link.send(hello)
            await link.welcomed
    except ssl.SSLCertVerificationError as error:
        refused = untrusted(address, error)
        link.end(refused)
        raise refused from None
    except OSError as error:  # TimeoutError and SSLError are two
        reason = unreachable(address, str(error) or f"no answer within {timeout_s:.3g} s")
        link.end(reason)
        raise reason from None
    except BaseException:
        link.end(ConnectionLost(f"connecting to {address} was given up"))
        await link.until_gone()
        raise
    return link


def unreachable(address: Address, why: str) -> ConnectionLost:
    """The error of a broker that cannot be reached: names the address and what to check."""
    return ConnectionLost(
        f"no broker can be reached at {address}: {why}; check that it runs (sparrow serve), that host and port are right"
        " (the native door's default is 9094), and that no firewall is between"
    )
