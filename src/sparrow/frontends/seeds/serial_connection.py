"""A connection whose requests are handled one after the other, and whose messages are published at
once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sparrow.frontends.seeds.connection import SeedConnection
from sparrow.frontends.seeds.context import Port, SeedPause
from sparrow.frontends.seeds.publish_queue import PublishQueue

if TYPE_CHECKING:
    from sparrow.base.errors import SparrowError

Event = TypeVar("Event")


class SizedDecoder(Protocol):
    """A decoder that knows the size of an unfinished frame."""

    @property
    def bytes_wanted(self) -> int:
        """The size of the unfinished frame; 0: there is none."""
        ...


class SerialConnection(SeedConnection, Generic[Event]):
    """A connection that is not read from while a request is handled (`_serve`).

    A connection that only publishes is closed normally only when all its messages are on stable
    storage (`SeedConnection.reset_on_close`).
    """

    def __init__(self, port: Port, decoder: SizedDecoder) -> None:
        super().__init__(port)
        self._sized = decoder
        self._publish_queue = PublishQueue(self, self._publish_failed)
        self._to_do: deque[Event] = deque()
        self._serving: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self.reset_on_close()

    @property
    def unfinished_bytes(self) -> int:
        return self._sized.bytes_wanted

    @property
    def has_work(self) -> bool:
        return self._serving is not None or not self._publish_queue.is_settled

    async def until_done(self) -> None:
        if self._serving is not None:
            await asyncio.wait([self._serving])
        await self._publish_queue.settled()

    def _begin_serving(self) -> None:
        """Start to handle requests, unless that runs already."""
        if self._to_do and self._serving is None:
            self.pause_reading(SeedPause.WORK)
            self._serving = self.context.spawn(self._serve())

    def _served(self) -> None:
        """End serving; called at the end of `_serve`, also after an error."""
        self._serving = None
        self.resume_reading(SeedPause.WORK)

    async def _serve(self) -> None:
        raise NotImplementedError

    def _publish_failed(self, topic: str, count: int, error: SparrowError) -> None:
        raise NotImplementedError
