"""Group commit: what waits together is one commit; nothing is guessed, nothing is half."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock, SystemClock
from sparrow.base.errors import Overloaded, SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.cluster import journal as journals
from sparrow.cluster.committer import CommitOptions
from sparrow.cluster.errors import NotOwner
from sparrow.cluster.ledger_model import LedgerFaults
from sparrow.cluster.objects_model import ObjectFaults
from sparrow.cluster.shard import OwnedShard
from sparrow.meta.store import Put
from sparrow.storage.store import Appended, LogConfig, LogId, PartitionLog
from tests.broker.batches import batch as value_batch
from tests.cluster.shards import ALL_OBJECTS, ShardBench
from tests.conformance.log_store import ORDERS
from tests.repetitions import repetitions
from tests.storage.batches import batch, kept, numbered, payload, read_batches

OTHER = LogId("orders", ORDERS.topic_id, 1)
BIG = bytes(200_000)


async def publish(log: PartitionLog, value: bytes) -> Appended:
    return await log.append([batch(value)])


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_everything_that_waits_is_one_commit() -> None:
    bench = ShardBench()
    shard = bench.open()
    orders, other = shard.logs.open(ORDERS, LogConfig()), shard.logs.open(OTHER, LogConfig())
    journal = shard.logs.open_journal(None)
    await journal.begin()
    results = await asyncio.gather(
        orders.append([numbered(0, 2)]),
        journal.append(b"a lease"),
        shard.meta.write([Put("offset", "group", b"7")]),
        other.append([numbered(1)]),
        orders.append([numbered(2)]),
        journal.append(b"an acknowledgement"),
    )
    assert [results[0].last_offset, results[3].last_offset, results[4].last_offset] == [1, 0, 2]
    assert bench.ledger.commits == 1
    await shard.close()


async def test_a_record_of_the_journal_that_fails_takes_those_along_that_wait_for_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "SPACE_BYTES", 100)
    bench = ShardBench()
    shard = bench.open()
    journal = shard.logs.open_journal(None)
    await journal.begin()
    first, second = journal.append(bytes(80)), journal.append(bytes(80))
    shard.committer._fail(Overloaded("the ledger does not answer"))
    for each in (first, second):
        with pytest.raises(Overloaded):
            await each
    journal.release(journal.mark())
    await journal.append(b"later")
    await shard.close()


async def test_a_lease_comes_along_with_the_commit_after_its_records() -> None:
    bench = ShardBench()
    shard = bench.open()
    log, journal = shard.logs.open(ORDERS, LogConfig()), shard.logs.open_journal(None)
    await journal.begin()
    bench.state.is_down = True
    first = log.append([numbered(0)])

    async def lease() -> None:
        await first
        for _ in range(3):
            await asyncio.sleep(0)
        await journal.append(b"a lease of the first")

    leased = asyncio.create_task(lease())
    for _ in range(20):
        await asyncio.sleep(0)
    second = log.append([numbered(1)])
    bench.state.is_down = False
    await asyncio.gather(leased, second)
    assert bench.ledger.commits == 2
    await shard.close()


async def test_a_broker_that_stops_commits_its_checkpoints_together() -> None:
    bench = ShardBench()
    shard = bench.open()
    broker = Broker(config=BrokerConfig(), log_store=shard.logs, meta_store=shard.meta)
    await broker.start()
    await broker.topics.create("orders", 40)
    await asyncio.gather(*(broker.records.publish("orders", each, value_batch(b"m")) for each in range(40)))
    before = bench.ledger.commits
    await broker.close()
    assert bench.ledger.commits - before < 20


async def test_much_that_comes_at_once_is_several_objects() -> None:
    bench = ShardBench(options=CommitOptions(seal_bytes=500_000))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await asyncio.gather(*(log.append([batch(BIG)]) for _ in range(10)))
    assert sorted(len(data) // len(BIG) for data in bench.content.values()) == [1, 3, 3, 3]
    await shard.close()


async def turns(count: int = 200) -> None:
    """Let everything go on that waits for nothing."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_at_most_four_uploads_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ShardBench(options=CommitOptions(inline_bytes=0, linger_s=0.0, seal_bytes=1000))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    put, under_way, may_end = bench.objects.put, 0, asyncio.Event()
    most = []

    async def held(key: str, parts: Sequence[bytes | memoryview]) -> None:
        nonlocal under_way
        under_way += 1
        most.append(under_way)
        await may_end.wait()
        await put(key, parts)
        under_way -= 1

    monkeypatch.setattr(bench.objects, "put", held)
    appends = []
    for _ in range(10):
        appends.append(log.append([batch(bytes(2000))]))
        await turns()
    assert under_way == 4
    may_end.set()
    assert [each.base_offset for each in await asyncio.gather(*appends)] == list(range(10))
    assert max(most) == 4
    assert len(bench.content) == 5, "all that came meanwhile is one object"
    await shard.close()


