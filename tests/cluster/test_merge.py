"""Merged payloads have the same batches; objects that nothing names are deleted, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.cluster.clock import LedgerClock
from sparrow.cluster.collect import DEAD_MS, collect_dead, collect_orphans
from sparrow.cluster.committer import CommitOptions, object_key
from sparrow.cluster.ledger import Commit
from sparrow.cluster.ledger_model import LedgerState, MemoryLedger
from sparrow.cluster.merge import MergeOptions, merge
from sparrow.cluster.objects_model import MemoryObjects
from sparrow.cluster.upkeep import ShardUpkeep
from sparrow.cluster.verify import verify
from sparrow.storage.store import LogConfig, LogId
from tests.cluster.shards import ShardBench
from tests.conformance.ledger import joined, taken
from tests.conformance.log_store import ORDERS
from tests.repetitions import repetitions
from tests.storage.batches import kept, numbered, read_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.cluster.shard import OwnedShard
    from sparrow.storage.store import PartitionLog

OTHER = LogId("orders", ORDERS.topic_id, 1)
AT_ONCE = MergeOptions(max_rows=0)
HOUR_MS = 3_600_000
STEPS = ["a", "b", "both", "large", "merge", "retention"]


@settings(max_examples=repetitions(25))
@given(
    seed=st.lists(
        st.sampled_from(["a", "b", "both", "large", "merge", "retention"]), min_size=3, max_size=25
    ),
    inline=st.sampled_from([0, 200, 1 << 16]),
    small=st.sampled_from([200, 1 << 20]),
)
@example(["a", "large", "a", "merge", "a"], 200, 200)
def test_merging_changes_no_batch(seed: list[str], inline: int, small: int) -> None:
    async def run() -> None:
        options = MergeOptions(small_object_bytes=small, min_bytes=0, max_rows=0)
        bench = ShardBench(options=CommitOptions(inline_bytes=inline, linger_s=0.0))
        shard = bench.open()
        config = LogConfig(retention_ms=-1, retention_bytes=1500)
        logs = {"a": shard.logs.open(ORDERS, config), "b": shard.logs.open(OTHER, config)}
        for number, what in enumerate(seed):
            if what == "merge":
                before = {name: (await read_batches(log), log.size_bytes) for name, log in logs.items()}
                await merge(shard.logs.contents(), shard.committer, 0, options)
                assert {n: (await read_batches(log), log.size_bytes) for n, log in logs.items()} == before
            elif what == "retention":
                for log in logs.values():
                    await log.enforce_retention(0)
            elif what == "large":
                await kept(logs["a"], numbered(number, 3, 100))
            else:
                chosen = [log for name, log in logs.items() if what in (name, "both")]
                await asyncio.gather(*(log.append([numbered(number, 3)]) for log in chosen))
        expected = {name: (await read_batches(log), log.start_offset) for name, log in logs.items()}
        await shard.close()
        shard = bench.open()
        for name, log_id in (("a", ORDERS), ("b", OTHER)):
            log = shard.logs.open(log_id, config)
            assert (await read_batches(log), log.start_offset) == expected[name]
            await kept(log, numbered(99))
        rows = bench.state.shards[0].wal.values()
        named = {row.object_key for row, _ in rows if row.object_key is not None}
        assert named <= bench.content.keys(), "what a row names is there"
        await shard.close()

    asyncio.run(run())


async def test_many_small_commits_become_one_object_and_their_rows_go() -> None:
    bench = ShardBench()
    shard = bench.open()
    log, other = shard.logs.open(ORDERS, LogConfig()), shard.logs.open(OTHER, LogConfig())
    for number in range(50):
        await kept(log, numbered(number))
        await kept(other, numbered(number))
    before = await read_batches(log)
    assert await merge(shard.logs.contents(), shard.committer, 0) == 0
    assert await merge(shard.logs.contents(), shard.committer, 0, AT_ONCE) == 100
    assert await merge(shard.logs.contents(), shard.committer, 0, AT_ONCE) == 0, (
        "an idle cluster merges nothing"
    )
    assert len(bench.content) == 1
    await kept(log, numbered(50))
    assert len(bench.state.shards[0].wal) == 2
    assert (await read_batches(log))[:-1] == before
    await shard.close()


async def test_large_payloads_between_small_ones_stay() -> None:
    bench = ShardBench(options=CommitOptions(linger_s=0.0))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    large = [numbered(number, 2, 100_000) for number in range(6)]
    for _ in range(3):
        await kept(log, numbered(0))
        await kept(log, numbered(1))
        await kept(log, *large)
    before = await read_batches(log)
    contents = list(shard.logs.contents())
    assert await merge(contents, shard.committer, 0, AT_ONCE) == 6
    assert await read_batches(log) == before
    sizes = [piece.payload.size_bytes >= MergeOptions().small_object_bytes for piece in contents[0].pieces]
    assert sizes.count(False) == 3
    await kept(log, numbered(2))  # it removes the rows that the merge let go
    await shard.close()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    assert (await read_batches(log))[:-1] == before
    await shard.close()


async def test_a_damaged_piece_is_left_alone_and_its_neighbours_are_merged() -> None:
    bench = ShardBench(options=CommitOptions(inline_bytes=0, linger_s=0.0))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    for number in range(9):
        await kept(log, numbered(number))
    await shard.close()
    name = bench.state.shards[0].wal[5][0].object_key or ""
    bench.content[name] = bench.content[name][:-1] + bytes([bench.content[name][-1] ^ 1])
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    other = shard.logs.open(OTHER, LogConfig())
    for number in range(3):
        await kept(other, numbered(number))
    contents = list(shard.logs.contents())
    assert await merge(contents, shard.committer, 0, MergeOptions(min_bytes=0)) == 3, "the other log's"
    assert await merge(contents, shard.committer, 0, MergeOptions(min_bytes=0)) == 9, "and the neighbours"
    assert [(piece.base, piece.end, piece.is_damaged) for piece in contents[0].pieces] == [
        (0, 4, False), (4, 5, True), (5, 9, False),
    ]  # fmt: skip
    assert [damage.first for damage in shard.logs.damages.known()] == [4]
    assert (await log.read(5, 1 << 20)).next_offset == 9
    await shard.close()


async def small_payloads() -> tuple[OwnedShard, PartitionLog]:
    """Return a shard with twenty small payloads of one log."""
    shard = ShardBench(options=CommitOptions(linger_s=0.0)).open()
    log = shard.logs.open(ORDERS, LogConfig())
    for number in range(20):
        await kept(log, numbered(number))
    return shard, log


async def test_a_publish_does_not_wait_for_the_upload_of_a_merge() -> None:
    shard, log = await small_payloads()
    put, may_end, begun = shard.committer._objects.put, asyncio.Event(), asyncio.Event()

    async def slow_put(key: str, parts: Sequence[bytes | memoryview]) -> None:
        begun.set()
        await may_end.wait()
        await put(key, parts)

    shard.committer._objects.put = slow_put  # type: ignore[method-assign]
    merging = asyncio.create_task(merge(shard.logs.contents(), shard.committer, 0, AT_ONCE))
    await begun.wait()
    await kept(log, numbered(20))
    assert not merging.done()
    may_end.set()
    assert await merging == 20
    assert len(await read_batches(log)) == 21
    await shard.close()


async def test_a_merge_that_began_ends_before_the_log_closes() -> None:
    shard, _ = await small_payloads()
    content = next(iter(shard.logs.contents()))
    merging = asyncio.create_task(merge([content], shard.committer, 0, AT_ONCE))
    while not content.rewriting.locked():
        await asyncio.sleep(0)
    merging.cancel()
    await asyncio.gather(merging, return_exceptions=True)
    assert merging.cancelled()
    await shard.logs.close()
    assert [(piece.base, piece.end) for piece in content.pieces] == [(0, 20)]
    await shard.close()


async def test_dead_objects_are_deleted_after_a_while() -> None:
    clock = ManualClock()
    state, objects = LedgerState(clock), MemoryObjects()
    ledger = MemoryLedger(state)
    epoch = (await taken(ledger, await joined(ledger))).epoch
    for seq in (1, 2):
        await objects.put(f"w/{seq}", [b"data"])
        await ledger.commit(0, epoch, Commit(seq, 0, b"m", None, f"w/{seq}", clock.wall_ms()))
    await ledger.commit(0, epoch, Commit(3, 0, drops=[1]))
    assert await collect_dead(ledger, objects) == 0
    clock.advance(DEAD_MS / 1000)
    objects.is_down = True
    try:
        await collect_dead(ledger, objects)
    except Exception:  # the next round finds them again
        objects.is_down = False
    assert await collect_dead(ledger, objects) == 1
    assert list(objects.content) == ["w/2"]
    assert state.garbage == {}


async def test_verification_finds_missing_and_short_objects() -> None:
    bench = ShardBench(options=CommitOptions(inline_bytes=0, linger_s=0.0))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    for number in range(4):
        await kept(log, numbered(number))
    await shard.close()
    ledger, objects = MemoryLedger(bench.state), MemoryObjects(bench.content)
    await objects.put("w/2026010100/other", [b"data"])
    found = await verify(ledger, objects)
    assert (found.is_good, found.commits, found.objects, found.unnamed) == (True, 4, 5, 1)
    first, second = (bench.state.shards[0].wal[seq][0].object_key or "" for seq in (1, 2))
    del bench.content[first]
    bench.content[second] = bench.content[second][:-1]
    found = await verify(ledger, objects)
    assert (found.is_good, found.missing, found.short) == (False, [first], [second])


async def test_orphans_are_deleted_and_young_objects_are_not() -> None:
    clock = ManualClock()
    state, objects = LedgerState(clock), MemoryObjects()
    ledger = MemoryLedger(state)
    epoch = (await taken(ledger, await joined(ledger))).epoch
    named, orphan = (object_key("w", clock.wall_ms()) for _ in range(2))
    await ledger.commit(0, epoch, Commit(1, 0, b"m", None, named, clock.wall_ms()))
    clock.advance(4 * HOUR_MS / 1000)
    young = object_key("w", clock.wall_ms())
    for key in (named, orphan, young, "sparrow-cluster", "probe"):
        await objects.put(key, [b"data"])
    assert await collect_orphans(ledger, objects, hours=1) == 0
    assert await collect_orphans(ledger, objects, hours=3) == 1
    assert sorted(objects.content) == sorted([named, young, "sparrow-cluster", "probe"])
    assert await collect_orphans(ledger, objects) == 0


async def test_a_clock_that_jumped_ahead_makes_no_upload_an_orphan() -> None:
    bench = ShardBench()
    shard = bench.open()
    shard.clock = ManualClock(bench.state.clock.wall_ms() + 5 * HOUR_MS)
    under_way = object_key("w", bench.state.clock.wall_ms())
    await bench.objects.put(under_way, [b"its commit comes next"])
    upkeep = ShardUpkeep(shard, bench.ledger, bench.objects, LedgerClock(shard.clock))
    await upkeep._delete_orphans(None)
    assert under_way in bench.content
    assert upkeep.orphans == 0
    await shard.close()
