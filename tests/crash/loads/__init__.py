"""Clients at work while their broker dies: each keeps what it was promised, and says afterwards
what of it does not hold.

A load has three parts: `prepare` makes its topics and queues, `run` works until it is told to stop
and returns when all is known that can be, `check` compares with what the broker has then. What a
promise is stands in docs/guarantees.md.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from sparrow.testing.running_broker import RunningBroker


class Load(Protocol):
    """One kind of client."""

    name: str

    async def prepare(self, broker: RunningBroker) -> None: ...

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None: ...

    async def check(self, broker: RunningBroker) -> None:
        """Raises AssertionError: a guarantee does not hold."""
        ...

    @property
    def progress(self) -> int:
        """Grows with everything that was promised; so one sees that it works."""
        ...
