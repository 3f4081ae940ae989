"""One connection of the native door: who it is, its channels, and which handler takes which frame.

The state machine has already refused what is illegal; here a frame is handed to its channel (`channels.py`) or to a verb of the broker.
What takes time runs in a `WorkQueue`, so an idle connection has no task. Whatever goes wrong becomes the answer of the call, the end of
the channel, or, if it is a bug in this very module, the end of the connection; never the end of the broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrow.base.errors import Draining, FrameTooLarge, Overloaded, SparrowError, TimedOut
from sparrow.base.version import version
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.frontends.native import calls
from sparrow.frontends.native.channels import Channels
from sparrow.frontends.native.failures import error_of, failure_of, translate
from sparrow.frontends.native.fetching import Fetching
from sparrow.frontends.native.listener import Hold, Pump
from sparrow.frontends.native.liveness import Liveness, Observation, Verdict
from sparrow.frontends.native.parting import Parting
from sparrow.frontends.native.throttle import Throttle
from sparrow.frontends.native.work import WorkQueue
from sparrow.frontends.tls import certificate_principal
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Ended, Event, Received, State, Violation

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from sparrow.broker.broker import Broker
    from sparrow.broker.measures import DoorMeasures
    from sparrow.frontends.native.frontend import NativeFrontend
    from sparrow.frontends.native.limits import NativeLimits
    from sparrow.frontends.native.producers import ProducerChannel
    from sparrow.protocol.native.frames import Buffer


MAX_CLIENT_NAME = 255
GATHERED_BYTES = 4 << 20
"""Deliveries of several channels leave in one write, at most about so many; then those that follow see in time whether the peer
takes them."""


class Authenticator(Protocol):
    """Who is it? Raises NotAuthenticated. May be a coroutine function."""

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal | Awaitable[Principal]: ...


class Session:
    """What stands behind one pump. Loop thread only."""

    __slots__ = (
        "_certified",
        "_channels",
        "_confirming",
        "_ending_since",
        "_fetching",
        "_frontend",
        "_gathered_bytes",
        "_host",
        "_is_finishing",
        "_liveness",
        "_login",
        "_pump",
        "_throttle",
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
    )

    def __init__(self, frontend: NativeFrontend, pump: Pump, session_id: str) -> None:
        self.broker: Broker = frontend.broker
        self.limits: NativeLimits = frontend.limits
        self.logger: logging.Logger = frontend.logger
        self.session_id = session_id
        self.peer = "?"
        self.client_name = ""
        self.principal = ANONYMOUS
        self._host = ""
        self._certified: Principal | None = None
        """Who the certificate says it is, where TLS asked for one."""
        self._frontend = frontend
        self._login: asyncio.Future[Any] | None = None
        self._pump = pump
        self._liveness = Liveness(frontend.broker.clock.monotonic())
        self._channels = Channels(self)
        self._confirming: list[ProducerChannel] = []
        self._unconfirmed_bytes = 0
        self._unsettled_ranges = 0
        self._gathered_bytes = 0
        self._waiting_work = 0
        self._work: WorkQueue | None = None
        self._fetching: Fetching | None = None
        self.is_lost = False
        self._is_finishing = False
        self._ending_since: float | None = None
        self._throttle = Throttle(
            frontend.broker.quotas,
            hold=partial(pump.hold, Hold.QUOTA),
            release=partial(pump.unhold, Hold.QUOTA),
            sign_of_life=self._give_sign_of_life,
            idle_timeout_ms=frontend.limits.idle_timeout_ms,
        )

    # ── called by the pump ────────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        assert self._pump.transport is not None
        address = self._pump.transport.get_extra_info("peername")
        self.peer = (
            f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address or "a local peer")
        )
        self._host = str(address[0]) if isinstance(address, tuple) else ""
        self._certified = certificate_principal(self._pump.transport)
        refusal = self._frontend.admit(self)
        if refusal is not None:
            self.end(refusal)

    def handle(self, event: Event) -> None:
        if isinstance(event, Received):
            if event.batches is not None:
                self._channels.publish(event.channel, event.head, event.batches)
            else:
                _HANDLERS[type(event.head)](self, event.channel, event.head)
        elif isinstance(event, Violation):
            self.logger.info("%s broke the protocol and is disconnected: %s", self.peer, event.error)
        elif isinstance(event, Ended):
            self._pump.close()

    def before_flush(self) -> None:
        self._gathered_bytes = 0
        confirming = self._confirming
        if confirming:
            self._confirming = []
            for producer in confirming:
                producer.flush()
        if self._is_finishing and self.is_settled:
            self._is_finishing = False
            if self._pump.connection.may_send(m.Goodbye):
                self.send(m.Goodbye())

    def writable(self) -> None:
        self._channels.writable()
        if self._work is not None:
            self._work.resume()
        if self._fetching is not None:
            self._fetching.resume()

    def lost(self) -> None:
        self.is_lost = True
        if self._login is not None:  # a password that nobody waits for is not worth the work
            self._login.cancel()
        self._throttle.close()
        if self._work is not None:
            self._work.cancel()
        if self._fetching is not None:
            self._fetching.cancel()
        self._channels.lost(self._parting)
        self._frontend.dismiss(self)

    def failed(self, error: Exception) -> None:
        self.end(translate(error, "handling a frame", self.logger))

    # ── offered to the channels ───────────────────────────────────────────────────────────────────

    @property
    def can_write(self) -> bool:
        """Whether the peer takes what is sent."""
        return self._pump.can_write

    @property
    def max_batch_bytes(self) -> int:
        return self._pump.connection.max_batch_bytes

    @property
    def max_deliver_bytes(self) -> int:
        return min(self.limits.max_deliver_bytes, self.max_batch_bytes)

    @property
    def max_fetch_bytes(self) -> int:
        return min(self.limits.max_fetch_bytes, self.max_batch_bytes)

    @property
    def door_measures(self) -> DoorMeasures:
        return self._frontend.measures

    def send(self, head: m.Head, channel: int = 0, batches: Buffer | Sequence[Buffer] | None = None) -> None:
        """Queue a frame; dropped when the connection is closed, as there is nobody to tell."""
        if self._pump.connection.state is not State.CLOSED:
            self._pump.connection.send(head, channel, batches)

    def may_send(self, head: type[m.Head], channel: int) -> bool:
        """Whether the client takes such a frame now."""
        return self._pump.connection.may_send(head, channel)

    def flush_soon(self) -> None:
        self._pump.flush_soon()

    def flush(self) -> None:
        """Write what is queued now."""
        self._pump.flush()

    def flush_deliveries(self, size_bytes: int) -> None:
        """Write deliveries that were queued, at the end of this turn of the loop or when they are many."""
        self._gathered_bytes += size_bytes
        if self._gathered_bytes < GATHERED_BYTES:
            self._pump.flush_soon()
        else:
            self._pump.flush()

    def confirm_soon(self, producer: ProducerChannel) -> None:
        """Let `producer.flush` run before the next write."""
        self._confirming.append(producer)
        self._pump.flush_soon()

    def charge(self, producer: ProducerChannel, change_bytes: int) -> None:
        """Bytes that are unconfirmed changed; reading stops above a window."""
        self._unconfirmed_bytes += change_bytes
        if change_bytes > 0:
            limits = self.limits
            if (
                producer.unconfirmed_bytes > limits.window_bytes
                or self._unconfirmed_bytes > limits.connection_window_bytes
            ):
                self._pump.hold(Hold.WINDOW)
        else:
            if self._pump.is_held_by_us and self._is_within_windows():
                self._pump.unhold(Hold.WINDOW)
            if self._is_finishing:
                self._pump.flush_soon()

    def settling_changed(self, change: int) -> None:
        """Ranges that are not settled durably changed; reading stops when there are too many."""
        self._unsettled_ranges += change
        if self._unsettled_ranges > self.limits.max_unsettled_ranges:
            self._pump.hold(Hold.SETTLE)
        elif change < 0:
            self._pump.unhold(Hold.SETTLE)
            if self._is_finishing:
                self._pump.flush_soon()

    def count_published(self, size_bytes: int) -> None:
        """Charge the client's quota; over it, reading stops for a while."""
        self._throttle.published(self.principal, self.client_name, size_bytes)

    def count_delivered(self, size_bytes: int) -> None:
        """Charge the client's quota; over it, `wait_to_deliver` waits."""
        self._throttle.delivered(self.principal, self.client_name, size_bytes)

    def may_deliver(self) -> bool:
        """Whether the connection takes data, and the client's quota allows it."""
        return self.can_write and self._throttle.may_deliver()

    async def wait_to_deliver(self) -> None:
        """Until the client's quota lets something be delivered."""
        await self._throttle.wait_to_deliver()

    def max_delivery_bytes(self, wanted: int) -> int:
        """At most what the client's quota can ever allow in one delivery."""
        return self._throttle.max_delivery_bytes(self.principal, self.client_name, wanted)

    def _give_sign_of_life(self) -> None:
        if self._pump.connection.may_send(m.Ping):
            self.send(m.Ping(0))
            self._pump.flush_soon()

    def may_work(self) -> bool:
        """Work rests while its answers would only pile up."""
        return self._pump.can_write

    def work_changed(self, change: int) -> None:
        """The number of waiting jobs changed; reading stops when there are too many."""
        self._waiting_work += change
        if self._waiting_work > self.limits.max_waiting_work:
            self._pump.hold(Hold.WORK)
        elif change < 0:
            self._pump.unhold(Hold.WORK)
        if self._is_finishing:
            self._pump.flush_soon()

    def forget(self, number: int) -> None:
        """A producer channel is done."""
        self._channels.producers.pop(number, None)

    def end_channel(self, number: int, error: SparrowError) -> None:
        """ERROR on a channel; frees it."""
        self._channels.end(number, Parting.ENDED)
        if self.may_send(m.Error, number):
            self.send(error_of(error), number)
            self._pump.flush_soon()

    def end(self, error: SparrowError) -> None:
        """ERROR on channel 0; closes the connection."""
        self.send(error_of(error))
        self._pump.flush_soon()

    def _is_within_windows(self) -> bool:
        limits = self.limits
        return self._unconfirmed_bytes <= limits.connection_window_bytes and all(
            producer.unconfirmed_bytes <= limits.window_bytes
            for producer in self._channels.producers.values()
        )

    @property
    def is_draining(self) -> bool:
        """Whether the broker has said goodbye: nothing is opened any more."""
        return self._pump.connection.goodbye_sent

    def spawn(self, doing: Coroutine[Any, Any, None]) -> None:
        """Run what nobody waits for, even when the connection is gone."""
        self._frontend.spawn(doing)

    def run(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something that takes time, side by side with other such work."""
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
            principal = self._frontend.authenticator.authenticate(head.credentials, self.peer)
        except Exception as error:  # noqa: BLE001 - the connection ends, not the broker
            self._login = self._frontend.spawn(self._refuse(error))
            return
        if isinstance(principal, Principal):
            self._welcome(self._identity(principal))
        else:
            self._login = login = asyncio.ensure_future(principal)
            login.add_done_callback(self._authenticated)

    def _identity(self, principal: Principal) -> Principal:
        """Who shows a certificate does not become nobody by showing credentials that say nothing."""
        return self._certified if principal == ANONYMOUS and self._certified is not None else principal

    def _authenticated(self, answer: asyncio.Future[Principal]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if isinstance(error, Exception):
            self._login = self._frontend.spawn(self._refuse(error))
            return
        self._welcome(self._identity(answer.result()))
        self._pump.flush()

    async def _refuse(self, error: Exception) -> None:
        """Wait, so that guessing is slow, then say why, and end."""
        told = translate(error, "authentication", self.logger)
        self.logger.warning("%s is not let in: %s", self.peer, told)
        await asyncio.sleep(self.limits.failed_authentication_delay_ms / 1000)
        self.end(told)
        self._pump.flush()

    def _welcome(self, principal: Principal) -> None:
        self.principal = replace(principal, host=self._host)
        connection = self._pump.connection
        self.send(
            m.Welcome(
                connection.version,
                version(),
                self.broker.cluster_id,
                self.session_id,
                connection.max_frame_bytes,
                connection.max_channels,
                self.limits.idle_timeout_ms,
            )
        )
        if self._frontend.is_draining:
            self.drain()

    def on_goodbye(self, _: int, head: m.Goodbye) -> None:  # noqa: ARG002 - the reason does not matter
        """Leave groups and queues behind the commits under way, finish what is owed, then `before_flush` answers."""
        self._channels.leave_all(self._parting)
        if self._fetching is not None:
            self._fetching.interrupt()
        self._is_finishing = True

    @property
    def _parting(self) -> Parting:
        """Whether the client is done; while the broker shuts down it only goes elsewhere, and keeps its memberships and leases."""
        is_done = self._pump.connection.goodbye_received and not self._frontend.is_draining
        return Parting.LEFT if is_done else Parting.LOST

    def drain(self) -> None:
        """The broker shuts down: say so; who said goodbye already hears it when all that is owed was sent."""
        if self._pump.connection.goodbye_received:
            return
        if self._pump.connection.may_send(m.Welcome) or not self._pump.connection.may_send(m.Goodbye):
            self.end(Draining("The broker is shutting down; connect again later."))
        else:
            self.send(m.Goodbye("DRAINING", "The broker is shutting down; connect again later."))
            self._channels.drain()
            if self._fetching is not None:
                self._fetching.interrupt()
        self._pump.flush_soon()

    def stop_reading(self) -> None:
        """Take nothing more, but confirm what was taken."""
        self._pump.hold(Hold.DRAIN)

    def close(self) -> None:
        """Close the connection when what is queued is sent."""
        self._pump.flush()
        self._pump.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._pump.abort()

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────

    def on_request(self, _: int, head: m.Request) -> None:
        self.run(lambda: self.answer(head.ref, 0, calls.call(self._frontend, self.principal, head)))

    async def answer(self, ref: int, channel: int, doing: Coroutine[Any, Any, Any]) -> None:
        """Send the outcome of a call."""
        try:
            response = m.Response(ref, None, await doing)
        except Exception as error:  # noqa: BLE001 - a call fails, nothing else
            response = m.Response(ref, failure_of(translate(error, "a call", self.logger)))
        self._respond(response, channel)
        self._pump.flush()

    def _respond(self, response: m.Response, channel: int) -> None:
        if not self.may_send(m.Response, channel):
            return
        try:
            self.send(response, channel)
        except FrameTooLarge as error:
            failure = Overloaded(
                f"The answer does not fit into a frame; ask for less, such as a narrower pattern. {error}"
            )
            self.send(
                m.Response(response.ref, m.Failure(failure.code, failure.text, retriable=False)), channel
            )

    def on_fetch(self, _: int, head: m.Fetch) -> None:
        if self._fetching is None:
            self._fetching = Fetching(self)
        self._fetching.add(head)

    # ── channels ──────────────────────────────────────────────────────────────────────────────────

    def on_open_producer(self, number: int, head: m.OpenProducer) -> None:
        self._channels.open_producer(number, head)

    def on_subscribe(self, number: int, head: m.Subscribe) -> None:
        self._channels.subscribe(number, head)

    def on_open_queue(self, number: int, head: m.OpenQueue) -> None:
        self._channels.open_queue(number, head)

    def on_channel_frame(self, number: int, head: m.Head) -> None:
        self._channels.take(number, head)

    def on_close(self, number: int, head: m.Close) -> None:  # noqa: ARG002 - it has no fields
        self._channels.close(number)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """Whether nothing is owed to the client."""
        return self.is_lost or (
            (self._work is None or self._work.is_idle)
            and (self._fetching is None or self._fetching.is_idle)
            and self._channels.is_settled
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client, and it has nothing open."""
        return self.is_settled and not self._pump.connection.channels

    def sweep(self, now: float) -> None:
        """Look at the clock; called every second or so."""
        if self._pump.is_ending:
            self._sweep_ending(now)
            return
        connection = self._pump.connection
        seen = Observation(
            is_open=connection.state not in (State.AWAIT_HELLO, State.AWAIT_WELCOME),
            received_bytes=self._pump.received_bytes,
            unsent_bytes=self._pump.unsent_bytes,
            is_held=self._pump.is_held_by_us,
            frame_bytes=connection.bytes_wanted or connection.bytes_held,
        )
        verdict = self._liveness.check(now, seen, self.limits)
        if verdict is Verdict.ALIVE:
            self._channels.heartbeat()
        elif verdict is not Verdict.SILENT:
            self._disconnect(verdict)

    def _sweep_ending(self, now: float) -> None:
        if self._ending_since is None:
            self._ending_since = now
        elif now - self._ending_since > self.limits.closing_timeout_ms / 1000:
            self._pump.abort()

    def _disconnect(self, verdict: Verdict) -> None:
        self.logger.info("%s is disconnected: %s", self.peer, verdict.value)
        limits = self.limits
        if verdict is Verdict.NO_HELLO:
            self.end(
                TimedOut(f"No HELLO came within {limits.hello_timeout_ms} ms; it must be the first frame.")
            )
        elif verdict is Verdict.STALLED:
            self.end(TimedOut(f"A frame made no progress for {limits.stall_timeout_ms} ms; send it again."))
        elif self._pump.connection.may_send(m.Goodbye):
            self._channels.end_silent(limits.idle_timeout_ms)
            text = f"Nothing came for {limits.idle_timeout_ms} ms; ping to stay connected."
            self.send(m.Goodbye("IDLE", text))
        self._pump.flush()
        self._pump.end()


_HANDLERS: Final[dict[type[m.Head], Callable[[Session, int, Any], None]]] = {
    m.Hello: Session.on_hello,
    m.Goodbye: Session.on_goodbye,
    m.Pong: lambda *_: None,
    m.Error: lambda *_: None,
    m.Request: Session.on_request,
    m.Fetch: Session.on_fetch,
    m.OpenProducer: Session.on_open_producer,
    m.Subscribe: Session.on_subscribe,
    m.Credit: Session.on_channel_frame,
    m.Pull: Session.on_channel_frame,
    m.Revoked: Session.on_channel_frame,
    m.Commit: Session.on_channel_frame,
    m.Update: Session.on_channel_frame,
    m.OpenQueue: Session.on_open_queue,
    m.Lease: Session.on_channel_frame,
    m.Settle: Session.on_channel_frame,
    m.QueueCredit: Session.on_channel_frame,
    m.Close: Session.on_close,
}