async def test_the_linger_grows_with_the_rate_of_uploads() -> None:
    clock = ManualClock(SystemClock().wall_ms())
    bench = ShardBench(options=CommitOptions(linger_s=0.005, seal_bytes=100 << 20))
    shard = bench.open(clock)
    log, committer = shard.logs.open(ORDERS, LogConfig()), shard.committer

    async def upload(size_bytes: int) -> None:
        clock.advance(1)
        await log.append([batch(bytes(size_bytes))])

    async def lingers(expected_s: float) -> None:
        """Check the time for which publishers that go on share an object."""
        appends, began_at, due_in = [], clock.monotonic(), 1.0
        while due_in > expected_s / 10:
            appends.append(log.append([batch(BIG)]))
            await turns(20)
            due_in = committer._due_in() or 0.0
            clock.advance(min(due_in, expected_s / 10))
        assert clock.monotonic() - began_at == pytest.approx(expected_s, rel=0.1)  # the rate decays
        await asyncio.gather(*appends)

    await upload(100_000)
    await lingers(0.005)
    clock.advance(30)
    await upload(12_500_000)
    await lingers(0.05)
    clock.advance(30)
    await upload(90_000_000)
    await lingers(0.125)
    clock.advance(30)
    await upload(100_000)
    await lingers(0.005)
    await shard.close()


async def test_a_long_linger_ends_when_nothing_comes_any_more() -> None:
    clock = ManualClock(SystemClock().wall_ms())
    bench = ShardBench(options=CommitOptions(linger_s=0.005, seal_bytes=100 << 20))
    shard = bench.open(clock)
    log = shard.logs.open(ORDERS, LogConfig())
    await log.append([batch(bytes(12_500_000))])
    appended = log.append([batch(BIG)])
    await turns(20)
    assert shard.committer._due_in() == pytest.approx(0.05 / 4, rel=0.01)
    clock.advance(0.02)
    assert (await appended).base_offset == 1
    await shard.close()


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_publish_waits_for_the_commit_whatever_its_acks(acks: int) -> None:
    bench = ShardBench()
    shard = bench.open()
    broker = Broker(config=BrokerConfig(), log_store=shard.logs, meta_store=shard.meta)
    await broker.start()
    await broker.topics.create("orders", 1)
    bench.state.is_down = True
    publishing = asyncio.ensure_future(broker.records.publish("orders", 0, value_batch(b"m"), acks=acks))
    await turns()
    assert not publishing.done()
    assert broker.topics.partition("orders", 0).visible_end == 0
    bench.state.is_down = False
    assert (await publishing).base_offset == 0
    row, _ = bench.state.shards[0].wal[max(bench.state.shards[0].wal)]
    assert row.payload_bytes > 0, "it is in the ledger when the publisher learns of it"
    await broker.close()


