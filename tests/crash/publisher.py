"""A publisher that goes on while its broker is killed and restarted, and the comparison of what it was promised with what is there."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from sparrow.client import Client, Delivery, Message, connect
from sparrow.client.connection import Connection
from sparrow.client.options import ClientOptions, Isolation
from sparrow.client.url import parse_url

PARTITIONS = 3


@dataclass
class Ledger:
    """What was sent and what was promised: number → (partition, offset)."""

    sent: int = 0
    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)


async def connect_eagerly(url: str) -> Client:
    """A client that looks for its broker five times a second, so that rounds are short."""
    connection = Connection(parse_url(url), ClientOptions(backoff_initial_s=0.02, backoff_max_s=0.2))
    await connection.open()
    return Client(connection)


async def publish_until(
    stop: asyncio.Event, client: Client, topic: str, ledger: Ledger, *, acks: str
) -> None:
    """Publish numbered messages of different sizes until told to stop; returns when all is known of each."""

    async def settle(number: int, delivery: Delivery) -> None:
        found = await delivery
        ledger.acknowledged[number] = (found.partition, found.offset)

    async with (
        client.producer(acks=acks, linger_ms=1, batch_bytes=4096) as producer,
        asyncio.TaskGroup() as group,
    ):
        while not stop.is_set():
            number, ledger.sent = ledger.sent, ledger.sent + 1
            padding = b"." * (number * 37 % 400)
            group.create_task(settle(number, await producer.send(topic, b"%d %s" % (number, padding))))
            if number % 20 == 0:
                await asyncio.sleep(0.001)


async def read_all(url: str, topic: str, *, isolation: Isolation = "read_uncommitted") -> list[Message]:
    """Everything between the beginning and the end of a topic."""
    found: list[Message] = []
    async with connect(url) as client:
        ends = {each.partition: each.offset for each in await client.admin.offsets(topic, "end")}
        async with client.subscribe(topic, start="beginning", isolation=isolation) as subscription:
            while sum(subscription.positions.values()) < sum(ends.values()):
                found += await subscription.pull(1000, wait_s=1)
    return found


def number_of(message: Message) -> int:
    assert message.value is not None
    return int(message.value.split(b" ", 1)[0])


def check(ledger: Ledger, found: list[Message]) -> None:
    """Every acknowledged message is there once, at its offset; nothing is there twice; each partition is in the order of sending."""
    copies = Counter(map(number_of, found))
    assert [number for number, count in copies.items() if count > 1] == []
    places = {number_of(message): (message.partition, message.offset) for message in found}
    assert {n: places.get(n) for n in ledger.acknowledged} == ledger.acknowledged
    for partition in range(PARTITIONS):
        numbers = [number_of(message) for message in found if message.partition == partition]
        assert numbers == sorted(numbers)
        offsets = [message.offset for message in found if message.partition == partition]
        assert offsets == list(range(len(offsets)))
