"""One client of the native frontend: its principal, its channels, and the handler of each frame.

The state machine has already refused illegal frames. This module hands a frame to its channel
(`channel_table.py`) or to the request handlers (`requests.py`). Slow work runs in a `WorkQueue`, so
an idle connection has no task. A failure becomes the response to the request, the end of the
channel or, for a bug in this module, the end of the connection. It never ends the broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import Draining, FrameTooLarge, NotAuthenticated, Overloaded, SparrowError, TimedOut
from sparrow.base.version import version
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.broker.access.sessions import Guard
from sparrow.frontends.native import requests
from sparrow.frontends.native.channel_table import ChannelTable
from sparrow.frontends.native.channels import CloseReason
from sparrow.frontends.native.connection import NativeConnection, PauseReason
from sparrow.frontends.native.failures import error_of, failure_of, translate
from sparrow.frontends.native.fetch_queue import FetchQueue
from sparrow.frontends.native.liveness import Liveness, Observation, Verdict
from sparrow.frontends.native.throttle import Throttle
from sparrow.frontends.native.work_queue import WorkQueue
from sparrow.frontends.transport.tls import certificate_principal
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Ended, Event, Received, State, Violation

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sparrow.broker.broker import Broker
    from sparrow.broker.measures import FrontendMeasures
    from sparrow.frontends.native.context import Confirmer, FrontendContext
    from sparrow.frontends.native.limits import NativeLimits
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.send_budget import Backlog, Reservation
    from sparrow.protocol.native.frames import Buffer


LISTENER: Final = "native"
"""The name of this listener in the audit log."""
MAX_CLIENT_NAME = 255
LAST_WORDS_S = 1.0
"""Time for a client to read why its login ended, before it is disconnected."""


class NativeSession:
    """The state of one client connection. Loop thread only."""

    __slots__ = (
        "_backlog",
        "_certified",
        "_channels",
        "_connection",
        "_ending_since",
        "_fetches",
        "_frontend",
        "_guard",
        "_host",
        "_is_finishing",
        "_liveness",
        "_login",
        "_throttle",
        "_to_confirm",
        "_unconfirmed_bytes",
        "_unsettled_ranges",
        "_waiting_work",
        "_work",
        "broker",
        "client_name",
        "is_lost",
        "limits",
        "logger",
        "peer",
        "principal",
        "session_id",
        "slot",
    )

    def __init__(self, frontend: FrontendContext, connection: NativeConnection, session_id: str) -> None:
        self.broker: Broker = frontend.broker
        self.limits: NativeLimits = frontend.limits
        self.logger: logging.Logger = frontend.logger
        self.session_id = session_id
        self.peer = "?"
        self.slot: ConnectionSlot | None = None
        self.client_name = ""
        self.principal = ANONYMOUS
        self._host = ""
        self._certified: Principal | None = None
        """The principal that the TLS certificate names, if TLS asked for one."""
        self._frontend = frontend
        self._guard = Guard(frontend.broker.sessions, self._login_is_over)
        self._login: asyncio.Future[Any] | None = None
        self._connection = connection
        self._liveness = Liveness(frontend.broker.clock.monotonic())
        self._channels = ChannelTable(self)
        self._to_confirm: list[Confirmer] = []
        self._unconfirmed_bytes = 0
        self._unsettled_ranges = 0
        self._backlog: Backlog | None = None
        self._waiting_work = 0
        self._work: WorkQueue | None = None
        self._fetches: FetchQueue | None = None
        self.is_lost = False
        self._is_finishing = False
        self._ending_since: float | None = None
        self._throttle = Throttle(
            frontend.broker.quotas,
            pause=partial(connection.pause_reading, PauseReason.QUOTA),
            resume=partial(connection.resume_reading, PauseReason.QUOTA),
            ping=self._send_ping,
            idle_timeout_ms=frontend.limits.idle_timeout_ms,
        )

    # ── called by the connection ──────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        assert self._connection.transport is not None
        address = self._connection.transport.get_extra_info("peername")
        self.peer = (
            f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address or "a local peer")
        )
        self._host = str(address[0]) if isinstance(address, tuple) else ""
        self._certified = certificate_principal(self._connection.transport)
        refusal = self._frontend.admit(self)
        if refusal is not None:
            self.end(refusal)
            return
        self._guard.hold(self._certified)

    def handle(self, event: Event) -> None:
        if isinstance(event, Received):
            if event.batches is not None:
                self._channels.publish(event.channel, event.head, event.batches)
            else:
                _HANDLERS[type(event.head)](self, event.channel, event.head)
        elif isinstance(event, Violation):
            self.logger.info("%s broke the protocol and is disconnected: %s", self.peer, event.error)
        elif isinstance(event, Ended):
            self._connection.close()

    def before_flush(self) -> None:
        to_confirm = self._to_confirm
        if to_confirm:
            self._to_confirm = []
            for producer in to_confirm:
                producer.flush()
        if self._is_finishing and self.is_settled:
            self._is_finishing = False
            if self._connection.protocol.may_send(m.Goodbye):
                self.send(m.Goodbye())

    def writable(self) -> None:
        self._channels.writable()
        if self._work is not None:
            self._work.resume()
        if self._fetches is not None:
            self._fetches.resume()

    def lost(self) -> None:
        self.is_lost = True
        self._guard.close()
        if self._login is not None:  # do not hash a password that no client waits for
            self._login.cancel()
        self._throttle.close()
        if self._backlog is not None:
            self._backlog.close()
        if self._work is not None:
            self._work.cancel()
        if self._fetches is not None:
            self._fetches.cancel()
        self._channels.lost(self._close_reason)
        self._frontend.dismiss(self)

    def failed(self, error: Exception) -> None:
        self.end(translate(error, "handling a frame", self.logger))

    @property
    def host(self) -> str:
        """The IP address of the client, without its port."""
        return self._host

    # ── for the channels ──────────────────────────────────────────────────────────────────────────

    @property
    def can_write(self) -> bool:
        """True if the peer reads what it is sent."""
        return self._connection.can_write

    @property
    def max_batch_bytes(self) -> int:
        return self._connection.protocol.max_batch_bytes

    @property
    def max_deliver_bytes(self) -> int:
        return min(self.limits.max_deliver_bytes, self.max_batch_bytes)

    @property
    def max_fetch_bytes(self) -> int:
        return min(self.limits.max_fetch_bytes, self.max_batch_bytes)

    @property
    def measures(self) -> FrontendMeasures:
        return self._frontend.measures

    def send(self, head: m.Head, channel: int = 0, batches: Buffer | Sequence[Buffer] | None = None) -> None:
        """Queue a frame. Drop it if the connection is closed."""
        if self._connection.protocol.state is not State.CLOSED:
            self._connection.protocol.send(head, channel, batches)

    def may_send(self, head: type[m.Head], channel: int) -> bool:
        """Return True if the protocol allows this frame on the channel now."""
        return self._connection.protocol.may_send(head, channel)

    def reserve(self) -> Reservation:
        """Return a memory reservation for records to be sent."""
        if self._backlog is None:
            connection = self._connection
            self._backlog = self._frontend.send_budget.backlog(
                lambda: connection.unsent_bytes, self._end_slow_reader
            )
        return self._backlog.reservation()

    def _end_slow_reader(self, why: str) -> None:
        self.logger.warning("%s is disconnected: %s", self.peer, why)
        self.abort()

    def flush_soon(self) -> None:
        self._connection.flush_soon()

    def flush(self) -> None:
        """Write queued frames now."""
        self._connection.flush()

    def confirm_soon(self, producer: Confirmer) -> None:
        """Call `producer.flush` before the next write."""
        self._to_confirm.append(producer)
        self._connection.flush_soon()

    def charge(self, producer: Confirmer, change_bytes: int) -> None:
        """Record a change of the unconfirmed bytes. Pause reading while they exceed a window."""
        self._unconfirmed_bytes += change_bytes
        if change_bytes > 0:
            limits = self.limits
            if (
                producer.unconfirmed_bytes > limits.window_bytes
                or self._unconfirmed_bytes > limits.connection_window_bytes
            ):
                self._connection.pause_reading(PauseReason.WINDOW)
        else:
            if self._connection.is_paused_by_us and self._is_within_windows():
                self._connection.resume_reading(PauseReason.WINDOW)
            if self._is_finishing:
                self._connection.flush_soon()

    def settling_changed(self, change: int) -> None:
        """Record a change of the ranges that wait for stable storage. Pause reading above the
        limit.
        """
        self._unsettled_ranges += change
        if self._unsettled_ranges > self.limits.max_unsettled_ranges:
            self._connection.pause_reading(PauseReason.SETTLE)
        elif change < 0:
            self._connection.resume_reading(PauseReason.SETTLE)
            if self._is_finishing:
                self._connection.flush_soon()

    def count_published(self, size_bytes: int) -> None:
        """Charge the client's publish quota. Over the quota, reading pauses for a while."""
        self._throttle.published(self.principal, self.client_name, size_bytes)

    def count_delivered(self, size_bytes: int) -> None:
        """Charge the client's delivery quota. Over the quota, `wait_to_deliver` waits."""
        self._throttle.delivered(self.principal, self.client_name, size_bytes)

    def may_deliver(self) -> bool:
        """Return True if the connection can be written to and the client's quota allows a
        delivery.
        """
        return self.can_write and self._throttle.may_deliver()

    async def wait_to_deliver(self) -> None:
        """Wait until the client's quota allows a delivery."""
        await self._throttle.wait_to_deliver()

    def max_delivery_bytes(self, wanted: int) -> int:
        """Return `wanted`, or the most that the client's quota can ever allow in one delivery."""
        return self._throttle.max_delivery_bytes(self.principal, self.client_name, wanted)

    def _send_ping(self) -> None:
        if self._connection.protocol.may_send(m.Ping):
            self.send(m.Ping(0))
            self._connection.flush_soon()

    def may_work(self) -> bool:
        """Return True if the peer reads: otherwise responses would only pile up."""
        return self._connection.can_write

    def work_changed(self, change: int) -> None:
        """Record a change of the number of waiting jobs. Pause reading while there are too many."""
        self._waiting_work += change
        if self._waiting_work > self.limits.max_waiting_work:
            self._connection.pause_reading(PauseReason.WORK)
        elif change < 0:
            self._connection.resume_reading(PauseReason.WORK)
        if self._is_finishing:
            self._connection.flush_soon()

    def forget(self, number: int) -> None:
        """Remove a producer channel that is done."""
        self._channels.producers.pop(number, None)

    def end_channel(self, number: int, error: SparrowError) -> None:
        """Send ERROR on a channel and free it."""
        self._channels.end(number, CloseReason.ENDED)
        if self.may_send(m.Error, number):
            self.send(error_of(error), number)
            self._connection.flush_soon()

    def end(self, error: SparrowError) -> None:
        """Send ERROR on channel 0 and close the connection."""
        self.send(error_of(error))
        self._connection.flush_soon()

    def _is_within_windows(self) -> bool:
        limits = self.limits
        return self._unconfirmed_bytes <= limits.connection_window_bytes and all(
            producer.unconfirmed_bytes <= limits.window_bytes
            for producer in self._channels.producers.values()
        )

    @property
    def is_draining(self) -> bool:
        """True if the broker has said goodbye: no channel is opened any more."""
        return self._connection.protocol.goodbye_sent

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; it continues when the connection is lost."""
        self._frontend.spawn(work)

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
            principal = self._frontend.authenticator.authenticate(head.credentials, self._host or self.peer)
        except Exception as error:  # noqa: BLE001 - the connection ends, not the broker
            self._login = self._frontend.spawn(self._refuse(error, head.credentials))
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
            self._login = self._frontend.spawn(self._refuse(error, credentials))
            return
        self._welcome(self._identity(done.result()))
        self._connection.flush()

    async def _refuse(self, error: Exception, credentials: Mapping[str, str]) -> None:
        """Wait, so that guessing passwords is slow; then send the reason and end the connection."""
        failure = translate(error, "authentication", self.logger)
        if isinstance(failure, NotAuthenticated | Overloaded):
            mechanism = "password" if "user" in credentials else "token" if credentials else "none"
            self.broker.audit.login_refused(
                LISTENER, self._host, failure, claims=credentials.get("user", ""), mechanism=mechanism
            )
        self.logger.debug("%s is not let in: %s", self.peer, failure)
        await asyncio.sleep(self.limits.failed_authentication_delay_ms / 1000)
        self.end(failure)
        self._connection.flush()

    def _welcome(self, principal: Principal) -> None:
        self.principal = replace(principal, host=self._host, listener=LISTENER)
        if self.slot is not None:
            self.slot.settle()
        self._guard.hold(self.principal)
        protocol = self._connection.protocol
        self.send(
            m.Welcome(
                protocol.version,
                version(),
                self.broker.cluster_id,
                self.session_id,
                protocol.max_frame_bytes,
                protocol.max_channels,
                self.limits.idle_timeout_ms,
            )
        )
        if self._frontend.is_draining:
            self.drain()

    def _login_is_over(self, why: str) -> None:
        """Tell the client why its login ended, and disconnect it after `LAST_WORDS_S`."""
        self.logger.info("%s is disconnected: %s", self.peer, why)
        self.end(NotAuthenticated(f"This session is over: {why}."))
        self._connection.flush()
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self.abort)

    def on_goodbye(self, _: int, head: m.Goodbye) -> None:  # noqa: ARG002 - the reason does not matter
        """Close the channels after their pending commits, and finish pending responses; then
        `before_flush` says goodbye.
        """
        self._channels.close_readers(self._close_reason)
        if self._fetches is not None:
            self._fetches.interrupt()
        self._is_finishing = True

    @property
    def _close_reason(self) -> CloseReason:
        """The reason to close channels: LEFT if the client is done. A client that leaves because
        the broker shuts down only reconnects elsewhere, so it keeps its memberships and leases.
        """
        is_done = self._connection.protocol.goodbye_received and not self._frontend.is_draining
        return CloseReason.LEFT if is_done else CloseReason.LOST

    def drain(self) -> None:
        """Say goodbye because the broker shuts down. A client that said goodbye first gets the
        response when all pending frames are sent.
        """
        if self._connection.protocol.goodbye_received:
            return
        if self._connection.protocol.may_send(m.Welcome) or not self._connection.protocol.may_send(m.Goodbye):
            self.end(Draining("The broker is shutting down; connect again later."))
        else:
            self.send(m.Goodbye("DRAINING", "The broker is shutting down; connect again later."))
            self._channels.drain()
            if self._fetches is not None:
                self._fetches.interrupt()
        self._connection.flush_soon()

    def stop_reading(self) -> None:
        """Read nothing more, but confirm what was received."""
        self._connection.pause_reading(PauseReason.DRAIN)

    def close(self) -> None:
        """Close the connection when the queued frames are sent."""
        self._connection.flush()
        self._connection.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._connection.abort()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    def on_request(self, _: int, head: m.Request) -> None:
        self.run(
            lambda: self.respond(head.ref, 0, requests.handle_request(self._frontend, self.principal, head))
        )

    async def respond(self, ref: int, channel: int, call: Coroutine[Any, Any, Any]) -> None:
        """Send the result or the failure of a request."""
        try:
            response = m.Response(ref, None, await call)
        except Exception as error:  # noqa: BLE001 - a call fails, nothing else
            response = m.Response(ref, failure_of(translate(error, "a call", self.logger)))
        self._send_response(response, channel)
        self._connection.flush()

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

    # ── channels ──────────────────────────────────────────────────────────────────────────────────

    def on_open_producer(self, number: int, head: m.OpenProducer) -> None:
        self._channels.open_producer(number, head)

    def on_subscribe(self, number: int, head: m.Subscribe) -> None:
        self._channels.subscribe(number, head)

    def on_open_queue(self, number: int, head: m.OpenQueue) -> None:
        self._channels.open_queue(number, head)

    def on_channel_frame(self, number: int, head: m.Head) -> None:
        self._channels.handle(number, head)

    def on_close(self, number: int, head: m.Close) -> None:  # noqa: ARG002 - it has no fields
        self._channels.close(number)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """True if no response, confirmation or settlement is pending."""
        return self.is_lost or (
            (self._work is None or self._work.is_idle)
            and (self._fetches is None or self._fetches.is_idle)
            and self._channels.is_settled
        )

    @property
    def is_idle(self) -> bool:
        """True if nothing is pending and no channel is open."""
        return self.is_settled and not self._connection.protocol.channels

    def sweep(self, now: float) -> None:
        """Check the timeouts of the connection. Called about every `sweep_interval_ms`."""
        if self._connection.is_ending:
            self._sweep_ending(now)
            return
        protocol = self._connection.protocol
        observation = Observation(
            is_open=protocol.state not in (State.AWAIT_HELLO, State.AWAIT_WELCOME),
            received_bytes=self._connection.received_bytes,
            unsent_bytes=self._connection.unsent_bytes,
            is_paused=self._connection.is_paused_by_us,
            frame_bytes=protocol.bytes_wanted or protocol.buffered_bytes,
        )
        verdict = self._liveness.check(now, observation, self.limits)
        if verdict is Verdict.ALIVE:
            self._channels.heartbeat()
        elif verdict is not Verdict.SILENT:
            self._disconnect(verdict)

    def _sweep_ending(self, now: float) -> None:
        if self._ending_since is None:
            self._ending_since = now
        elif now - self._ending_since > self.limits.closing_timeout_ms / 1000:
            self._connection.abort()

    def _disconnect(self, verdict: Verdict) -> None:
        self.logger.info("%s is disconnected: %s", self.peer, verdict.value)
        limits = self.limits
        if verdict is Verdict.NO_HELLO:
            self.end(
                TimedOut(f"No HELLO came within {limits.hello_timeout_ms} ms; it must be the first frame.")
            )
        elif verdict is Verdict.STALLED:
            self.end(TimedOut(f"A frame made no progress for {limits.stall_timeout_ms} ms; send it again."))
        elif self._connection.protocol.may_send(m.Goodbye):
            self._channels.end_silent(limits.idle_timeout_ms)
            text = f"Nothing came for {limits.idle_timeout_ms} ms; ping to stay connected."
            self.send(m.Goodbye("IDLE", text))
        self._connection.flush()
        self._connection.end()


_HANDLERS: Final[dict[type[m.Head], Callable[[NativeSession, int, Any], None]]] = {
    m.Hello: NativeSession.on_hello,
    m.Goodbye: NativeSession.on_goodbye,
    m.Pong: lambda *_: None,
    m.Error: lambda *_: None,
    m.Request: NativeSession.on_request,
    m.Fetch: NativeSession.on_fetch,
    m.OpenProducer: NativeSession.on_open_producer,
    m.Subscribe: NativeSession.on_subscribe,
    m.Credit: NativeSession.on_channel_frame,
    m.Pull: NativeSession.on_channel_frame,
    m.Revoked: NativeSession.on_channel_frame,
    m.Commit: NativeSession.on_channel_frame,
    m.Update: NativeSession.on_channel_frame,
    m.OpenQueue: NativeSession.on_open_queue,
    m.Lease: NativeSession.on_channel_frame,
    m.Settle: NativeSession.on_channel_frame,
    m.QueueCredit: NativeSession.on_channel_frame,
    m.Close: NativeSession.on_close,
}
