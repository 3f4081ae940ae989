"""A subscription of a WebSocket, to topics or a queue: its life cycle and credit.

Each has one task, which subscribes, reports that to the client, and then sends as long as there is
credit and the connection accepts data. It ends in one of three ways: the client unsubscribes
(`LEFT`), the broker ends it (`ENDED`), or the connection is lost (`LOST`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.frontends.http.sockets import server_frames
from sparrow.frontends.http.sockets.window import Window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.http.render_cache import RenderCache
    from sparrow.frontends.http.sockets import client_frames as m
    from sparrow.frontends.http.sockets.client_frames import Commit, Settle, Subscribe
    from sparrow.frontends.publisher import Publisher
    from sparrow.frontends.transport.send_budget import Reservation

MAX_FRAME_BYTES = 256 << 10
"""Rough limit for the records of one frame, except for a single larger record."""


class CloseReason(Enum):
    """The reason of the end of a subscription; it decides what happens to its leases."""

    LEFT = "left"
    """The client unsubscribed, or closed the connection in an orderly way."""
    ENDED = "ended"
    """The broker ended it."""
    LOST = "lost"
    """The connection was lost, or the broker shuts down; the client may reconnect."""


class SocketContext(Protocol):
    """The session of a WebSocket, as its subscriptions and publishes see it."""

    render_cache: RenderCache

    @property
    def broker(self) -> Broker: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def limits(self) -> HttpLimits: ...
    @property
    def client_name(self) -> str: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def can_write(self) -> bool: ...
    def send(self, frame: bytes) -> None: ...
    def reserve(self) -> Reservation: ...
    def charge(self, frames: int, size_bytes: int) -> None: ...
    async def throttle(self, size_bytes: int) -> None: ...
    def translate(self, error: Exception, action: str) -> SparrowError: ...
    def refuse_channel(self, channel: Channel, error: SparrowError, id: server_frames.Id) -> None: ...  # noqa: A002
    def end_channel(self, channel: Channel, error: SparrowError) -> None: ...
    def spawn(
        self, work: Callable[[], Awaitable[bytes]], frame: m.ClientFrame, size_bytes: int = 0
    ) -> asyncio.Task[None]: ...


class Channel(ABC):
    """A subscription; see the module's text. Loop thread only."""

    def __init__(self, session: SocketContext, frame: Subscribe) -> None:
        self.name = frame.subscription
        self.session = session
        self.window = Window(frame.credit)
        self.is_over = False
        """True if nothing is sent for it any more."""
        self.is_leaving = False
        """True after the client has unsubscribed."""
        self.prefix = server_frames.messages_prefix(self.name)
        self._waker: asyncio.Future[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(frame))

    async def _run(self, frame: Subscribe) -> None:
        try:
            self.send(await self.begin(frame))
        except Exception as error:  # noqa: BLE001 - the subscription is refused, the broker lives
            self.session.refuse_channel(self, self.session.translate(error, "subscribe"), frame.id)
            return
        try:
            await self.send_all()
        except Exception as error:  # noqa: BLE001 - the subscription ends, not the broker
            self.fail(self.session.translate(error, "sending records"))

    # ── implemented by subclasses ─────────────────────────────────────────────────────────────────

    @abstractmethod
    async def begin(self, frame: Subscribe) -> bytes:
        """Subscribe at the broker. Return the frame for the client."""

    @abstractmethod
    async def send_all(self) -> None:
        """Send records until cancelled."""

    @abstractmethod
    async def finish(self, reason: CloseReason) -> None:
        """Unsubscribe at the broker, after the task has ended."""

    def settle(self, frame: Settle) -> None:
        """Settle leases for the client.

        Raises:
            InvalidArgument: the subscription has no leases.
        """
        raise InvalidArgument(
            f"{self.name!r} does not read a queue, so there is nothing to {_operation(frame)}"
        )

    def commit(self, frame: Commit) -> None:
        """Commit offsets for the client.

        Raises:
            InvalidArgument: the subscription is not a member of a group.
        """
        raise InvalidArgument(
            f"{self.name!r} is not a member of a group, so it cannot commit (id {frame.id!r})"
        )

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: bytes) -> None:
        """Send a frame, unless the subscription is over."""
        if not self.is_over:
            self.session.send(frame)

    async def send_records(self, records: Sequence[bytes]) -> None:
        """Send a frame of records, and wait as long as a quota demands."""
        frame = server_frames.messages(self.prefix, records)
        self.send(frame)
        await self.session.throttle(len(frame))

    def fail(self, error: SparrowError) -> None:
        """End the subscription with an error."""
        if not self.is_over:
            self.session.end_channel(self, error)

    def stop(self) -> None:
        """Stop reading; `close` must follow."""
        if self._task is not asyncio.current_task():
            self._task.cancel()

    async def close(self, reason: CloseReason) -> None:
        """Stop, and unsubscribe at the broker."""
        self.is_over = reason is not CloseReason.LEFT
        self.stop()
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task])  # the task releases what it has not sent
        await self.finish(reason)
        self.is_over = True

    # ── flow control ──────────────────────────────────────────────────────────────────────────────

    def give(self, records: int) -> None:
        """Add credit from the client."""
        self.window.give(records)
        self.wake()

    def wake(self) -> None:
        """Wake the task after new credit, or when the connection accepts data again."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def wait_for_room(self) -> None:
        """Wait until there is credit and the connection accepts data."""
        while self.window.credit <= 0 or not self.session.can_write:
            self._waker = asyncio.get_running_loop().create_future()
            try:
                await self._waker
            finally:
                self._waker = None


def _operation(frame: Settle) -> str:
    return type(frame).__name__.lower()