async def test_small_payloads_are_rows_and_large_ones_objects() -> None:
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await kept(log, numbered(0))
    assert bench.content == {}
    await kept(log, batch(BIG))
    ((key, data),) = bench.content.items()
    assert len(data) > len(BIG)
    rows = bench.state.shards[0].wal
    assert [(row.object_key, row.payload_bytes > 0) for row, _ in rows.values()] == [
        (None, True),
        (key, False),
    ]
    await shard.close()


async def test_when_the_budget_of_rows_is_spent_small_payloads_are_objects() -> None:
    bench = ShardBench(options=CommitOptions(inline_bytes_per_s=100))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    for number in range(8):
        await kept(log, numbered(number, 3))
    assert 0 < len(bench.content) < 8
    await shard.close()


async def test_commits_wait_for_a_ledger_that_is_away_and_happen_once() -> None:
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await kept(log, numbered(0))
    bench.state.is_down = True
    appends = [log.append([numbered(number)]) for number in range(1, 20)]
    for _ in range(200):
        await asyncio.sleep(0)
    assert log.end_offset == 1
    assert not any(each.done() for each in appends)
    bench.state.is_down = False
    await asyncio.gather(*appends)
    assert [payload(each) for each in await read_batches(log)] == [
        payload(bytes(numbered(number)[1])) for number in range(20)
    ]
    await shard.close()


async def test_an_owner_that_was_fenced_commits_nothing_and_says_so() -> None:
    bench = ShardBench()
    old = bench.open()
    log = old.logs.open(ORDERS, LogConfig())
    await kept(log, numbered(0))
    new = bench.open()
    late = [log.append([numbered(1)]), log.append([numbered(2)])]
    for each in late:
        with pytest.raises(NotOwner):
            await each
    with pytest.raises(NotOwner):
        log.append([numbered(3)])
    with pytest.raises(NotOwner):
        await old.meta.write([Put("k", "a", b"")])
    assert len(bench.lost) == 1
    again = new.logs.open(ORDERS, LogConfig())
    assert again.end_offset == 1
    await kept(again, numbered(9))
    assert [payload(each) for each in await read_batches(again)] == [
        payload(bytes(numbered(number)[1])) for number in (0, 9)
    ]
    await old.abandon(NotOwner("the test ends"))
    await new.close()


async def test_reads_wait_while_another_node_may_own_the_shard() -> None:
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await kept(log, numbered(0))
    bench.is_trusted = False
    assert log.read_nowait(0, 100) is None
    assert log.read_nowait(1, 100) is None
    reads = [asyncio.create_task(log.read(offset, 100)) for offset in (0, 1)]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in reads)
    bench.is_trusted = True
    assert [chunk.next_offset for chunk in await asyncio.gather(*reads)] == [1, 1]
    bench.is_trusted = False
    lost = asyncio.create_task(log.read(0, 100))
    await shard.abandon(NotOwner("another node has it"))
    with pytest.raises(NotOwner):
        await lost


async def test_a_refused_commit_takes_all_behind_it_along_and_the_log_goes_on() -> None:
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await kept(log, numbered(0))
    bench.ledger.with_faults(disk_full=1.0)
    results = await asyncio.gather(
        log.append([numbered(1)]), shard.meta.write([Put("k", "a", b"1")]), return_exceptions=True
    )
    assert [getattr(each, "code", None) for each in results] == ["DISK_FULL", "DISK_FULL"]
    bench.ledger.with_faults(disk_full=0.0)
    assert await shard.meta.get("k", "a") is None
    assert (await kept(log, numbered(2))).base_offset == 1
    await shard.meta.write([Put("k", "a", b"2", 0)])
    await shard.close()


