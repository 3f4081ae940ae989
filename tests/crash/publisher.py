"""A publisher that continues while its broker is killed and restarted, and the comparison of its
confirmations with the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sparrow.client import Client, Delivery, Message, connect
from sparrow.client.options import ClientOptions, Isolation
from sparrow.client.session import Session
from sparrow.client.url import parse_url
from tests.crash.histories import Event, Found, History, Kind, kept
from tests.crash.histories.logs import doubled, gaps, invented, lost, reordered

PARTITIONS = 3


@dataclass
class Ledger:
    """Sent and confirmed messages: number → (partition, offset)."""

    sent: int = 0
    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)


async def connect_eagerly(url: str) -> Client:
    """Return a client that looks for its broker five times a second, so that rounds are short."""
    session = Session(parse_url(url), ClientOptions(backoff_initial_s=0.02, backoff_max_s=0.2))
    await session.open()
    return Client(session)


async def publish_until(
    stop: asyncio.Event, client: Client, topic: str, ledger: Ledger, *, acks: str, pause_s: float = 0.001
) -> None:
    """Publish numbered messages of different sizes until stopped; return when the outcome of each
    is known.
    """

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
                await asyncio.sleep(pause_s)


async def read_all(url: str, topic: str, *, isolation: Isolation = "read_uncommitted") -> list[Message]:
    """Return everything between the beginning and the end of a topic."""
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
    """Check that every acknowledged message exists once, at its offset; no message exists twice;
    each partition is in the order of sending.
    """
    history = History(Event(0, Kind.SENT, number) for number in range(ledger.sent))
    for number, place in ledger.acknowledged.items():
        history.note(Kind.ACKNOWLEDGED, number, place)
    there = [Found(number_of(each), each.partition, each.offset) for each in found]
    kept(
        lost(history, there),
        invented(history, there),
        doubled(history, there),
        reordered(there),
        gaps(there),
    )
