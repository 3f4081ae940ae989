"""A subscription of a socket, whatever it reads: its life, its credit, its turn.

Each has one task, which begins it, tells the client, and then sends for as long as there is credit and the connection takes data. It ends in one of three ways: the client asks
(`LEFT`), the broker has a reason (`ENDED`), or the connection is gone (`LOST`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.frontends.http.sockets import answers
from sparrow.frontends.http.sockets.window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.sockets.messages import Commit, Settle, Subscribe
    from sparrow.frontends.http.sockets.session import Session

MAX_FRAME_BYTES = 256 << 10
"""About the most of records in one frame, but for a record that is larger by itself."""


class Parting(Enum):
    """How a subscription ends: what it holds at the broker depends on it."""

    LEFT = "left"
    """The client unsubscribed, or closed the connection in an orderly way: it is done."""
    ENDED = "ended"
    """The broker ended it."""
    LOST = "lost"
    """The connection is gone, or the broker shuts down; the client may come back."""


class Channel(ABC):
    """See the module's text. Loop thread only."""

    def __init__(self, session: Session, frame: Subscribe) -> None:
        self.name = frame.subscription
        self.session = session
        self.window = Window(frame.credit)
        self.is_over = False
        """Whether nothing is sent for it any more."""
        self.is_leaving = False
        """Whether it was told to end."""
        self.prefix = answers.messages_prefix(self.name)
        self._waker: asyncio.Future[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(frame))

    async def _run(self, frame: Subscribe) -> None:
        try:
            self.tell(await self.begin(frame))
        except Exception as error:  # noqa: BLE001 - the subscription is refused, the broker lives
            self.session.refuse_channel(self, self.session.translate(error, "subscribe"), frame.id)
            return
        try:
            await self.send_all()
        except Exception as error:  # noqa: BLE001 - the subscription ends, not the broker
            self.fail(self.session.translate(error, "sending records"))

    # ── what kinds of subscriptions do in their own ways ──────────────────────────────────────────

    @abstractmethod
    async def begin(self, frame: Subscribe) -> bytes:
        """Begin it at the broker; the frame that tells the client."""

    @abstractmethod
    async def send_all(self) -> None:
        """Send what there is, for ever."""

    @abstractmethod
    async def finish(self, parting: Parting) -> None:
        """End it at the broker; its task has ended."""

    def settle(self, frame: Settle) -> None:
        """The client says what became of leases.

        Raises:
            InvalidArgument: there are none here.
        """
        raise InvalidArgument(f"{self.name!r} reads no queue, so there is nothing to {_verb(frame)}")

    def commit(self, frame: Commit) -> None:
        """The client is done with what is before some offsets.

        Raises:
            InvalidArgument: it is no member of a group.
        """
        raise InvalidArgument(
            f"{self.name!r} is not a member of a group, so it cannot commit (id {frame.id!r})"
        )

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    def tell(self, frame: bytes) -> None:
        """Send something about it."""
        if not self.is_over:
            self.session.send(frame)

    async def send_records(self, records: Sequence[bytes]) -> None:
        """Send a frame of records; returns when a quota lets the client have more."""
        frame = answers.messages(self.prefix, records)
        self.tell(frame)
        await self.session.hold_back(len(frame))

    def fail(self, error: SparrowError) -> None:
        """The broker has a reason to end it."""
        if not self.is_over:
            self.session.end_channel(self, error)

    def stop(self) -> None:
        """From here on nothing is read for it; `close` is still to come."""
        if self._task is not asyncio.current_task():
            self._task.cancel()

    async def close(self, parting: Parting) -> None:
        """Stop, and end it at the broker."""
        self.is_over = parting is not Parting.LEFT
        self.stop()
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task])  # it undoes what it has not sent
        await self.finish(parting)
        self.is_over = True

    # ── its turn ──────────────────────────────────────────────────────────────────────────────────

    def give(self, records: int) -> None:
        """The client takes so many more."""
        self.window.give(records)
        self.wake()

    def wake(self) -> None:
        """Credit came, or the connection takes data again."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def wait_for_room(self) -> None:
        """Until there is credit and the connection takes data."""
        while self.window.credit <= 0 or not self.session.can_write:
            self._waker = asyncio.get_running_loop().create_future()
            try:
                await self._waker
            finally:
                self._waker = None


def _verb(frame: Settle) -> str:
    return type(frame).__name__.lower()
