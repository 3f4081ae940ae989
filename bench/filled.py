"""Queues that have messages before they are measured."""

from __future__ import annotations

import sparrow


async def fill_queue(url: str, queue: str, value: bytes, count: int) -> None:
    """Make a queue of one partition with this many messages, each on stable storage."""
    async with sparrow.connect(url) as client:
        await client.admin.create_queue(queue, partitions=1)
        async with client.producer() as producer:
            for _ in range(count):
                await producer.send(queue, value)
