"""A client that asks and publishes over one connection: what it asks is handled one after the other, what it publishes leaves at once."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sparrow.frontends.seeds.intake import Intake
from sparrow.frontends.seeds.pump import Hold, Port, Pump

if TYPE_CHECKING:
    from sparrow.base.errors import SparrowError

Event = TypeVar("Event")


class Decoder(Protocol):
    """What makes events of bytes."""

    @property
    def bytes_wanted(self) -> int:
        """How large the frame under way is; 0: none is."""
        ...


class SerialPump(Pump, Generic[Event]):
    """Nothing is read while something that was asked is being handled (`_serve`).

    A connection that only publishes is closed normally only when all that it sent is on stable storage (`Pump.stake`).
    """

    def __init__(self, port: Port, decoder: Decoder) -> None:
        super().__init__(port)
        self._wanting = decoder
        self._intake = Intake(self, self._not_kept)
        self._to_do: deque[Event] = deque()
        self._serving: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self.stake()

    @property
    def bytes_wanted(self) -> int:
        return self._wanting.bytes_wanted

    @property
    def has_work(self) -> bool:
        return self._serving is not None or not self._intake.is_settled

    async def until_done(self) -> None:
        if self._serving is not None:
            await asyncio.wait([self._serving])
        await self._intake.settled()

    def _begin_serving(self) -> None:
        """Handle what is to be done, unless that happens already."""
        if self._to_do and self._serving is None:
            self.hold(Hold.WORK)
            self._serving = self.port.start(self._serve())

    def _served(self) -> None:
        """To be called at the end of `_serve`, however it ends."""
        self._serving = None
        self.unhold(Hold.WORK)

    async def _serve(self) -> None:
        raise NotImplementedError

    def _not_kept(self, topic: str, count: int, error: SparrowError) -> None:
        raise NotImplementedError
