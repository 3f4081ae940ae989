"""Clients of the five seed systems (docs/seeds.md says what each of their protocols can promise).

A publisher that closes its side, and finds its connection closed and not reset, knows that all it
sent is on stable storage: that is what counts as an acknowledgement here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrow.testing.running_broker import RunningBroker
from tests.seeds.listeners import TIMEOUT_S, Wire


def port_of(broker: RunningBroker, name: str) -> int:
    return broker.seeds[name][1]


@asynccontextmanager
async def used(wire: Wire) -> AsyncIterator[Wire]:
    """Yield a connection that is closed at the end."""
    try:
        yield wire
    finally:
        Wire.opened.remove(wire)
        await wire.abort()


async def is_kept(wire: Wire) -> bool:
    """Close our side; return True if everything that was sent is on stable storage. Raise
    ConnectionError if the broker, or its system, resets the connection.
    """
    wire.writer.write_eof()
    async with asyncio.timeout(TIMEOUT_S):
        return not await wire.reader.read()
