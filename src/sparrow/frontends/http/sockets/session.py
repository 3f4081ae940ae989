"""One WebSocket as the broker sees it: its principal, subscriptions and pending replies; a table
maps frames to handlers.

It is independent of WebSockets: text comes in by `receive`, frames go out through an `Outlet`. An
idle session has no task.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrow.base.errors import (
    Draining,
    InternalError,
    InvalidArgument,
    NotAuthenticated,
    Overloaded,
    SparrowError,
)
from sparrow.broker.access.sessions import Guard
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http.before_login import BeforeLogin
from sparrow.frontends.http.identity import LISTENER
from sparrow.frontends.http.sockets import client_frames as m
from sparrow.frontends.http.sockets import server_frames
from sparrow.frontends.http.sockets.channel import Channel, CloseReason
from sparrow.frontends.http.sockets.publishes import Publishes
from sparrow.frontends.http.sockets.queue_channel import QueueChannel
from sparrow.frontends.http.sockets.topic_channel import TopicChannel

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.publisher import Publisher
    from sparrow.frontends.transport.send_budget import Backlog, Reservation

MAX_SUBSCRIPTIONS: Final = 100
MAX_PENDING: Final = 1000
"""Frames without a reply yet; above it the connection is not read from."""
_FRAME_BYTES: Final = 64
"""Size of a stored frame beside its text."""
MAX_PENDING_BYTES: Final = 4 << 20
"""The same for the bytes of publishes."""
CLIENT_NAME: Final = "websocket"

POLICY_VIOLATION: Final = 1008
GOING_AWAY: Final = 1001
TRY_AGAIN_LATER: Final = 1013
"""Close codes (RFC 6455, section 7.4.1)."""


class Outlet(Protocol):
    """The connection under a session."""

    @property
    def can_write(self) -> bool:
        """Return True if the client reads its frames."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a text frame; never waits. Do nothing on a closed connection."""
        ...

    def close_with(self, code: int, reason: str) -> None:
        """Close the connection."""
        ...

    def look(self) -> None:
        """Check again whether the client may be read from."""
        ...

    def authenticated(self) -> None:
        """Apply the limits of a client that has logged in."""
        ...

    @property
    def backlog(self) -> Backlog:
        """Return the account of the records that were sent and that the client has not read."""
        ...


