"""Compaction and removed batches: what a log over the ledger keeps is what one on files keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.records.batch import parse_header
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import decode
from sparrow.storage.store import LogConfig, PartitionLog
from tests.cluster.shards import ALL_OBJECTS, ShardBench
from tests.conformance.log_store import ORDERS
from tests.repetitions import repetitions
from tests.storage.batches import NOW_MS, Batch, kept, keyed, numbered, payload, read_batches, wrap
from tests.storage.test_compaction import COMPACT, Seen, Site

ALL_CLOSED = dataclasses.replace(COMPACT, segment_bytes=1)


def some_batches(seed: int, count: int) -> list[Batch]:
    """Return batches of keyed records, tombstones and transactions."""
    source = random.Random(seed)
    found: list[Batch] = []
    sequence = 0
    is_open = False
    for number in range(count):
        pairs = [
            (b"key%d" % source.randrange(6), None if source.random() < 0.2 else b"%d.%d" % (number, each))
            for each in range(source.randint(1, 3))
        ]
        if source.random() < 0.3:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
            found.append(keyed(pairs, NOW_MS, **fields))
            sequence, is_open = sequence + len(pairs), True
        elif is_open and source.random() < 0.5:
            kind = source.choice([ControlType.COMMIT, ControlType.ABORT])
            found.append(wrap(build_marker(kind, 7, 0, NOW_MS)))
            is_open = False
        else:
            found.append(keyed(pairs, NOW_MS))
    return found


async def records_of(log: PartitionLog) -> list[Seen]:
    found = [record for data in await read_batches(log) for record in decode(data)]
    return [(each.offset, each.key, each.value) for each in found if each.key != b"roll"]


@settings(max_examples=repetitions(30))
@given(seed=st.integers(0, 1 << 30), count=st.integers(1, 25), later_ms=st.sampled_from([0, 5000]))
def test_compaction_keeps_the_same_records_as_on_files(seed: int, count: int, later_ms: int) -> None:
    async def run() -> None:
        site = Site()
        bench = ShardBench(options=ALL_OBJECTS)
        shard = bench.open()
        log = shard.logs.open(ORDERS, ALL_CLOSED)
        for each in some_batches(seed, count):
            site.log.append([each])
            await kept(log, each)
        site.roll()
        for now_ms in (NOW_MS, NOW_MS + later_ms):
            site.clock.advance((now_ms - site.clock.wall_ms()) / 1000)
            await site.compact()
            await log.compact(now_ms)
            assert await records_of(log) == await site.records()
            for offset in range(log.end_offset):
                chunk = await log.read(offset, 1)
                assert chunk.next_offset > offset
        expected, size = await records_of(log), log.size_bytes
        await site.store.close()
        await shard.close()
        again = bench.open()
        log = again.logs.open(ORDERS, ALL_CLOSED)
        assert await records_of(log) == expected
        assert log.size_bytes == size
        await kept(log, numbered(0))
        await again.close()

    asyncio.run(run())


async def test_compaction_leaves_young_batches_that_fill_no_segment() -> None:
    shard = ShardBench().open()
    log = shard.logs.open(ORDERS, dataclasses.replace(COMPACT, segment_bytes=1 << 20))
    for number in range(10):
        await kept(log, keyed([(b"key", b"%d" % number)], NOW_MS))
    now_ms = shard.logs._resources.committer._clock.wall_ms()
    assert await log.compact(now_ms) == 0
    assert await log.compact(now_ms + log.config.segment_ms + 1000) > 0
    assert [value for _, _, value in await records_of(log)] == [b"9"]
    await shard.close()


async def test_a_removed_batch_is_empty_and_all_else_stays() -> None:
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await log.append([numbered(0, 2), numbered(1, 2), numbered(2, 2)], leader_epoch=3)
    await kept(log, numbered(3))
    with pytest.raises(InvalidArgument, match="can be read"):
        await log.remove_batch(3)
    removed = await log.remove_batch(3, force=True)
    assert (removed.base_offset, removed.last_offset, removed.record_count) == (2, 3, 2)
    with pytest.raises(InvalidArgument, match="no records"):
        await log.remove_batch(3)
    await shard.close()
    log = bench.open().logs.open(ORDERS, LogConfig())
    found = await read_batches(log)
    headers = [parse_header(each) for each in found]
    assert [(each.base_offset, each.last_offset, each.record_count) for each in headers] == [
        (0, 1, 2), (2, 3, 0), (4, 5, 2), (6, 6, 1),
    ]  # fmt: skip
    assert [each.leader_epoch for each in headers[:3]] == [3, 3, 3]
    assert payload(found[2]) == payload(bytes(numbered(2, 2)[1]))


async def test_scrubbing_finds_changed_bytes() -> None:
    bench = ShardBench(options=ALL_OBJECTS)
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    for number in range(4):
        await kept(log, numbered(number))
    await shard.close()
    key = bench.state.shards[0].wal[2][0].object_key
    assert key is not None
    bench.content[key] = bench.content[key][:-3] + b"bad"
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    total = 0
    while checked := await log.scrub(100):
        total += checked
    assert total == log.size_bytes
    (damage,) = shard.logs.damages.known()
    assert (damage.first, damage.end) == (1, 2)
    assert key in damage.path
    await shard.close()


async def test_an_object_that_is_missing_fails_reads_and_closes_nothing() -> None:
    bench = ShardBench(options=ALL_OBJECTS)
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    for number in range(3):
        await kept(log, numbered(number))
    await shard.close()
    key = bench.state.shards[0].wal[2][0].object_key
    assert key is not None
    del bench.content[key]
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    assert (await log.read(0, 1)).next_offset == 1
    with pytest.raises(Exception, match="has no object"):
        await log.read(1, 1)
    assert (await log.read(2, 1)).next_offset == 3
    assert [damage.first for damage in await asyncio.to_thread(log.find_unreadable, 0)] == [1]
    await kept(log, numbered(9))
    await shard.close()