async def test_uploads_that_fail_are_repeated_in_order() -> None:
    bench = ShardBench(object_faults=ObjectFaults(3, failed=0.3, stored_but_error=0.3), options=ALL_OBJECTS)
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await asyncio.gather(*(log.append([numbered(number)]) for number in range(30)))
    for number in range(30, 40):
        await kept(log, numbered(number))
    assert [payload(each) for each in await read_batches(log)] == [
        payload(bytes(numbered(number)[1])) for number in range(40)
    ]
    named = {row.object_key for row, _ in bench.state.shards[0].wal.values()}
    assert named <= bench.content.keys()
    await shard.close()


@pytest.mark.slow
async def test_without_an_object_store_small_publishes_go_on_and_large_ones_are_refused() -> None:
    bench = ShardBench(options=CommitOptions(inline_after_s=0.1, inline_bytes_per_s=100_000))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    bench.objects.is_down = True
    await kept(log, batch(BIG))  # it was accepted before that was known, so it is kept
    assert isinstance(shard.logs.refusal(), SparrowError)
    await kept(log, numbered(1))
    appends = [publish(log, BIG) for _ in range(20)]
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert {type(each) for each in results} == {Appended, Overloaded}
    assert bench.content == {}
    bench.objects.is_down = False
    await eventually(lambda: shard.logs.refusal() is None)
    await kept(log, batch(BIG))
    assert len([key for key in bench.content if key.startswith("w/")]) == 1
    await shard.close()


async def test_too_much_that_waits_is_refused() -> None:
    bench = ShardBench(options=CommitOptions(max_waiting_bytes=1000))
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    bench.state.is_down = True
    appends = [log.append([batch(bytes(700))])]
    with pytest.raises(Overloaded, match="wait to be committed"):
        log.append([batch(bytes(700))])
    bench.state.is_down = False
    await asyncio.gather(*appends)
    assert (await kept(log, batch(bytes(700)))).base_offset == 1
    await shard.close()


async def test_dropped_payloads_become_garbage_and_rows_go() -> None:
    bench = ShardBench(options=ALL_OBJECTS)
    shard = bench.open()
    config = LogConfig(retention_ms=-1, retention_bytes=300)
    log, other = shard.logs.open(ORDERS, config), shard.logs.open(OTHER, LogConfig(retention_ms=-1))
    await asyncio.gather(log.append([numbered(0)]), other.append([numbered(0)]))  # one payload
    for number in range(1, 9):
        await kept(log, numbered(number))
    assert await log.enforce_retention(0) > 0
    await kept(other, numbered(1))  # the next commit removes the rows
    rows = bench.state.shards[0].wal
    assert 1 in rows, "the other log has a part of it"
    assert 2 not in rows
    assert bench.state.garbage.keys().isdisjoint({row.object_key for row, _ in rows.values()})
    assert bench.state.garbage.keys() | {row.object_key for row, _ in rows.values()} == bench.content.keys()
    await shard.logs.delete(other)
    await kept(log, numbered(9))
    assert 1 not in rows
    left = [payload(each) for each in await read_batches(log)]
    await shard.close()
    again = bench.open()
    assert again.logs.ids() == [ORDERS]
    assert [payload(each) for each in await read_batches(again.logs.open(ORDERS, config))] == left
    await again.close()


async def test_the_number_of_a_deleted_log_is_not_used_again() -> None:
    bench = ShardBench()
    shard = bench.open()
    first, second = shard.logs.open(ORDERS, LogConfig()), shard.logs.open(OTHER, LogConfig())
    await asyncio.gather(first.append([numbered(0)]), second.append([numbered(1)]))
    await shard.logs.delete(second)
    await shard.close()
    shard = bench.open()
    again = shard.logs.open(OTHER, LogConfig())
    assert again.end_offset == 0
    await kept(again, numbered(2))
    await shard.close()
    shard = bench.open()
    assert [payload(each) for each in await read_batches(shard.logs.open(OTHER, LogConfig()))] == [
        payload(bytes(numbered(2)[1]))
    ]
    await shard.close()


