"""A demonstration: kill -9 a broker again and again while messages are published, and count the
messages afterwards.

It runs a real `sparrow serve` process, a publisher with acks=all, and kill -9 at random moments.
The publisher's connection is lost each time; it reconnects and continues. At the end every
acknowledged message must be in the topic once, in order.

    python examples/kill_and_recover.py
    python examples/kill_and_recover.py --rounds 20 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter

import sparrow
import sparrow.testing

TOPIC = "demo"
PARTITIONS = 4


async def publish_until(stop: asyncio.Event, url: str, acknowledged: dict[int, tuple[int, int]]) -> int:
    """Publish numbered messages; remember the position of each acknowledged one: number →
    (partition, offset).
    """
    sent = 0

    async def remember(number: int, delivery: sparrow.Delivery) -> None:
        found = await delivery
        acknowledged[number] = (found.partition, found.offset)

    async with sparrow.connect(url) as client:
        await client.admin.create_topic(TOPIC, partitions=PARTITIONS)
        async with client.producer(acks="all") as producer, asyncio.TaskGroup() as waiting:
            while not stop.is_set():
                waiting.create_task(remember(sent, await producer.send(TOPIC, b"message %d" % sent)))
                sent += 1
                if sent % 50 == 0:
                    await asyncio.sleep(0.001)
    return sent


async def consume_all(url: str, count: int) -> list[sparrow.Message]:
    """Return the topic from its beginning to its end."""
    found: list[sparrow.Message] = []
    async with sparrow.connect(url) as client, client.subscribe(TOPIC, start="beginning") as subscription:
        async for batch in subscription.batches():
            found += batch
            if len(found) >= count:
                return found
    return found


async def demonstrate(broker: sparrow.testing.running_broker.RunningBroker, rounds: int, seed: int) -> bool:
    """Publish, kill and restart; then compare. Return True if nothing is wrong."""
    dice = random.Random(seed)  # noqa: S311 - moments that can be repeated, no secret
    acknowledged: dict[int, tuple[int, int]] = {}
    stop = asyncio.Event()
    publisher = asyncio.create_task(publish_until(stop, broker.url, acknowledged))
    before = 0
    for number in range(1, rounds + 1):
        while len(acknowledged) == before:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        await asyncio.sleep(dice.uniform(0.2, 0.6))
        before, pid = len(acknowledged), broker.pid
        await asyncio.to_thread(broker.kill)
        began = time.perf_counter()
        await asyncio.to_thread(broker.restart)
        took_ms = (time.perf_counter() - began) * 1000
        print(
            f"  round {number:2}: kill -9 of pid {pid} after {before:6} acknowledged; back after "
            f"{took_ms:4.0f} ms"
        )
    stop.set()
    sent = await publisher
    ends = await end_offsets(broker.url)
    return report(sent, acknowledged, await consume_all(broker.url, sum(ends)))


async def end_offsets(url: str) -> list[int]:
    """Return the end offset of each partition."""
    async with sparrow.connect(url) as client:
        return [each.offset for each in await client.admin.offsets(TOPIC, "end")]


def report(sent: int, acknowledged: dict[int, tuple[int, int]], found: list[sparrow.Message]) -> bool:
    """Compare the acknowledged messages with the topic, and print the result."""
    copies = Counter(message.value for message in found)
    places = {message.value: (message.partition, message.offset) for message in found}
    lost = [number for number in acknowledged if b"message %d" % number not in copies]
    moved = [number for number, place in acknowledged.items() if places.get(b"message %d" % number) != place]
    twice = [value for value, count in copies.items() if count > 1]
    unordered = sum(numbers != sorted(numbers) for numbers in _by_partition(found))
    print(f"  published {sent}, acknowledged {len(acknowledged)}, found {len(found)}")
    print(
        f"  lost {len(lost)}, twice {len(twice)}, at another offset {len(moved)}, partitions out "
        f"of order {unordered}"
    )
    return not (lost or moved or twice or unordered) and len(acknowledged) == sent


def _by_partition(found: list[sparrow.Message]) -> list[list[int]]:
    numbers: dict[int, list[int]] = {}
    for message in found:
        numbers.setdefault(message.partition, []).append(int((message.value or b"").split()[1]))
    return list(numbers.values())


def main() -> int:
    """Parse the flags, run, return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    flags.add_argument("--rounds", type=int, default=8, help="how often the broker is killed")
    flags.add_argument("--seed", type=int, default=1, help="of the moments at which it is killed")
    chosen = flags.parse_args()
    # lost connections are expected here
    logging.getLogger("sparrow.client").setLevel(logging.ERROR)
    print(f"Publish to a broker that is killed {chosen.rounds} times:")
    with sparrow.testing.broker(process=True) as broker:
        well = asyncio.run(demonstrate(broker, chosen.rounds, chosen.seed))
    print(
        "Every acknowledged message is there, once and in order."
        if well
        else "MESSAGES ARE LOST, DOUBLED OR OUT OF ORDER."
    )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
