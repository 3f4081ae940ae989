"""Messages of several partitions in the order of their times, as far as each partition has them in
that order.

Each partition has its own subscription, so that none of them runs ahead: what waits is bounded by
`_PREFETCH_BYTES` over all partitions (and a batch of each), whatever there is to read. The next
message is always that of the earliest time among the first of each partition; among equal times (a
time is a number of milliseconds) the order is not defined. Within a partition the order is that of
the offsets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sparrow.client.options import SubscribeOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from datetime import datetime

    from sparrow.client.client import Client
    from sparrow.client.subscription import Subscription
    from sparrow.records.readable import OnCorrupt
    from sparrow.records.record import Record

    Key = tuple[str, int]

MAX_PARTITIONS = 64
"""Limit of partitions: a subscription for each of more would cost the broker too much."""
_PREFETCH_BYTES = 8 << 20
_LEAST_PREFETCH_BYTES = 128 << 10
_AT_A_TIME = 500
_POLL_S = 0.25
"""Interval at which a partition without new messages is asked whether it is at its end."""


async def read_merged(
    client: Client,
    ends: Mapping[Key, int],
    start: str | int | datetime,
    on_corrupt: OnCorrupt,
    max_messages: int,
) -> AsyncGenerator[list[Record], None]:
    """Yield lists of at most `max_messages` messages, until each partition is read up to its end.

    Args:
        ends: (topic, partition) → the first offset that is not read any more.
    """
    options = SubscribeOptions(
        prefetch_bytes=max(_LEAST_PREFETCH_BYTES, _PREFETCH_BYTES // len(ends)), on_corrupt=on_corrupt
    )
    async with AsyncExitStack() as open_ones:
        parts = []
        begins = await _begins(client, ends, start)
        for key, end in ends.items():
            # A subscription is to whole topics: the other partitions start where nothing is read
            # from them.
            positions = {other: at for other, at in ends.items() if other != key and other[0] == key[0]}
            if key in begins:
                positions[key] = begins[key]
            subscription = client.subscription([key[0]], "beginning", options, positions=positions)
            parts.append(_Part(await open_ones.enter_async_context(subscription), key, end))
        await asyncio.gather(*(part.fill() for part in parts))
        async for messages in _merge([part for part in parts if part.waiting], max_messages):
            yield messages


async def _begins(client: Client, ends: Mapping[Key, int], start: str | int | datetime) -> dict[Key, int]:
    """Return the offset at which each partition starts; none for the beginning, which may move
    meanwhile.
    """
    if start == "beginning":
        return {}
    if isinstance(start, int):
        return dict.fromkeys(ends, start)
    found: dict[Key, int] = {}
    for topic in dict.fromkeys(topic for topic, _ in ends):
        found |= {(topic, each.partition): each.offset for each in await client.admin.offsets(topic, start)}
    return found


class _Part:
    """One partition."""

    def __init__(self, subscription: Subscription, key: Key, end: int) -> None:
        self.waiting: deque[Record] = deque()
        self._subscription = subscription
        self._key = key
        self._end = end
        self._is_over = False

    async def fill(self) -> None:
        """Wait until a message is here, or the end is reached."""
        while not self.waiting and not self._is_over:
            position = self._subscription.positions.get(self._key)
            self._is_over = position is not None and position >= self._end
            if not self._is_over:
                self._take(await self._subscription.pull(_AT_A_TIME, wait_s=_POLL_S))

    def _take(self, messages: list[Record]) -> None:
        for each in messages:
            if (each.topic, each.partition) != self._key:
                continue
            if each.offset >= self._end:
                self._is_over = True
                return
            self.waiting.append(each)


async def _merge(parts: list[_Part], max_messages: int) -> AsyncIterator[list[Record]]:
    merged: list[Record] = []
    while parts:
        part = min(parts, key=_time_of_first)
        others = [other for other in parts if other is not part]
        limit = min((_time_of_first(other) for other in others), default=None)
        while part.waiting and (limit is None or part.waiting[0].timestamp <= limit):
            merged.append(part.waiting.popleft())
            if len(merged) == max_messages:
                yield merged
                merged = []
        if not part.waiting:
            await part.fill()
            if not part.waiting:
                parts.remove(part)
    if merged:
        yield merged


def _time_of_first(part: _Part) -> int:
    return part.waiting[0].timestamp
