"""The work of `sparrow bench`: messages out, in, or through a queue, at full speed or at a fixed
rate.

At a fixed rate every message has a time at which it is due, and its latency counts from there. At
full speed a message is due when it is sent, and only a sample is timed, so that the timing costs
nothing noticeable.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.cli.bench_report import Figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparrow.client.batch import Delivery
    from sparrow.client.client import Client
    from sparrow.client.options import Acks

_TIMED_OF = 100
"""At full speed one message in this many is timed."""
_AT_A_TIME = 5_000
_LEASED_AT_A_TIME = 500
_IDLE_WAIT_S = 0.25
_FIRST_WAIT_S = 30.0
_DIFFERENT = 1000
"""Number of different payloads."""
_STAMP = struct.Struct(">d")
_UNTIMED = 0.0


class Load(Struct, frozen=True):
    """The messages to send."""

    messages: int
    payloads: Sequence[bytes]
    """Payloads, sent round robin."""
    keys: int = 0
    """Number of different keys; 0: no keys."""
    rate: float = 0.0
    """Messages per second; 0: full speed."""

    def key(self, number: int) -> bytes | None:
        return b"key-%d" % (number % self.keys) if self.keys else None

    def payload(self, number: int) -> bytes:
        return self.payloads[number % len(self.payloads)]

    def is_timed(self, number: int) -> bool:
        return self.rate > 0 or number % _TIMED_OF == 0


def random_payloads(size_bytes: int) -> list[bytes]:
    """Return random text, the same in every run; it compresses about as prose does."""
    dice = random.Random(size_bytes)  # noqa: S311 - not a secret
    letters = bytes(dice.choices(b"abcdefghijklmnopqrstuvwxyz     ", k=size_bytes + _DIFFERENT))
    return [letters[start : start + size_bytes] for start in range(_DIFFERENT)]


class _Pace:
    """Times at which messages are due."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()

    async def due(self, number: int) -> float:
        """Wait until a message is due, and return that time."""
        now = time.monotonic()
        if not self._rate:
            return now
        due = self._began + number / self._rate
        if due > now:
            await asyncio.sleep(due - now)
        return due


# ── publishing ────────────────────────────────────────────────────────────────────────────────────


async def publish(
    client: Client, topic: str, load: Load, *, acks: Acks, compression: str, linger_ms: float
) -> Figures:
    """Publish, and time some of the acknowledgements.

    Raises:
        SparrowError: the topic cannot be published to.
    """
    figures = Figures()
    async with client.producer(acks=acks, compression=compression, linger_ms=linger_ms) as producer:
        # open the connection before the clock starts
        await (await producer.send(topic, load.payload(0), key=load.key(0)))
        timed: asyncio.Queue[tuple[float, Delivery] | None] = asyncio.Queue()
        timing = asyncio.create_task(_time_acknowledgements(timed, figures))
        pace = _Pace(load.rate)
        began = time.monotonic()
        for number in range(load.messages):
            due = await pace.due(number) if load.rate or load.is_timed(number) else 0.0
            payload = load.payload(number)
            delivery = await producer.send(topic, payload, key=load.key(number))
            figures.size_bytes += len(payload)
            if load.is_timed(number):
                timed.put_nowait((due, delivery))
        await producer.flush()
        figures.seconds = time.monotonic() - began
        timed.put_nowait(None)
        await timing
    figures.messages = load.messages
    return figures


async def _time_acknowledgements(
    timed: asyncio.Queue[tuple[float, Delivery] | None], figures: Figures
) -> None:
    while (next_one := await timed.get()) is not None:
        due, delivery = next_one
        try:
            await delivery
        except SparrowError:
            figures.failed += 1
        else:
            figures.latencies_s.append(time.monotonic() - due)


# ── consuming ─────────────────────────────────────────────────────────────────────────────────────


async def consume(client: Client, topics: list[str], count: int, *, group: str | None) -> Figures:
    """Read from the beginning (or the group's position); `count` 0: everything that is there at the
    start.
    """
    ends = {
        (name, each.partition): each.offset
        for name in topics
        for each in await client.admin.offsets(name, "end")
    }
    figures = Figures()
    async with client.subscribe(
        *topics, start="beginning", group=group, prefetch_bytes=16 << 20
    ) as subscription:
        began = last = time.monotonic()
        while not count or figures.messages < count:
            messages = await subscription.pull(_AT_A_TIME, wait_s=_IDLE_WAIT_S)
            now = time.monotonic()
            if messages:
                figures.messages += len(messages)
                figures.size_bytes += sum(len(each.value or b"") for each in messages)
                last = now
            elif now - last > _FIRST_WAIT_S:
                break
            positions = subscription.positions
            if not count and positions and _is_read(positions, ends):
                break
        figures.seconds = last - began
        if group is not None:
            await subscription.commit()
    return figures


def _is_read(positions: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]) -> bool:
    return all(position >= ends.get(key, 0) for key, position in positions.items())


# ── through a queue ───────────────────────────────────────────────────────────────────────────────


async def through_queue(publisher: Client, workers: Sequence[Client], queue_name: str, load: Load) -> Figures:
    """Publish to a queue while workers lease and acknowledge; end when every message is
    acknowledged on stable storage.

    The latency is the time from when a message is due until its worker has it. Each message begins
    with the time at which it is due, so it has at least eight bytes.
    """
    topic = await publisher.queue(queue_name).topic()
    figures = Figures()
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(_send_stamped(publisher, topic, load))
        for worker in workers:
            group.create_task(_work(worker, queue_name, load.messages, figures))
    figures.seconds = time.monotonic() - began
    return figures


async def _send_stamped(client: Client, topic: str, load: Load) -> None:
    async with client.producer(linger_ms=1 if load.rate else 5) as producer:
        pace = _Pace(load.rate)
        for number in range(load.messages):
            due = await pace.due(number) if load.is_timed(number) else _UNTIMED
            value = _STAMP.pack(due) + load.payload(number)[_STAMP.size :]
            await producer.send(topic, value, key=load.key(number))
        await producer.flush()


async def _work(client: Client, queue_name: str, count: int, figures: Figures) -> None:
    async with client.queue(queue_name) as queue:
        while figures.messages < count:
            jobs = await queue.lease(_LEASED_AT_A_TIME, wait_s=_IDLE_WAIT_S)
            if not len(jobs):
                continue
            now = time.monotonic()
            for value in jobs.values:
                _count(value or b"", now, figures)
            await jobs.ack()


def _count(value: bytes, now: float, figures: Figures) -> None:
    figures.messages += 1
    figures.size_bytes += len(value)
    (due,) = _STAMP.unpack_from(value)
    if due != _UNTIMED:
        figures.latencies_s.append(now - due)
