"""kill -9 under load, then damage below the recovery point: one partition closes, the others serve,
no offset is given out twice.

`make crash` runs more rounds: SPARROW_CRASH_ROUNDS says how many.
"""

from __future__ import annotations

import asyncio
import random

import pytest

import sparrow.testing
from sparrow.base.errors import SparrowError
from sparrow.cli.doctor import doctor
from sparrow.client import Message, connect
from sparrow.storage.filesystem import LocalFileSystem
from sparrow.storage.recovery import examine_all
from tests.crash.damage import Inflicted, inflict
from tests.crash.publisher import PARTITIONS, Ledger, connect_eagerly, number_of, publish_until, read_all
from tests.repetitions import CRASH_ROUNDS

ROUNDS = max(3, CRASH_ROUNDS // 3)
TOPIC = "crash"
CONFIG = {"segment.bytes": "16384"}


async def load(url: str, seconds: float) -> Ledger:
    """Publish for a while, and wait for pending publishes at the end."""
    ledger, stop = Ledger(), asyncio.Event()
    async with await connect_eagerly(url) as client:
        publishing = asyncio.create_task(publish_until(stop, client, TOPIC, ledger, acks="all"))
        await asyncio.sleep(seconds)
        while len(ledger.acknowledged) < 300:
            await asyncio.sleep(0.01)
        stop.set()
        await publishing
    return ledger


async def refused_and_taken(url: str) -> tuple[set[int], set[int], dict[int, int]]:
    """Return which partitions refuse a message with LOG_DAMAGED, and which accept it at which
    offset.
    """
    refused, taken, offsets = set(), set(), {}
    async with connect(url) as client:
        for partition in range(PARTITIONS):
            try:
                delivery = await client.publish(TOPIC, b"-1 after", partition=partition)
            except SparrowError as error:
                assert error.code == "LOG_DAMAGED"  # noqa: PT017 - the other partitions go on
                refused.add(partition)
            else:
                taken.add(partition)
                offsets[partition] = delivery.offset
    return refused, taken, offsets


def ends_of(ledger: Ledger) -> dict[int, int]:
    ends: dict[int, int] = {}
    for partition, offset in ledger.acknowledged.values():
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends


def gaps_of(data_dir: str, inflicted: Inflicted) -> list[tuple[int, int]]:
    (found,) = [each for each in examine_all(LocalFileSystem(), data_dir) if each.log == inflicted.log]
    assert found.checkpoint is not None
    lost = [(gap.first, gap.end) for gap in found.checkpoint.gaps]
    return [*lost, (0, found.start_offset)]


def check_left(
    ledger: Ledger, found: list[Message], inflicted: Inflicted, gaps: list[tuple[int, int]]
) -> None:
    """Check that every acknowledged message is at its offset, or its offset is in a gap; and that
    nothing else is at any offset before the recovery point.
    """
    there = {(each.partition, each.offset): number_of(each) for each in found}
    partition = int(inflicted.log.rpartition("-")[2])
    for number, place in ledger.acknowledged.items():
        if place[0] == partition and place[1] >= inflicted.point:
            continue
        in_gap = place[0] == partition and any(first <= place[1] < end for first, end in gaps)
        assert place not in there if in_gap else there[place] == number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_damage_below_the_recovery_point_closes_one_partition_and_gives_no_offset_out_again(
    seed: int,
) -> None:
    dice = random.Random(seed)
    with sparrow.testing.broker(process=True) as broker:

        async def prepare() -> Ledger:
            async with connect(broker.url) as client:
                await client.admin.create_topic(TOPIC, partitions=PARTITIONS, config=CONFIG)
            return await load(broker.url, dice.uniform(0.1, 0.4))

        ledger = asyncio.run(prepare())
        broker.kill()
        inflicted = inflict(broker.data_dir, TOPIC, dice)
        assert inflicted is not None, "segments are small, so every log has rolled"
        damaged = int(inflicted.log.rpartition("-")[2])
        broker.restart()
        refused, taken, _ = asyncio.run(refused_and_taken(broker.url))
        assert (refused, taken) == ({damaged}, set(range(PARTITIONS)) - {damaged}), inflicted
        broker.kill()
        assert doctor(broker.data_dir) == 65
        doctor(broker.data_dir, accept_loss=True)
        gaps = gaps_of(broker.data_dir, inflicted)
        broker.restart()
        refused, _, offsets = asyncio.run(refused_and_taken(broker.url))
        assert refused == set()
        ends = ends_of(ledger) | {damaged: inflicted.point}
        assert all(offsets[partition] >= end for partition, end in ends.items()), inflicted
        check_left(ledger, asyncio.run(read_all(broker.url, TOPIC)), inflicted, gaps)
