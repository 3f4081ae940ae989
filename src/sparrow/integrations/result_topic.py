"""Results of tasks in a topic: one record for each state of a task, under its id.

Results are kept for a time (`retention.ms` of the topic), for every process that asks: the first
question reads the topic from its beginning, and from then on it is followed. The newest states of
the last `MAX_RESULTS` tasks are in memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.client.missing_topic import create_if_missing

if TYPE_CHECKING:
    from sparrow.client.client import Client

MAX_RESULTS: Final = 100_000
KEPT_MS: Final = 3_600_000
"""Time for which a new topic keeps results."""


class ResultTopic:
    """The results of one topic. Loop thread only."""

    def __init__(self, client: Client, topic: str, *, keep_ms: int = KEPT_MS) -> None:
        self._client = client
        self._topic = topic
        self._keep_ms = keep_ms
        self._states: OrderedDict[bytes, bytes] = OrderedDict()
        self._reading: asyncio.Task[None] | None = None
        self._ends: dict[int, int] = {}
        """Partitions that are not read up to the end that they had when the reading began."""
        self._is_caught_up = asyncio.Event()
        self._is_made = False

    async def _make(self) -> None:
        if not self._is_made:
            config = {"retention.ms": self._keep_ms, "segment.ms": max(self._keep_ms // 4, 60_000)}
            await create_if_missing(self._client.admin, self._topic, partitions=1, config=config)
            self._is_made = True

    async def put(self, task_id: str, state: bytes | None) -> None:
        """Store the newest state of a task; None: it is known no more."""
        await self._make()
        await self._client.publish(self._topic, state, key=task_id.encode())

    async def get(self, task_id: str) -> bytes | None:
        """Return the newest state of a task that is known here, or None."""
        await self._follow()
        return self._states.get(task_id.encode())

    async def _follow(self) -> None:
        await self._make()
        if self._reading is None or self._reading.done():
            starts = await self._client.admin.offsets(self._topic, "beginning")
            ends = {
                each.partition: each.offset for each in await self._client.admin.offsets(self._topic, "end")
            }
            self._ends = {
                each.partition: ends[each.partition] for each in starts if each.offset < ends[each.partition]
            }
            self._reading = asyncio.get_running_loop().create_task(self._read())
        reading = asyncio.ensure_future(self._is_caught_up.wait())
        done, _ = await asyncio.wait((reading, self._reading), return_when=asyncio.FIRST_COMPLETED)
        if reading not in done:
            reading.cancel()
            await self._reading  # raises the reason

    async def _read(self) -> None:
        self._note(-1, -1)
        async with self._client.subscribe(self._topic, start="beginning") as subscription:
            async for message in subscription:
                if message.key is not None and message.value is None:
                    self._states.pop(message.key, None)
                elif message.key is not None and message.value is not None:
                    self._states[message.key] = message.value
                    self._states.move_to_end(message.key)
                    while len(self._states) > MAX_RESULTS:
                        self._states.popitem(last=False)
                self._note(message.partition, message.offset + 1)

    def _note(self, partition: int, offset: int) -> None:
        """Note how far the reading is."""
        if partition in self._ends and offset >= self._ends[partition]:
            del self._ends[partition]
        if not self._ends:
            self._is_caught_up.set()

    async def close(self) -> None:
        """End the reading."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._reading
