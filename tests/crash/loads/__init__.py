"""Clients at work while their broker dies: each records the promises it received, and reports
afterwards which of them do not hold.

A load has three parts: `prepare` creates its topics and queues, `run` works until it is stopped and
returns when all outcomes are known, `check` compares with the broker's content. The promises are
those of docs/guarantees.md.
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
        """Check the guarantees. Raise AssertionError if one does not hold."""
        ...

    @property
    def progress(self) -> int:
        """Return a number that grows with each promise; it shows that the load works."""
        ...
