"""One client of the native frontend: its principal, its channels, and the handler of each frame.

The sans-IO state machine has already refused illegal frames. A frame goes to its channel
(`channel_table.py`) or to the request handlers (`requests.py`). Slow work runs in a `WorkQueue`, so
an idle connection has no task. A failure becomes the response to the request, the end of the
channel or, for a bug in this module, the end of the connection. It never ends the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import Draining, FrameTooLarge, NotAuthenticated, Overloaded, SparrowError, TimedOut
from sparrow.base.transport import write_pieces
from sparrow.base.version import VERSION
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.frontends.native import requests
from sparrow.frontends.native.channel_table import ChannelTable
from sparrow.frontends.native.channels import CloseReason
from sparrow.frontends.native.failures import error_of, failure_of, translate
from sparrow.frontends.native.fetch_queue import FetchQueue
from sparrow.frontends.native.throttle import Throttle
from sparrow.frontends.native.work_queue import WorkQueue
from sparrow.frontends.transport.connection import Connection, PauseReason
from sparrow.frontends.transport.liveness import Verdict
from sparrow.frontends.transport.tls import certificate_principal
from sparrow.protocol.native import connection as native
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Ended, Event, Received, Role, State, Violation

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from sparrow.frontends.native.context import Confirmer, NativeContext
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.protocol.native.frames import Buffer


LISTENER: Final = "native"
"""The name of this listener in the audit log."""
MAX_CLIENT_NAME = 255
LOGIN_OVER_S = 1.0
"""Time for a client to read why its login ended, before it is disconnected."""


class NativePause(PauseReason):
    """Reasons of this protocol to pause reading."""

    WINDOW: Final = 8
    """The unconfirmed bytes exceed the window."""
    WORK: Final = 16
    """Too many requests wait."""
    QUOTA: Final = 32
    """The client published more than its quota allows."""
    SETTLE: Final = 64
    """More settlements wait for stable storage than the limit allows."""
    HELD: Final = 256
    """Another broker may own the data: nothing is answered before that is known."""


class NativeConnection(Connection["NativeContext"], asyncio.Protocol):
    """The connection and the state of one client. Loop thread only."""

    __slots__ = (
        "_certified",
        "_fetches",
        "_held",
        "_is_finishing",
        "_is_receiving",
        "_login",
        "_to_confirm",
        "_unconfirmed_bytes",
        "_unsettled_ranges",
        "_waiting_work",
        "_work",
        "broker",
        "channels",
        "client_name",
        "limits",
        "logger",
        "measures",
        "peer",
        "principal",
        "protocol",
        "session_id",
        "throttle",
    )

    def __init__(self, context: NativeContext) -> None:
        super().__init__(context)
        self.broker = context.broker
        self.limits = limits = context.limits
        self.logger = context.logger
        self.measures = context.measures
        self.protocol = native.Connection(
            Role.BROKER, max_frame_bytes=limits.max_frame_bytes, max_channels=limits.max_channels
        )
        self.session_id = f"n{next(context.session_numbers)}"
        self.peer = "?"
        self.client_name = ""
        self.principal = ANONYMOUS
        self._certified: Principal | None = None
        """The principal that the TLS certificate names, if TLS asked for one."""
        self._login: asyncio.Future[Any] | None = None
        self._held = bytearray()
        """Bytes that came while the broker was not current."""
        self.channels = ChannelTable(self)
        self._to_confirm: list[Confirmer] = []
        self._unconfirmed_bytes = 0
        self._unsettled_ranges = 0
        self._waiting_work = 0
        self._work: WorkQueue | None = None
        self._fetches: FetchQueue | None = None
        self._is_finishing = self._is_receiving = False
        self.throttle = Throttle(
            context.broker.quotas,
            pause=partial(self.pause_reading, NativePause.QUOTA),
            resume=partial(self.resume_reading, NativePause.QUOTA),
            ping=self._send_ping,
            idle_timeout_ms=limits.idle_timeout_ms,
        )

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        assert self.transport is not None
        address = self.transport.get_extra_info("peername")
        self.peer = (
            f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address or "a local peer")
        )
        self._certified = certificate_principal(self.transport)
        self.guard.hold(self._certified)

    def refused(self, why: SparrowError) -> None:
        self.end_with(why)
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._held or not self.broker.is_current():
            self._hold(data)
            return
        if self.is_leaving or (not self.received_bytes and self.is_stranger(data)):
            return
        self.received_bytes += len(data)
        self._is_receiving = True
        protocol = self.protocol
        protocol.receive_data(data)
        try:
            for event in protocol.events():
                if not isinstance(event, Received):
                    self._protocol_ended(event)
                elif event.batches is None:
                    handle = _HANDLERS.get(type(event.head))
                    if handle is None:
                        self.channels.handle(event.channel, event.head)
                    else:
                        handle(self, event.channel, event.head)
                elif isinstance(event.head, m.Publish) and event.channel in self.channels.producers:
                    self.channels.producers[event.channel].publish(event.head, event.batches)
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self.failed(error)
        self._is_receiving = False
        if protocol.bytes_wanted != self._reserved_bytes:
            self.reserve_input(protocol.bytes_wanted)
        self.flush()

    def _hold(self, data: bytes) -> None:
        """Keep what came until the broker is current."""
        if not self._held:
            self.context.when_current(self._take_held)
        self._held += data
        self.pause_reading(NativePause.HELD)

    def _take_held(self) -> None:
        held, self._held = bytes(self._held), bytearray()
        self.resume_reading(NativePause.HELD)
        if held and self.transport is not None:
            self.data_received(held)

    def eof_received(self) -> bool:
        self.protocol.receive_eof()
        for event in self.protocol.events():
            self._protocol_ended(event)
        return False

    def _protocol_ended(self, event: Event) -> None:
        if isinstance(event, Violation):
            self.logger.info("%s broke the protocol and is disconnected: %s", self.peer, event.error)
        elif isinstance(event, Ended):
            self.close()

    def flush(self) -> None:
        """Write queued frames; end the connection if the protocol allows no more. While received
        frames are handled, those that they cause are written together at the end.
        """
        self._is_flush_scheduled = False
        transport = self.transport
        if self._is_receiving or self.is_leaving or transport is None:
            return
        to_confirm = self._to_confirm
        if to_confirm:
            self._to_confirm = []
            for producer in to_confirm:
                producer.flush()
        if self._is_finishing and self.is_settled:
            self._is_finishing = False
            if self.protocol.may_send(m.Goodbye):
                self.send(m.Goodbye())
        protocol = self.protocol
        if protocol.queued:
            pieces = protocol.data_to_send()
            if not transport.is_closing():
                write_pieces(transport, pieces)
        if protocol.state is State.CLOSED:
            if protocol.goodbye_received:
                self.close()
            else:
                self.end()

    def writable(self) -> None:
        self.channels.writable()
        if self._work is not None:
            self._work.resume()
        if self._fetches is not None:
            self._fetches.resume()

    def lost(self) -> None:
        self.protocol.receive_eof()
        if self._login is not None:  # do not hash a password that no client waits for
            self._login.cancel()
        self.throttle.close()
        if self._work is not None:
            self._work.cancel()
        if self._fetches is not None:
            self._fetches.cancel()
        self.channels.lost(self._close_reason)

    def failed(self, error: Exception) -> None:
        self.end_with(translate(error, "handling a frame", self.logger))

    # ── for the channels ──────────────────────────────────────────────────────────────────────────

    @property
    def max_batch_bytes(self) -> int:
        return self.protocol.max_batch_bytes

    @property
    def max_deliver_bytes(self) -> int:
        return min(self.limits.max_deliver_bytes, self.max_batch_bytes)

    @property
    def max_fetch_bytes(self) -> int:
        return min(self.limits.max_fetch_bytes, self.max_batch_bytes)

    def send(self, head: m.Head, channel: int = 0, batches: Buffer | Sequence[Buffer] | None = None) -> None:
        """Queue a frame. Drop it if the connection is closed."""
        if self.protocol.state is not State.CLOSED:
            self.protocol.send(head, channel, batches)

    def may_send(self, head: type[m.Head], channel: int) -> bool:
        """Return True if the protocol allows this frame on the channel now."""
        return self.protocol.may_send(head, channel)

    def reserve(self) -> Reservation:
        """Return a memory reservation for records to be sent."""
        return self.backlog.reservation()

    def confirm(self, producer: Confirmer, *, at_once: bool = False) -> None:
        """Call `producer.flush` before the next write: now, or at the end of this iteration of the
        event loop.
        """
        self._to_confirm.append(producer)
        if at_once:
            self.flush()
        else:
            self.flush_soon()

    def charge(self, producer: Confirmer, change_bytes: int) -> None:
        """Change the unconfirmed bytes. Pause reading while they exceed a window."""
        producer.unconfirmed_bytes += change_bytes
        self._unconfirmed_bytes += change_bytes
        if change_bytes > 0:
            limits = self.limits
            if (
                producer.unconfirmed_bytes > limits.window_bytes
                or self._unconfirmed_bytes > limits.connection_window_bytes
            ):
                self.pause_reading(NativePause.WINDOW)
        else:
            if self._pause_reasons & NativePause.WINDOW and self._is_within_windows():
                self.resume_reading(NativePause.WINDOW)
            if self._is_finishing:
                self.flush_soon()

    def settling_changed(self, change: int) -> None:
        """Record a change of the ranges that wait for stable storage. Pause reading above the
        limit.
        """
        self._unsettled_ranges += change
        if self._unsettled_ranges > self.limits.max_unsettled_ranges:
            self.pause_reading(NativePause.SETTLE)
        elif change < 0:
            if self._pause_reasons & NativePause.SETTLE:
                self.resume_reading(NativePause.SETTLE)
            if self._is_finishing:
                self.flush_soon()

    def _send_ping(self) -> None:
        if self.protocol.may_send(m.Ping):
            self.send(m.Ping(0))
            self.flush_soon()

    def may_work(self) -> bool:
        """Return True if the peer reads: otherwise responses would only pile up."""
        return self.can_write

    def work_changed(self, change: int) -> None:
        """Record a change of the number of waiting jobs. Pause reading while there are too many."""
        self._waiting_work += change
        if self._waiting_work > self.limits.max_waiting_work:
            self.pause_reading(NativePause.WORK)
        elif change < 0:
            self.resume_reading(NativePause.WORK)
        if self._is_finishing:
            self.flush_soon()

    def forget(self, number: int) -> None:
        """Remove a producer channel that is done."""
        self.channels.producers.pop(number, None)

    def end_channel(self, number: int, error: SparrowError) -> None:
        """Send ERROR on a channel and free it."""
        self.channels.end(number, CloseReason.ENDED)
        if self.may_send(m.Error, number):
            self.send(error_of(error), number)
            self.flush_soon()

    def end_with(self, error: SparrowError) -> None:
        """Send ERROR on channel 0 and close the connection."""
        self.send(error_of(error))
        self.flush_soon()

    def _is_within_windows(self) -> bool:
        limits = self.limits
        return self._unconfirmed_bytes <= limits.connection_window_bytes and all(
            producer.unconfirmed_bytes <= limits.window_bytes for producer in self.channels.producers.values()
        )

    @property
    def is_draining(self) -> bool:
        """True if the broker has said goodbye: no channel is opened any more."""
        return self.protocol.goodbye_sent

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; it continues when the connection is lost."""
        self.context.spawn(work)

    def run(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a job concurrently with other jobs of the connection."""
        if self._work is None:
            self._work = WorkQueue(self.limits.max_concurrent_calls, self.may_work, self.work_changed)
        self._work.add(job)

    # ── hello and goodbye ─────────────────────────────────────────────────────────────────────────

    def on_hello(self, _: int, head: m.Hello) -> None:
        self.client_name = head.client_name[:MAX_CLIENT_NAME]
        if self._certified is not None and not head.credentials:
            self._welcome(self._certified)
            return
        try:
            principal = self.context.authenticator.authenticate(head.credentials, self.host or self.peer)
        except Exception as error:  # noqa: BLE001 - the connection ends, not the broker
            self._login = self.context.spawn(self._refuse(error, head.credentials))
            return
        if isinstance(principal, Principal):
            self._welcome(self._identity(principal))
        else:
            self._login = login = asyncio.ensure_future(principal)
            login.add_done_callback(partial(self._authenticated, head.credentials))

    def _identity(self, principal: Principal) -> Principal:
        """Return the principal to use. Credentials without a name do not override a certificate."""
        return self._certified if principal == ANONYMOUS and self._certified is not None else principal

    def _authenticated(self, credentials: Mapping[str, str], done: asyncio.Future[Principal]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._login = self.context.spawn(self._refuse(error, credentials))
            return
        self._welcome(self._identity(done.result()))
        self.flush()

    async def _refuse(self, error: Exception, credentials: Mapping[str, str]) -> None:
        """Wait, so that guessing passwords is slow; then send the reason and end the connection."""
        failure = translate(error, "authentication", self.logger)
        if isinstance(failure, NotAuthenticated | Overloaded):
            mechanism = "password" if "user" in credentials else "token" if credentials else "none"
            self.broker.audit.login_refused(
                LISTENER, self.host, failure, claims=credentials.get("user", ""), mechanism=mechanism
            )
        self.logger.debug("%s is not let in: %s", self.peer, failure)
        await asyncio.sleep(self.limits.failed_authentication_delay_ms / 1000)
        self.end_with(failure)
        self.flush()

    def _welcome(self, principal: Principal) -> None:
        self.principal = replace(principal, host=self.host, listener=LISTENER)
        self.throttle.principal, self.throttle.client = self.principal, self.client_name
        self.is_known = True
        if self.slot is not None:
            self.slot.settle()
        self.guard.hold(self.principal)
        if self.context.find_owner is not None:
            self._send_away(self.context.find_owner())
            return
        protocol = self.protocol
        self.send(
            m.Welcome(
                protocol.version,
                VERSION,
                self.broker.cluster_id,
                self.session_id,
                protocol.max_frame_bytes,
                protocol.max_channels,
                self.limits.idle_timeout_ms,
            )
        )
        if self.context.is_stopping:
            self.drain()

    def _send_away(self, owner: str) -> None:
        """Tell a client which broker serves it, and end the connection."""
        where = f"connect to {owner}" if owner else "no broker owns the data at the moment; connect again"
        self.send(m.Goodbye("DRAINING", f"This broker stands by; {where}.", owner))
        self.flush_soon()

    def login_is_over(self, why: str) -> None:
        """Tell the client why its login ended, and disconnect it after `LOGIN_OVER_S`."""
        self.logger.info("%s is disconnected: %s", self.peer, why)
        self.end_with(NotAuthenticated(f"This session is over: {why}."))
        self.flush()
        self.context.loop.call_later(LOGIN_OVER_S, self.abort)

    def on_goodbye(self, _: int, head: m.Goodbye) -> None:  # noqa: ARG002 - the reason does not matter
        """Close the channels after their pending commits, and finish pending responses; then
        `before_flush` says goodbye.
        """
        self.channels.close_readers(self._close_reason)
        if self._fetches is not None:
            self._fetches.interrupt()
        self._is_finishing = True

    @property
    def _close_reason(self) -> CloseReason:
        """The reason to close channels: LEFT if the client is done. A client that leaves because
        the broker shuts down only reconnects elsewhere, so it keeps its memberships and leases.
        """
        is_done = self.protocol.goodbye_received and not self.context.is_stopping
        return CloseReason.LEFT if is_done else CloseReason.LOST

    def drain(self) -> None:
        """Say goodbye because the broker shuts down. A client that said goodbye first gets the
        response when all pending frames are sent.
        """
        if self.protocol.goodbye_received:
            return
        if self.protocol.may_send(m.Welcome) or not self.protocol.may_send(m.Goodbye):
            self.end_with(Draining("The broker is shutting down; connect again later."))
        else:
            self.send(m.Goodbye("DRAINING", "The broker is shutting down; connect again later."))
            self.channels.drain()
            if self._fetches is not None:
                self._fetches.interrupt()
        self.flush_soon()

    def close_after_flush(self) -> None:
        """Close the connection when the queued frames are sent."""
        self.flush()
        self.close()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    def on_request(self, _: int, head: m.Request) -> None:
        self.run(
            lambda: self.respond(head.ref, 0, requests.handle_request(self.context, self.principal, head))
        )

    async def respond(self, ref: int, channel: int, call: Coroutine[Any, Any, Any]) -> None:
        """Send the result or the failure of a request."""
        try:
            response = m.Response(ref, None, await call)
        except Exception as error:  # noqa: BLE001 - a call fails, nothing else
            response = m.Response(ref, failure_of(translate(error, "a call", self.logger)))
        self._send_response(response, channel)
        self.flush()

    def _send_response(self, response: m.Response, channel: int) -> None:
        if not self.may_send(m.Response, channel):
            return
        try:
            self.send(response, channel)
        except FrameTooLarge as error:
            failure = Overloaded(
                f"The response does not fit into a frame; ask for less, such as a narrower pattern. {error}"
            )
            self.send(
                m.Response(response.ref, m.Failure(failure.code, failure.text, retriable=False)), channel
            )

    def on_fetch(self, _: int, head: m.Fetch) -> None:
        if self._fetches is None:
            self._fetches = FetchQueue(self)
        self._fetches.add(head)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """True if no response, confirmation or settlement is pending."""
        return self.is_lost or (
            (self._work is None or self._work.is_idle)
            and (self._fetches is None or self._fetches.is_idle)
            and self.channels.is_settled
        )

    @property
    def is_idle(self) -> bool:
        """True if nothing is pending and no channel is open."""
        return self.is_settled and not self.protocol.channels

    @property
    def unfinished_bytes(self) -> int:
        return self.protocol.bytes_wanted or self.protocol.buffered_bytes

    def alive(self) -> None:
        self.channels.heartbeat()

    def overdue(self, verdict: Verdict) -> None:
        self.logger.info("%s is disconnected: %s", self.peer, verdict.value)
        limits = self.limits
        if verdict is Verdict.NOT_KNOWN:
            self.end_with(
                TimedOut(f"No HELLO came within {limits.hello_timeout_ms} ms; it must be the first frame.")
            )
        elif verdict is Verdict.STALLED:
            self.end_with(
                TimedOut(f"A frame made no progress for {limits.stall_timeout_ms} ms; send it again.")
            )
        elif self.protocol.may_send(m.Goodbye):
            self.channels.end_silent(limits.idle_timeout_ms)
            text = f"Nothing came for {limits.idle_timeout_ms} ms; ping to stay connected."
            self.send(m.Goodbye("IDLE", text))
        self.flush()
        self.end()


FrameHandler = Callable[[NativeConnection, int, Any], None]


def _to_channels(handle: Callable[[ChannelTable, int, Any], None]) -> FrameHandler:
    return lambda connection, number, head: handle(connection.channels, number, head)


_HANDLERS: Final[dict[type[m.Head], FrameHandler]] = {
    m.Hello: NativeConnection.on_hello,
    m.Goodbye: NativeConnection.on_goodbye,
    m.Pong: lambda *_: None,
    m.Error: lambda *_: None,
    m.Request: NativeConnection.on_request,
    m.Fetch: NativeConnection.on_fetch,
    m.OpenProducer: _to_channels(ChannelTable.open_producer),
    m.Subscribe: _to_channels(ChannelTable.subscribe),
    m.OpenQueue: _to_channels(ChannelTable.open_queue),
    m.Close: _to_channels(ChannelTable.close),
}
"""Handlers by type; all other frames are for a reading channel."""
