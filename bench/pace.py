"""Sending at a fixed rate, and lateness by the time at which each message was due: what waits
behind a slow one counts as late (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import selectors
import struct
import time
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

_STAMP = struct.Struct(">d")
STAMP_BYTES = _STAMP.size


class Quantiles(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    highest: float
    p999: float


def stamped(due: float, size: int) -> bytes:
    """A message that says when it was due (monotonic seconds), of `size` bytes."""
    return _STAMP.pack(due) + b"m" * (size - STAMP_BYTES)


def late_s(value: bytes) -> float:
    """Return the seconds since a message was due."""
    due: float = _STAMP.unpack_from(value)[0]
    return time.monotonic() - due


def quantiles(times_s: list[float]) -> Quantiles:
    """Return the quantiles of latencies in seconds."""
    times = sorted(times_s)

    def at(share: float) -> float:
        return times[round((len(times) - 1) * share)] * 1000

    return Quantiles(at(0.5), at(0.99), at(1.0), at(0.999))


def settled(times_s: list[float]) -> list[float]:
    """Latencies in the order in which the messages came, without the first fifth: client and broker
    warm up in it.
    """
    return times_s[len(times_s) // 5 :]


def due_times(began: float, rate: int, count: int) -> Iterator[float]:
    """When each of `count` messages is due; waits until it is. For clients that block."""
    for n in range(count):
        due = began + n / rate
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        yield due


async def due_times_async(began: float, rate: int, count: int) -> AsyncIterator[float]:
    """The same for a loop of `precise_loop`."""
    for n in range(count):
        due = began + n / rate
        pause = due - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        yield due


def precise_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact to some 0.1 ms: `select` takes microseconds, where epoll and
    uvloop take whole milliseconds.
    """
    return asyncio.SelectorEventLoop(selectors.SelectSelector())