async def test_the_state_of_producers_is_found_without_reading_a_payload() -> None:
    from sparrow.records.builder import build_batch
    from sparrow.records.control import ControlType, build_marker
    from tests.storage.batches import wrap

    bench = ShardBench(options=ALL_OBJECTS)
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    fields = {"producer_id": 7, "producer_epoch": 0}
    await kept(log, numbered(0, 3))
    await kept(log, wrap(build_batch([b"a", b"b"], base_sequence=0, transactional=True, **fields)))
    await kept(log, wrap(build_marker(ControlType.ABORT, 7, 0, 1)))
    await shard.close()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    found = list(log.producer_batches(0))
    assert shard.cache.fetched == 0
    everything = list(await asyncio.to_thread(lambda: list(log.headers_and_markers(0))))
    assert found == everything[1:]
    assert shard.cache.fetched > 0
    await shard.close()


@settings(max_examples=repetitions(30))
@given(
    seed=st.integers(0, 1 << 30),
    kills=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    inline=st.sampled_from([0, 1 << 16]),
)
def test_whatever_the_engines_do_acknowledged_batches_are_there_once(
    seed: int, kills: list[int], inline: int
) -> None:
    async def run() -> None:
        faults = LedgerFaults(seed, lost_requests=0.15, lost_responses=0.15, disk_full=0.1)
        bench = ShardBench(
            faults,
            ObjectFaults(seed, failed=0.2, stored_but_error=0.2),
            CommitOptions(inline_bytes=inline, linger_s=0.0),
        )
        acknowledged: dict[int, int] = {}
        number = 0
        for rounds in kills:
            shard = bench.open()
            log = shard.logs.open(ORDERS, LogConfig())
            await calm(bench, check(log, acknowledged))
            for _ in range(rounds):
                appends = []
                for _ in range(3):
                    appends.append((number, log.append([numbered(number)])))
                    number += 1
                for which, each in appends[: 1 + seed % 3]:
                    try:
                        acknowledged[which] = (await each).base_offset
                    except SparrowError:
                        continue
                await asyncio.gather(*(each for _, each in appends[1 + seed % 3 :]), return_exceptions=True)
            appends = [(number, log.append([numbered(number)]))]
            number += 1
            await asyncio.sleep(0)
            await shard.abandon(NotOwner("it was killed"))
            await asyncio.gather(*(each for _, each in appends), return_exceptions=True)
            acknowledged |= {
                which: each.result().base_offset for which, each in appends if not each.exception()
            }
        shard = bench.open()
        log = shard.logs.open(ORDERS, LogConfig())
        await calm(bench, check(log, acknowledged))
        await shard.abandon(NotOwner("the test ends"))

    asyncio.run(run())


async def calm(bench: ShardBench, work: Awaitable[None]) -> None:
    """Run a check while the engines have no faults."""
    before = bench.ledger.faults, bench.objects.faults
    bench.ledger.faults, bench.objects.faults = LedgerFaults(), ObjectFaults()
    await work
    bench.ledger.faults, bench.objects.faults = before


async def check(log: object, acknowledged: dict[int, int]) -> None:
    from sparrow.records.record import decode

    found = [record for each in await read_batches(log) for record in decode(each)]  # type: ignore[arg-type]
    numbers = [int(record.value.split(b".")[0]) for record in found]
    assert len(set(numbers)) == len(numbers), "nothing is there twice"
    assert numbers == sorted(numbers), "everything is in order"
    places = {number: record.offset for number, record in zip(numbers, found, strict=True)}
    assert {number: places.get(number) for number in acknowledged} == acknowledged


async def test_a_shard_that_is_closed_takes_nothing_more() -> None:
    shard: OwnedShard = ShardBench().open()
    log = shard.logs.open(ORDERS, LogConfig())
    await shard.logs.close()
    await shard.meta.close()
    with pytest.raises(SparrowError):
        log.append([numbered(0)])
