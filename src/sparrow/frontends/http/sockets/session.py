"""One socket as the broker sees it: who it is, its subscriptions, what is not answered yet; a table says who handles which frame.

It knows nothing of WebSockets: text comes in by `receive`, frames go out through an `Outlet`. An idle session has no task.
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
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http.sockets import answers
from sparrow.frontends.http.sockets import messages as m
from sparrow.frontends.http.sockets.channel import Channel, Parting
from sparrow.frontends.http.sockets.leasing import Leasing
from sparrow.frontends.http.sockets.publishes import Publishes
from sparrow.frontends.http.sockets.reading import Reading

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.http.rendering import Renderings
    from sparrow.frontends.publishing import Publisher

MAX_SUBSCRIPTIONS: Final = 100
MAX_UNANSWERED: Final = 1000
"""Frames whose answers are due; above it the connection is not read from."""
MAX_UNANSWERED_BYTES: Final = 4 << 20
"""The same for the messages of publishes."""
CLIENT_NAME: Final = "websocket"

POLICY_VIOLATION: Final = 1008
GOING_AWAY: Final = 1001
"""Close codes (RFC 6455, section 7.4.1)."""


class Outlet(Protocol):
    """The connection under a session."""

    @property
    def can_write(self) -> bool:
        """Whether the client takes what is sent."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a text frame; never waits. Nothing happens on a connection that is closed."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Say goodbye."""
        ...

    def look(self) -> None:
        """Whether the session may take more may have changed."""
        ...


class Session:
    """See the module's text. Loop thread only.

    Args:
        principal: who it is; None: the first frame must say so.
        peer: the client's address.
    """

    __slots__ = (
        "_channels",
        "_door",
        "_has_begun",
        "_held",
        "_is_draining",
        "_is_lost",
        "_outlet",
        "_principal",
        "_publishes",
        "_throttles",
        "_unanswered",
        "_unanswered_bytes",
        "peer",
        "renderings",
    )

    def __init__(
        self,
        door: HttpFrontend,
        outlet: Outlet,
        renderings: Renderings,
        *,
        principal: Principal | None,
        peer: str,
    ) -> None:
        self._door = door
        self._outlet = outlet
        self._principal = principal
        self.renderings = renderings
        self.peer = peer
        self._channels: dict[str, Channel] = {}
        self._publishes: Publishes | None = None
        self._held: list[str] | None = None
        """Frames that wait until it is known who sends them."""
        self._has_begun = False
        self._is_lost = False
        self._is_draining = False
        self._throttles = 0
        self._unanswered = 0
        self._unanswered_bytes = 0

    # ── what it is made of ────────────────────────────────────────────────────────────────────────

    @property
    def broker(self) -> Broker:
        return self._door.broker

    @property
    def publisher(self) -> Publisher:
        return self._door.publisher

    @property
    def limits(self) -> HttpLimits:
        return self._door.limits

    @property
    def logger(self) -> logging.Logger:
        return self._door.logger

    @property
    def client_name(self) -> str:
        return CLIENT_NAME

    @property
    def principal(self) -> Principal:
        """Who it is; asked for only after that is known."""
        assert self._principal is not None
        return self._principal

    @property
    def is_known(self) -> bool:
        """Whether it is known who it is."""
        return self._principal is not None

    @property
    def is_full(self) -> bool:
        """Whether no more is to be read from the client now."""
        return (
            self._held is not None
            or self._throttles > 0
            or self._unanswered > MAX_UNANSWERED
            or self._unanswered_bytes > MAX_UNANSWERED_BYTES
        )

    @property
    def can_write(self) -> bool:
        """Whether the client takes what is sent."""
        return self._outlet.can_write

    # ── what the connection tells ─────────────────────────────────────────────────────────────────

    def receive(self, text: str) -> None:
        """A frame came."""
        if self._held is not None:
            self._held.append(text)
            return
        try:
            frame = m.parse_frame(text)
        except m.WrongFrame as error:
            self.send(answers.refusal(error, id=error.id, subscription=error.subscription))
            self._insist_on_hello()
            return
        try:
            self._require_login(frame)
            _TAKERS[type(frame)](self, frame, len(text))
        except Exception as error:  # noqa: BLE001 - the client learns of it, the broker lives
            self._refuse(self.translate(error, "a frame"), frame)
            self._insist_on_hello()
        self._has_begun = True

    def _require_login(self, frame: m.ClientFrame) -> None:
        if not self.is_known and not isinstance(frame, m.Hello):
            raise NotAuthenticated(
                "this broker wants to know who connects: send hello with a token, or with user and password, before anything else"
            )

    def writable(self) -> None:
        """The client takes data again."""
        for channel in self._channels.values():
            channel.wake()

    def lost(self, *, in_order: bool) -> None:
        """The connection is over; in_order: the client said that it is done."""
        if self._is_lost:
            return
        self._is_lost = True
        channels, self._channels = list(self._channels.values()), {}
        parting = Parting.LEFT if in_order else Parting.LOST
        for channel in channels:
            channel.stop()
            self._door.spawn(self._close(channel, parting))

    def drain(self) -> None:
        """The broker shuts down: answer what is due, send nothing new, and say goodbye."""
        if not self._is_draining:
            self._is_draining = True
            for channel in self._channels.values():
                channel.stop()
            self._maybe_leave()

    def _maybe_leave(self) -> None:
        if self._is_draining and not self._unanswered:
            self._outlet.close(GOING_AWAY, "the broker is shutting down; connect again later")

    def _insist_on_hello(self) -> None:
        if not self.is_known and self._held is None:
            self._outlet.close(POLICY_VIOLATION, "log in first")

    # ── answering ─────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._outlet.send(frame)

    def _refuse(self, error: SparrowError, frame: m.ClientFrame) -> None:
        self.send(answers.refusal(error, id=frame.id, subscription=getattr(frame, "subscription", None)))

    def translate(self, error: Exception, doing: str) -> SparrowError:
        """The error to tell the client; whatever is not Sparrow's own is logged as a bug of the broker."""
        if isinstance(error, SparrowError):
            return error
        self.logger.error("failed at %s of a WebSocket", doing, exc_info=error)
        return InternalError(
            f"The broker failed at {doing} by a fault of its own ({type(error).__name__}); its log has the details."
        )

    async def hold_back(self, size_bytes: int) -> None:
        """Count what was sent of records; wait for as long as a quota says."""
        await self._door.hold_back(QuotaKind.FETCH, self.principal, size_bytes)

    def count_published(self, size_bytes: int) -> None:
        """Count what came; the client is not read from for as long as a quota says."""
        throttle_ms = self.broker.quotas.record(QuotaKind.PRODUCE, self.principal, "", size_bytes)
        if throttle_ms:
            self._throttles += 1
            asyncio.get_running_loop().call_later(throttle_ms / 1000, self._unthrottle)
            self._outlet.look()

    def _unthrottle(self) -> None:
        self._throttles -= 1
        self._outlet.look()

    def charge(self, frames: int, size_bytes: int) -> None:
        """So many answers more (or less) are due."""
        self._unanswered += frames
        self._unanswered_bytes += size_bytes
        self._outlet.look()
        self._maybe_leave()

    def spawn(
        self, work: Callable[[], Awaitable[bytes]], frame: m.ClientFrame, size_bytes: int = 0
    ) -> asyncio.Task[None]:
        """Do something that takes time for a frame, and answer with what it returns, or with why it failed."""
        self.charge(1, size_bytes)
        task = self._door.spawn(self._answer(work, frame))
        task.add_done_callback(lambda _: self.charge(-1, -size_bytes))
        return task

    async def _answer(self, work: Callable[[], Awaitable[bytes]], frame: m.ClientFrame) -> None:
        try:
            self.send(await work())
        except Exception as error:  # noqa: BLE001 - the client learns of it, the broker lives
            self._refuse(self.translate(error, type(frame).__name__.lower()), frame)

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────

    def refuse_channel(self, channel: Channel, error: SparrowError, id: answers.Id) -> None:  # noqa: A002
        """A subscription could not begin."""
        if self._forget(channel):
            self.send(answers.refusal(error, id=id, subscription=channel.name))

    def end_channel(self, channel: Channel, error: SparrowError) -> None:
        """The broker has a reason to end a subscription."""
        if self._forget(channel):
            self.send(answers.ended(channel.name, error))

    def _forget(self, channel: Channel) -> bool:
        """Whether it was there; if so it is closed now."""
        if channel.is_leaving or self._channels.get(channel.name) is not channel:
            return False
        del self._channels[channel.name]
        channel.is_over = True
        self._door.spawn(self._close(channel, Parting.ENDED))
        return True

    async def _close(self, channel: Channel, parting: Parting) -> None:
        try:
            await channel.close(parting)
        except Exception as error:  # noqa: BLE001 - there is nobody to tell
            self.translate(error, "the end of a subscription")

    def _channel(self, name: str) -> Channel:
        channel = self._channels.get(name)
        if channel is None or channel.is_leaving:
            raise InvalidArgument(f"there is no subscription {name!r} on this connection; subscribe first")
        return channel

    async def _leave(self, channel: Channel, frame: m.Unsubscribe) -> bytes:
        try:
            await channel.close(Parting.LEFT)
        finally:
            self._channels.pop(channel.name, None)
        return answers.ended(channel.name, id=frame.id)

    # ── what clients send ─────────────────────────────────────────────────────────────────────────

    def on_hello(self, frame: m.Hello, _size_bytes: int) -> None:
        if self._has_begun:
            raise InvalidArgument("hello is the first frame of a connection, or none; connect again")
        credentials = _credentials(frame)
        self._held = []
        self.spawn(partial(self._log_in, credentials, frame), frame)

    async def _log_in(self, credentials: dict[str, str], frame: m.Hello) -> bytes:
        try:
            self._principal = await self._door.identify(credentials, self.peer)
        except NotAuthenticated as error:
            self._refuse(error, frame)
            self._outlet.close(POLICY_VIOLATION, "not authenticated")
            return b""
        asyncio.get_running_loop().call_soon(self._go_on)
        return answers.answer("welcome", id=frame.id, principal=str(self._principal))

    def _go_on(self) -> None:
        held, self._held = self._held or [], None
        for text in held:
            self.receive(text)
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
            raise InvalidArgument(f"{frame.subscription!r} is the name of another subscription here")
        if len(self._channels) >= MAX_SUBSCRIPTIONS:
            raise Overloaded(
                f"{MAX_SUBSCRIPTIONS} subscriptions on this connection, which is the limit; subscribe to several topics at once, or connect again"
            )
        kind = Leasing if frame.queue else Reading
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
        self.send(answers.answer("pong", id=frame.id))

    def _refuse_when_draining(self) -> None:
        if self._is_draining:
            raise Draining("The broker is shutting down; connect again later.")


_TAKERS: Final[dict[type[m.ClientFrame], Callable[[Session, Any, int], None]]] = {
    m.Hello: Session.on_hello,
    m.Publish: Session.on_publish,
    m.Subscribe: Session.on_subscribe,
    m.Credit: Session.on_credit,
    m.Ack: Session.on_settle,
    m.Nack: Session.on_settle,
    m.Reject: Session.on_settle,
    m.Extend: Session.on_settle,
    m.Release: Session.on_settle,
    m.Commit: Session.on_commit,
    m.Unsubscribe: Session.on_unsubscribe,
    m.Ping: Session.on_ping,
}


def _credentials(frame: m.Hello) -> dict[str, str]:
    if frame.token is not None and frame.user is None and frame.password is None:
        return {"token": frame.token}
    if frame.user is not None and frame.token is None:
        return {"user": frame.user, "password": frame.password or ""}
    raise InvalidArgument("hello has either a token, or user and password")
