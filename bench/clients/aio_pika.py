"""aio-pika, the asyncio client of RabbitMQ: workers that acknowledge each message by itself."""

from __future__ import annotations

import asyncio

import aio_pika
import uvloop

from bench.together import Span, Start, Stopwatch


def consume_singly(port: int, queue: str, count: int, workers: int, prefetch: int, start: Start) -> Span:
    """Consume in `workers` tasks, which acknowledge each message before they take the next."""
    return uvloop.run(_consume_singly(port, queue, count, workers, prefetch, start))


async def _consume_singly(
    port: int, name: str, count: int, workers: int, prefetch: int, start: Start
) -> Span:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/?heartbeat=0")
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=prefetch)
    queue = await channel.get_queue(name, ensure=False)
    messages: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        messages.put_nowait(message)

    await queue.consume(take)
    await (await messages.get()).ack()
    watch = Stopwatch(start)
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await (await messages.get()).ack()

    await asyncio.gather(*(work() for _ in range(workers)))
    span = watch.span()
    await connection.close()
    return span