class SocketSession:
    """The session of one WebSocket; see the module's text. Loop thread only.

    Args:
        principal: the client's principal; None: the first frame must have credentials.
        peer: the client's address.
        certified: the principal of the connection's certificate.
    """

    __slots__ = (
        "_before_login",
        "_channels",
        "_early_frames",
        "_frontend",
        "_guard",
        "_has_begun",
        "_is_draining",
        "_is_lost",
        "_outlet",
        "_pending",
        "_pending_bytes",
        "_principal",
        "_publishes",
        "_throttles",
        "peer",
        "render_cache",
    )

    def __init__(
        self,
        frontend: HttpContext,
        outlet: Outlet,
        *,
        principal: Principal | None,
        peer: str,
        certified: Principal | None = None,
    ) -> None:
        self._frontend = frontend
        self._outlet = outlet
        self._principal = principal
        self._guard = Guard(frontend.broker.sessions, self._login_is_over)
        self._guard.hold(certified)
        self._guard.hold(principal)
        self.render_cache = frontend.render_cache
        self.peer = peer
        self._channels: dict[str, Channel] = {}
        self._publishes: Publishes | None = None
        self._before_login = BeforeLogin(frontend.login_budget)
        self._early_frames: list[str] | None = None
        """Frames that wait for the login."""
        self._has_begun = False
        self._is_lost = False
        self._is_draining = False
        self._throttles = 0
        self._pending = 0
        self._pending_bytes = 0

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def broker(self) -> Broker:
        return self._frontend.broker

    @property
    def publisher(self) -> Publisher:
        return self._frontend.publisher

    @property
    def limits(self) -> HttpLimits:
        return self._frontend.limits

    @property
    def logger(self) -> logging.Logger:
        return self._frontend.logger

    @property
    def client_name(self) -> str:
        return CLIENT_NAME

    @property
    def principal(self) -> Principal:
        """Return the principal; call only after the login."""
        assert self._principal is not None
        return self._principal

    @property
    def is_known(self) -> bool:
        """Return True after the login."""
        return self._principal is not None

    @property
    def is_full(self) -> bool:
        """Return True if the client must not be read from now."""
        return (
            self._early_frames is not None
            or self._throttles > 0
            or self._pending > MAX_PENDING
            or self._pending_bytes > MAX_PENDING_BYTES
        )

    @property
    def can_write(self) -> bool:
        """Return True if the client reads its frames."""
        return self._outlet.can_write

    # ── called by the connection ──────────────────────────────────────────────────────────────────

    def receive(self, text: str) -> None:
        """Handle a frame."""
        if self._early_frames is not None:
            self._keep_early_frame(text)
            return
        try:
            frame = m.parse_frame(text)
        except m.WrongFrame as error:
            self.send(server_frames.refusal(error, id=error.id, subscription=error.subscription))
            self._insist_on_hello()
            return
        try:
            self._require_login(frame)
            _HANDLERS[type(frame)](self, frame, len(text))
        except Exception as error:  # noqa: BLE001 - the client learns of it, the broker lives
            self._refuse(self.translate(error, "a frame"), frame)
            self._insist_on_hello()
        self._has_begun = True

    def _keep_early_frame(self, text: str) -> None:
        """Keep a frame until the login."""
        assert self._early_frames is not None
        if self._before_login.hold(len(text) + _FRAME_BYTES):
            self._early_frames.append(text)
        else:
            self._outlet.close_with(TRY_AGAIN_LATER, "too much was sent before the login; wait for welcome")

    def _require_login(self, frame: m.ClientFrame) -> None:
        if not self.is_known and not isinstance(frame, m.Hello):
            error = NotAuthenticated(
                "login is required: send hello with a token, or with user and password, before anything else"
            )
            self._frontend.broker.audit.login_refused(LISTENER, self.peer, error, mechanism="none")
            raise error

    def writable(self) -> None:
        """Wake the subscriptions: the connection accepts data again."""
        for channel in self._channels.values():
            channel.wake()

    def lost(self, *, in_order: bool) -> None:
        """End the session with its connection. `in_order`: the client has closed it."""
        if self._is_lost:
            return
        self._is_lost = True
        self._guard.close()
        self._before_login.release()
        channels, self._channels = list(self._channels.values()), {}
        reason = CloseReason.LEFT if in_order else CloseReason.LOST
        for channel in channels:
            channel.stop()
            self._frontend.spawn(self._close(channel, reason))

    def _login_is_over(self, why: str) -> None:
        self.logger.info("%s is disconnected: %s", self.peer, why)
        self._outlet.close_with(POLICY_VIOLATION, "this session is over; log in again")

    def drain(self) -> None:
        """Send the replies that are due but nothing new, and close the connection."""
        if not self._is_draining:
            self._is_draining = True
            for channel in self._channels.values():
                channel.stop()
            self._maybe_leave()

    def _maybe_leave(self) -> None:
        if self._is_draining and not self._pending:
            self._outlet.close_with(GOING_AWAY, "the broker is shutting down; connect again later")

    def _insist_on_hello(self) -> None:
        if not self.is_known and self._early_frames is None:
            self._outlet.close_with(POLICY_VIOLATION, "log in first")

    # ── replies ───────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._outlet.send(frame)

    def _refuse(self, error: SparrowError, frame: m.ClientFrame) -> None:
        self.send(
            server_frames.refusal(error, id=frame.id, subscription=getattr(frame, "subscription", None))
        )

    def translate(self, error: Exception, action: str) -> SparrowError:
        """Return the error for the client. An error that is not Sparrow's own is logged as a
        bug.
        """
        if isinstance(error, SparrowError):
            return error
        self.logger.error("failed at %s of a WebSocket", action, exc_info=error)
        return InternalError(
            f"The broker failed at {action} by a fault of its own ({type(error).__name__}); its log "
            "has the details."
        )

    def reserve(self) -> Reservation:
        """Return memory for records that are to be sent."""
        return self._outlet.backlog.reservation()

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes of records for which there is no credit yet."""
        return sum(channel.window.buffered_bytes for channel in self._channels.values())

    async def throttle(self, size_bytes: int) -> None:
        """Count bytes of sent records; wait as long as a quota demands."""
        await self._frontend.throttle(QuotaKind.FETCH, self.principal, size_bytes)

    def count_published(self, size_bytes: int) -> None:
        """Count published bytes; pause reading as long as a quota demands."""
        throttle_ms = self.broker.quotas.record(QuotaKind.PRODUCE, self.principal, "", size_bytes)
        if throttle_ms:
            self._throttles += 1
            asyncio.get_running_loop().call_later(throttle_ms / 1000, self._unthrottle)
            self._outlet.look()

    def _unthrottle(self) -> None:
        self._throttles -= 1
        self._outlet.look()

    def charge(self, frames: int, size_bytes: int) -> None:
        """Count frames without a reply and their bytes; negative when a reply was sent."""
        self._pending += frames
        self._pending_bytes += size_bytes
        self._outlet.look()
        self._maybe_leave()

    def spawn(
        self, work: Callable[[], Awaitable[bytes]], frame: m.ClientFrame, size_bytes: int = 0
    ) -> asyncio.Task[None]:
        """Run slow work for a frame, and reply with its result or its error."""
        self.charge(1, size_bytes)
        task = self._frontend.spawn(self._respond(work, frame))
        task.add_done_callback(lambda _: self.charge(-1, -size_bytes))
        return task

    async def _respond(self, work: Callable[[], Awaitable[bytes]], frame: m.ClientFrame) -> None:
        try:
            self.send(await work())
        except Exception as error:  # noqa: BLE001 - the client learns of it, the broker lives
            self._refuse(self.translate(error, type(frame).__name__.lower()), frame)

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────

    def refuse_channel(self, channel: Channel, error: SparrowError, id: server_frames.Id) -> None:  # noqa: A002
        """Report a subscription that could not begin."""
        if self._forget(channel):
            self.send(server_frames.refusal(error, id=id, subscription=channel.name))

    def end_channel(self, channel: Channel, error: SparrowError) -> None:
        """End a subscription with an error."""
        if self._forget(channel):
            self.send(server_frames.ended(channel.name, error))

    def _forget(self, channel: Channel) -> bool:
        """Close a subscription. Return False if it has ended before."""
        if channel.is_leaving or self._channels.get(channel.name) is not channel:
            return False
        del self._channels[channel.name]
        channel.is_over = True
        self._frontend.spawn(self._close(channel, CloseReason.ENDED))
        return True

    async def _close(self, channel: Channel, reason: CloseReason) -> None:
        try:
            await channel.close(reason)
        except Exception as error:  # noqa: BLE001 - no client is left to report to
            self.translate(error, "the end of a subscription")

    def _channel(self, name: str) -> Channel:
        channel = self._channels.get(name)
        if channel is None or channel.is_leaving:
            raise InvalidArgument(f"there is no subscription {name!r} on this connection; subscribe first")
        return channel

    async def _leave(self, channel: Channel, frame: m.Unsubscribe) -> bytes:
        try:
            await channel.close(CloseReason.LEFT)
        finally:
            self._channels.pop(channel.name, None)
        return server_frames.ended(channel.name, id=frame.id)

    # ── frames of clients ─────────────────────────────────────────────────────────────────────────

    def on_hello(self, frame: m.Hello, _size_bytes: int) -> None:
        if self._has_begun:
            raise InvalidArgument("hello must be the first frame of a connection; connect again")
        credentials = _credentials(frame)
        self._early_frames = []
        self.spawn(partial(self._log_in, credentials, frame), frame)

    async def _log_in(self, credentials: dict[str, str], frame: m.Hello) -> bytes:
        try:
            self._principal = await self._frontend.identify(credentials, self.peer)
        except (NotAuthenticated, Overloaded) as error:
            self._refuse(error, frame)
            self._outlet.close_with(POLICY_VIOLATION, "not authenticated")
            return b""
        self._guard.hold(self._principal)
        self._outlet.authenticated()
        asyncio.get_running_loop().call_soon(self._go_on)
        return server_frames.frame("welcome", id=frame.id, principal=str(self._principal))

    def _go_on(self) -> None:
        early_frames, self._early_frames = self._early_frames or [], None
        for text in early_frames:
            self.receive(text)
        self._before_login.release()
        self._outlet.look()

    def on_publish(self, frame: m.Publish, size_bytes: int) -> None:
        self._refuse_when_draining()
        if self._publishes is None:
            self._publishes = Publishes(self)
        self._publishes.take(frame, size_bytes)
        self.count_published(size_bytes)

    def on_subscribe(self, frame: m.Subscribe, _size_bytes: int) -> None:
        self._refuse_when_draining()
        if frame.subscription in self._channels:
            raise InvalidArgument(
                f"{frame.subscription!r} is the name of another subscription of this connection"
            )
        if len(self._channels) >= MAX_SUBSCRIPTIONS:
            raise Overloaded(
                f"{MAX_SUBSCRIPTIONS} subscriptions on this connection, which is the limit; "
                "subscribe to several topics at once, or connect again"
            )
        kind = QueueChannel if frame.queue else TopicChannel
        self._channels[frame.subscription] = kind(self, frame)

    def on_credit(self, frame: m.Credit, _size_bytes: int) -> None:
        self._channel(frame.subscription).give(frame.records)

    def on_settle(self, frame: m.Settle, _size_bytes: int) -> None:
        self._channel(frame.subscription).settle(frame)

    def on_commit(self, frame: m.Commit, _size_bytes: int) -> None:
        self._channel(frame.subscription).commit(frame)

    def on_unsubscribe(self, frame: m.Unsubscribe, _size_bytes: int) -> None:
        channel = self._channel(frame.subscription)
        channel.is_leaving = True
        self.spawn(partial(self._leave, channel, frame), frame)

    def on_ping(self, frame: m.Ping, _size_bytes: int) -> None:
        self.send(server_frames.frame("pong", id=frame.id))

    def _refuse_when_draining(self) -> None:
        if self._is_draining:
            raise Draining("The broker is shutting down; connect again later.")


_HANDLERS: Final[dict[type[m.ClientFrame], Callable[[SocketSession, Any, int], None]]] = {
    m.Hello: SocketSession.on_hello,
    m.Publish: SocketSession.on_publish,
    m.Subscribe: SocketSession.on_subscribe,
    m.Credit: SocketSession.on_credit,
    m.Ack: SocketSession.on_settle,
    m.Nack: SocketSession.on_settle,
    m.Reject: SocketSession.on_settle,
    m.Extend: SocketSession.on_settle,
    m.Release: SocketSession.on_settle,
    m.Commit: SocketSession.on_commit,
    m.Unsubscribe: SocketSession.on_unsubscribe,
    m.Ping: SocketSession.on_ping,
}


def _credentials(frame: m.Hello) -> dict[str, str]:
    if frame.token is not None and frame.user is None and frame.password is None:
        return {"token": frame.token}
    if frame.user is not None and frame.token is None:
        return {"user": frame.user, "password": frame.password or ""}
    raise InvalidArgument("hello needs either a token, or user and password")
