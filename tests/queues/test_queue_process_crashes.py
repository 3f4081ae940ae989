"""Real brokers killed -9 at random moments while real clients publish, lease and settle; the
promises that every history must keep.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from tests.crash.publisher import connect_eagerly

import sparrow.testing
from sparrow.base.errors import SparrowError
from sparrow.client import Client, Job
from sparrow.testing.running_broker import RunningBroker

KEYED, PARENTED = "keyed", "parented"
LIMIT = 3
KEYS = 12
KEYED_MESSAGES = 360
PARENTED_MESSAGES = 200
KILLS = 4
WORKERS = 3


def is_poison(number: int) -> bool:
    return number % 17 == 5


@dataclass
class History:
    """Events that clients of one queue saw, in order."""

    counts: list[tuple[int, int]] = field(default_factory=list)
    """(message, delivery count)."""
    events: list[tuple[str, int]] = field(default_factory=list)
    """("got" | "acking" | "acked", message)."""

    def note(self, what: str, number: int) -> None:
        self.events.append((what, number))

    def first(self, what: str, number: int) -> int:
        return self.events.index((what, number))


async def work_at(client: Client, name: str, history: History, dice: random.Random) -> None:
    """Take jobs until cancelled: poison always fails, others now and then."""
    async for job in client.queue(name, prefetch=20):
        await handle(job, name, history, dice)


async def handle(job: Job, name: str, history: History, dice: random.Random) -> None:
    number = int(job.value or b"")
    history.note("got", number)
    history.counts.append((number, job.delivery_count))
    await asyncio.sleep(dice.choice([0, 0, 0.002, 0.01]))
    try:
        if name == KEYED and (is_poison(number) or (dice.random() < 0.1 and job.delivery_count == 1)):
            await job.nack(error="no luck")
            return
        history.note("acking", number)
        await job.ack()
        history.note("acked", number)
    except SparrowError:
        # its lease ended, or the response was lost: it comes again, if it is not done
        pass


async def publish_keyed(client: Client) -> None:
    async with client.producer(linger_ms=1) as producer:
        for number in range(KEYED_MESSAGES):
            await producer.send(KEYED, b"%d" % number, key=b"k%d" % (number % KEYS))
            await asyncio.sleep(0.005)


def parents_of(number: int) -> list[int]:
    dice = random.Random(number)
    return sorted({dice.randrange(number) for _ in range(dice.randrange(4))}) if number else []


async def publish_parented(client: Client, dice: random.Random) -> None:
    """Publish families of messages, children often before their parents."""
    order = sorted(range(PARENTED_MESSAGES), key=lambda number: number + dice.uniform(-15, 15))
    async with client.producer(linger_ms=1) as producer:
        for number in order:
            parents = [f"m{parent}" for parent in parents_of(number)]
            await producer.send(PARENTED, b"%d" % number, message_id=f"m{number}", parents=parents)
            await asyncio.sleep(0.01)


async def kill_now_and_then(broker: RunningBroker, dice: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(dice.uniform(0.1, 0.7))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)


async def finished(client: Client, name: str) -> None:
    """Wait until no message is left."""
    async with asyncio.timeout(120):
        while (await client.admin.describe_queue(name)).statistics.unfinished:
            await asyncio.sleep(0.1)


async def live(broker: RunningBroker, seed: int) -> tuple[dict[str, History], list[int]]:
    """Publish, work and kill until all is done; return the history, and which messages died."""
    dice = random.Random(seed)
    histories = {KEYED: History(), PARENTED: History()}
    async with await connect_eagerly(broker.url) as client:
        policies: dict[str, dict[str, object]] = {
            KEYED: {"order": "key", "delivery_limit": LIMIT, "lease_ms": 1000},
            PARENTED: {"order": "parented", "delivery_limit": 0, "lease_ms": 1000},
        }
        for name, policy in policies.items():
            await client.admin.create_queue(name, policy=policy, partitions=2)
        workers = [
            asyncio.create_task(work_at(client, name, history, random.Random(seed + number)))
            for name, history in histories.items()
            for number in range(WORKERS)
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(publish_keyed(client))
            group.create_task(publish_parented(client, dice))
            group.create_task(kill_now_and_then(broker, dice))
        for name in histories:
            await finished(client, name)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        async with client.queue(f"{KEYED}.dead") as dead:
            jobs = await dead.lease(10_000, wait_s=5)
            letters = [int(job.value or b"") for job in jobs]
            await jobs.ack()
    return histories, letters


@pytest.mark.slow
def test_histories_of_workers_whose_broker_is_killed_again_and_again() -> None:
    with sparrow.testing.broker(process=True) as broker:
        histories, dead = asyncio.run(live(broker, seed=4))
    keyed, parented = histories[KEYED], histories[PARENTED]
    for history in histories.values():
        nothing_comes_back_that_was_acknowledged(history)
    every_message_ends_once(keyed, dead)
    assert {number for what, number in parented.events if what == "acking"} == set(range(PARENTED_MESSAGES))
    nothing_is_delivered_beyond_the_limit(keyed)
    messages_of_a_key_come_in_order(keyed)
    children_come_behind_their_parents(parented)


def nothing_comes_back_that_was_acknowledged(history: History) -> None:
    done: set[int] = set()
    for what, number in history.events:
        if what == "acked":
            done.add(number)
        assert not (what == "got" and number in done), number


def every_message_ends_once(history: History, dead: list[int]) -> None:
    assert [number for number, copies in Counter(dead).items() if copies > 1] == []
    acked = {number for what, number in history.events if what == "acked"}
    tried = {number for what, number in history.events if what == "acking"}
    assert acked & set(dead) == set()
    assert tried | set(dead) == set(range(KEYED_MESSAGES))
    assert {number for number in range(KEYED_MESSAGES) if is_poison(number)} <= set(dead)


def nothing_is_delivered_beyond_the_limit(history: History) -> None:
    assert max(count for _, count in history.counts) <= LIMIT
    assert max(Counter(number for number, _ in history.counts).values()) <= LIMIT
    assert len(set(history.counts)) == len(history.counts), "a delivery was counted twice"


def messages_of_a_key_come_in_order(history: History) -> None:
    latest: dict[int, int] = {}
    for what, number in history.events:
        if what == "got":
            assert number >= latest.get(number % KEYS, 0), (number, latest[number % KEYS])
            latest[number % KEYS] = number


def children_come_behind_their_parents(history: History) -> None:
    for child in range(PARENTED_MESSAGES):
        for parent in parents_of(child):
            assert history.first("acking", parent) < history.first("got", child), (parent, child)
