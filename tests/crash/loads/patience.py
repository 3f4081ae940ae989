"""Clients that lose their broker and reconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp

from sparrow.base.errors import SparrowError
from sparrow.testing.running_broker import RunningBroker
from tests.crash.publisher import connect_eagerly

AGAIN_S = 0.02
TROUBLE = (OSError, EOFError, aiohttp.ClientError, SparrowError)
"""Errors of a broker that is down, or accepts nothing for now."""
PATIENCE_S = 180.0
"""The longest time until pending work ends once the broker has no more faults."""


async def again_until(stop: asyncio.Event, work: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step through all faults of the broker."""
    while not stop.is_set():
        try:
            await work()
        except TROUBLE:
            await asyncio.sleep(AGAIN_S)


async def soon(is_so: Callable[[], bool]) -> bool:
    """Wait for a condition. Return False if it takes too long; the check reports that by itself."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        return False
    return True


async def until_empty(broker: RunningBroker, queue: str) -> None:
    """Wait until a queue (or share group) has nothing left to do; with a time limit, because checks
    find what is left.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S), await connect_eagerly(broker.url) as client:
            while (await client.admin.describe_queue(queue)).statistics.unfinished:
                await asyncio.sleep(AGAIN_S)
