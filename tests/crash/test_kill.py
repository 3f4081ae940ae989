"""kill -9 of a real broker at seeded moments, under load, many times.

`make crash` runs more rounds: SPARROW_CRASH_ROUNDS says how many.
"""

from __future__ import annotations

import asyncio
import random

import pytest

import sparrow.testing
from sparrow.client import connect
from tests.crash.publisher import PARTITIONS, Ledger, check, connect_eagerly, publish_until, read_all
from tests.repetitions import CRASH_ROUNDS

ROUNDS = CRASH_ROUNDS
TOPIC = "crash"


async def kill_again_and_again(broker, *, acks: str, rounds: int, seed: int) -> Ledger:
    """Publish all the time; in each round, kill some time after an acknowledgement and restart."""
    dice = random.Random(seed)
    ledger, stop = Ledger(), asyncio.Event()
    async with await connect_eagerly(broker.url) as client:
        await client.admin.create_topic(TOPIC, partitions=PARTITIONS)
        publishing = asyncio.create_task(publish_until(stop, client, TOPIC, ledger, acks=acks))
        for _ in range(rounds):
            before = len(ledger.acknowledged)
            while len(ledger.acknowledged) == before:
                await asyncio.sleep(0.002)
            await asyncio.sleep(dice.uniform(0, 0.15))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)
        stop.set()
        await publishing
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize(("acks", "rounds", "seed"), [("all", ROUNDS, 1), ("1", max(3, ROUNDS // 5), 2)])
def test_every_acknowledged_message_is_there_once_after_kill_9(acks, rounds, seed):
    with sparrow.testing.broker(process=True) as broker:
        ledger = asyncio.run(kill_again_and_again(broker, acks=acks, rounds=rounds, seed=seed))
        found = asyncio.run(read_all(broker.url, TOPIC))
    assert len(ledger.acknowledged) == ledger.sent
    check(ledger, found)


@pytest.mark.slow
def test_committed_offset_and_topic_survive_kill_9():
    async def prepare(url):
        async with connect(url) as client:
            await client.admin.create_topic("kept", partitions=1, config={"retention.ms": "12345"})
            await client.publish("kept", b"one")
            await client.admin.commit("readers", {("kept", 0): 1})

    async def look(url):
        async with connect(url) as client:
            topic = await client.admin.describe_topic("kept")
            config = {each.name: each.value for each in topic.config}
            committed = await client.admin.group_offsets("readers")
            return topic.partitions[0].end_offset, config["retention.ms"], [each.offset for each in committed]

    with sparrow.testing.broker(process=True) as broker:
        asyncio.run(prepare(broker.url))
        broker.kill()
        broker.restart()
        assert asyncio.run(look(broker.url)) == (1, "12345", [1])
