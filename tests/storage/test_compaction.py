"""Compaction against a dictionary of last values; transactions, tombstones, producers, crashes in
the middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import CorruptBatch, SparrowError
from sparrow.records.batch import parse_header
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import decode
from sparrow.storage.compaction import Candidate, Range, groups, maybe_range
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.log import LocalLog
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig
from tests.conformance.log_store import ORDERS
from tests.storage.batches import NOW_MS, append, keyed, read_batches, wrap
from tests.storage.test_local_log_store import ON_THE_LOOP

if TYPE_CHECKING:
    from pathlib import Path

    from sparrow.storage.store import PartitionLog

COMPACT = LogConfig(
    segment_bytes=800,
    index_interval_bytes=150,
    compact=True,
    delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
Seen = tuple[int, bytes | None, bytes | None]


class Site:
    """One log in a faulty file system."""

    def __init__(self, seed: int = 0, config: LogConfig = COMPACT, **options: int) -> None:
        self.options = dataclasses.replace(ON_THE_LOOP, **options)
        self.fs = FaultyFileSystem(seed)
        self.clock = ManualClock(NOW_MS)
        self.config = config
        self.open()

    def open(self) -> PartitionLog:
        self.store = LocalLogStore("/data", self.fs, self.clock, self.options)
        self.log = self.store.open(ORDERS, self.config)
        assert isinstance(self.log, LocalLog)
        return self.log

    def put(self, *pairs: tuple[bytes | None, bytes | None], **fields: int | bool) -> None:
        append(self.log, keyed(pairs, self.clock.wall_ms(), **fields))

    def roll(self) -> None:
        """Close the active segment, so that compaction may process it."""
        self.log.configure(LogConfig(segment_bytes=1))
        self.put((b"roll", b"roll"))
        self.log.configure(self.config)

    async def compact(self) -> int:
        return await self.log.compact(self.clock.wall_ms())

    async def records(self) -> list[Seen]:
        """Return (offset, key, value) of every record, rolls left out."""
        found = [record for data in await read_batches(self.log) for record in decode(data)]
        return [(each.offset, each.key, each.value) for each in found if each.key != b"roll"]


async def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    site = Site()
    site.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    site.put((b"c", b"1"), (b"b", b"2"))
    site.roll()
    assert await site.compact() > 0
    assert await site.records() == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert site.log.end_offset == 6


async def test_the_active_segment_is_left_alone() -> None:
    site = Site()
    site.put((b"a", b"1"))
    site.put((b"a", b"2"))
    assert await site.compact() == 0
    assert len(await site.records()) == 2


async def test_records_without_a_key_go() -> None:
    site = Site()
    site.put((None, b"lost"), (b"a", b"1"))
    site.roll()
    await site.compact()
    assert await site.records() == [(1, b"a", b"1")]


async def test_tombstones_stay_until_their_horizon_and_then_go() -> None:
    site = Site()
    site.put((b"a", b"1"), (b"b", b"1"))
    site.put((b"a", None))
    site.roll()
    await site.compact()
    assert await site.records() == [(1, b"b", b"1"), (2, b"a", None)]
    site.clock.advance(0.999)
    site.roll()
    await site.compact()
    assert (2, b"a", None) in await site.records()
    site.clock.advance(0.001)
    site.roll()
    await site.compact()
    assert await site.records() == [(1, b"b", b"1")]


async def test_an_aborted_record_removes_nothing() -> None:
    site = Site()
    site.put((b"a", b"kept"), (b"b", b"old"))
    site.put((b"a", b"aborted"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(site.log, wrap(build_marker(ControlType.ABORT, 7, 0, NOW_MS)))
    site.put((b"b", b"new"), producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    append(site.log, wrap(build_marker(ControlType.COMMIT, 7, 0, NOW_MS)))
    site.roll()
    await site.compact()
    values = [value for _, _, value in await site.records()]
    assert b"kept" in values
    assert b"old" not in values
    controls = [header for data in await read_batches(site.log) if (header := parse_header(data)).is_control]
    assert len(controls) == 2


async def test_compaction_stops_at_an_open_transaction_and_continues_after_it() -> None:
    site = Site()
    site.put((b"a", b"1"))
    site.put((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    site.put((b"b", b"1"))
    site.put((b"b", b"2"))
    site.roll()
    await site.compact()
    assert (0, b"a", b"1") in await site.records()
    append(site.log, wrap(build_marker(ControlType.COMMIT, 7, 0, NOW_MS)))
    site.roll()
    await site.compact()
    assert await site.records() == [(1, b"a", b"2"), (3, b"b", b"2")]


async def test_the_last_batch_of_a_producer_stays_as_an_empty_one() -> None:
    site = Site()
    for sequence in range(3):
        site.put((b"a", b"%d" % sequence), producer_id=9, producer_epoch=1, base_sequence=sequence)
    site.put((b"a", b"last"))
    site.roll()
    await site.compact()
    mine = [header for header in site.log.headers(0) if header.producer_id == 9]
    assert [(header.record_count, header.last_sequence, header.last_offset) for header in mine] == [(0, 2, 2)]
    site.clock.advance(86_401)
    site.put((b"b", b"x"))
    site.roll()
    await site.compact()
    assert [header for header in site.log.headers(0) if header.producer_id == 9] == []


async def test_young_segments_wait_for_the_lag() -> None:
    site = Site(
        config=LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0, min_compaction_lag_ms=500)
    )
    site.put((b"a", b"1"), (b"a", b"2"))
    site.roll()
    assert await site.compact() == 0
    site.clock.advance(0.5)
    assert await site.compact() > 0


async def test_a_log_that_is_mostly_clean_waits_for_its_dirty_ratio() -> None:
    site = Site(
        config=LogConfig(segment_bytes=10_000, compact=True, delete=False, min_cleanable_dirty_ratio=0.5)
    )
    for number in range(50):
        site.put((b"%d" % number, bytes(100)))
    site.roll()
    await site.compact()
    site.put((b"1", b"new"))
    site.roll()
    before = site.log.size_bytes
    assert await site.compact() == 0
    assert site.log.size_bytes == before


async def test_a_deleted_key_stays_deleted_when_the_memory_for_keys_ends_with_a_segment() -> None:
    """The part behind the surveyed one must stay dirty, or a tombstone is removed before the value
    that it deletes.
    """
    site = Site(config=dataclasses.replace(COMPACT, segment_bytes=1), compaction_map_bytes=100)
    for key, value in ((b"x", b"old"), (b"y", b"1"), (b"z", b"1"), (b"x", None)):
        site.put((key, value))
    site.roll()
    for _ in range(12):
        await site.compact()
    assert b"old" not in [value for _, _, value in await site.records()]
    site.clock.advance(5)
    site.roll()
    for _ in range(12):
        await site.compact()
    assert b"x" not in [key for _, key, _ in await site.records()]


async def test_small_segments_become_one() -> None:
    site = Site()
    for number in range(30):
        site.put((b"%d" % (number % 3), bytes(300)))
    site.roll()
    await site.compact()
    files = len([path for path in site.fs.paths() if path.endswith(".log")])
    site.roll()
    await site.compact()
    assert files > 10
    assert len([path for path in site.fs.paths() if path.endswith(".log")]) <= 4
    assert [key for _, key, _ in await site.records()] == [b"0", b"1", b"2"]


async def test_a_reader_of_an_old_segment_continues_through_the_swap() -> None:
    site = Site()
    for number in range(20):
        site.put((b"a", b"%d" % number))
    site.roll()
    reader = site.log.headers(0)
    first = next(reader)
    await site.compact()
    rest = list(reader)
    assert first.base_offset == 0
    assert [header.base_offset for header in rest][-1] == site.log.end_offset - 1


@pytest.mark.slow
async def test_publishing_and_reading_continue_while_threads_compact(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path), options=StorageOptions(max_open_files=4, index_cache_bytes=2000))
    log = store.open(
        ORDERS, LogConfig(segment_bytes=4000, compact=True, delete=False, min_cleanable_dirty_ratio=0)
    )
    last: dict[bytes | None, bytes | None] = {}
    is_done = False

    async def publish() -> None:
        nonlocal is_done
        for number in range(400):
            key, value = b"k%d" % (number % 37), b"%d" % number * 5
            last[key] = value
            append(log, keyed([(key, value)]))
            if number % 10 == 0:
                await log.durable(log.end_offset)
        is_done = True

    async def read() -> None:
        while not is_done:
            batches = await read_batches(log)
            offsets = [parse_header(data).base_offset for data in batches]
            assert offsets == sorted(set(offsets))
            await asyncio.sleep(0)

    async def compact() -> None:
        freed = 0
        while not is_done or not freed:
            freed += await log.compact(NOW_MS)
            await asyncio.sleep(0)

    await asyncio.gather(publish(), read(), compact())
    await log.compact(NOW_MS)
    assert {record.key: record.value for data in await read_batches(log) for record in decode(data)} == last
    await store.close()
    again = LocalLogStore(str(tmp_path))
    log = again.open(ORDERS, COMPACT)
    assert {record.key: record.value for data in await read_batches(log) for record in decode(data)} == last
    assert again.repairs == []
    await again.close()


async def test_offsets_in_holes_are_read_with_the_next_batch() -> None:
    site = Site()
    for number in range(20):
        site.put((b"a" if number else b"first", b"%d" % number))
    site.roll()
    await site.compact()
    chunk = await site.log.read(5, 10_000)
    assert chunk.base_offset == 19
    assert await site.log.offset_for_timestamp(NOW_MS) == (0, NOW_MS)


async def test_a_damaged_batch_stops_compaction_and_is_not_blessed_with_a_new_crc() -> None:
    site = Site()
    for number in range(20):
        site.put((b"a", b"%d" % number * 30))
    site.roll()
    await site.log.durable(site.log.end_offset)
    path = min(path for path in site.fs.paths() if path.endswith(".log"))
    site.fs.corrupt(path, 150, b"rot")
    with pytest.raises(CorruptBatch, match="doctor"):
        await site.compact()
    assert not [path for path in site.fs.paths() if path.endswith((".cleaned", ".swap"))]


async def test_a_closed_log_stops_its_compaction_and_leaves_nothing_behind() -> None:
    site = Site()
    for number in range(20):
        site.put((b"a", b"%d" % number))
    site.roll()
    asked: list[bool] = []

    def stops_in_the_middle() -> bool:
        asked.append(True)
        return len(asked) > 21 + 3

    assert isinstance(site.log, LocalLog)
    site.log._maintenance._is_stopped = stops_in_the_middle
    assert await site.compact() == 0
    assert len(await site.records()) == 20
    assert len(asked) == 25  # 20 batches surveyed, then the fifth that would be written
    assert not [path for path in site.fs.paths() if path.endswith((".cleaned", ".swap"))]
    await site.store.close()
    assert await site.compact() == 0


@pytest.mark.slow
@pytest.mark.parametrize("group", range(5))
async def test_compaction_keeps_the_last_values_through_faults(group: int) -> None:
    """Compare a dictionary with the log, with crashes, kills and full disks at any step of the
    swap.
    """
    for seed in range(group * 12, group * 12 + 12):
        await _one_life(seed)


async def _one_life(seed: int) -> None:
    rng = random.Random(seed)
    site = Site(seed)
    history: list[Seen] = []
    for _ in range(4):
        for _ in range(rng.randint(1, 25)):
            pairs = [
                (b"k%d" % rng.randrange(12), rng.choice([None, rng.randbytes(60)]))
                for _ in range(rng.randint(1, 3))
            ]
            base = site.log.end_offset
            history += [(base + number, key, value) for number, (key, value) in enumerate(pairs)]
            site.put(*pairs)
        if rng.random() < 0.7:
            site.roll()
        await site.log.durable(site.log.end_offset)
        await _compact_with_faults(site, rng)
        await _compare(site, history)


async def _compact_with_faults(site: Site, rng: random.Random) -> None:
    fault = rng.choice(["none", "crash", "kill", "full", "error"])
    if fault == "full":
        site.fs.capacity_bytes = site.fs.used_bytes + rng.randint(0, 2000)
    else:
        site.fs.write_errors = site.fs.sync_errors = {"none": 0.0}.get(fault, 0.07)
    with contextlib.suppress(SparrowError):
        await site.compact()
    site.fs.write_errors = site.fs.sync_errors = 0.0
    site.fs.capacity_bytes = 1 << 40
    if fault == "crash":
        site.fs.crash()
    elif fault == "kill" or site.log._durability.failure is not None:
        site.fs.kill()
    else:
        return
    end = site.log.end_offset
    site.open()
    assert site.log.end_offset == end


async def _compare(site: Site, history: list[Seen]) -> None:
    last = {key: (offset, value) for offset, key, value in history}
    found = await site.records()
    assert set(found) <= set(history)
    by_key: dict[bytes | None, Seen] = {each[1]: each for each in found}
    for key, (offset, value) in last.items():
        if value is not None:
            assert by_key[key] == (offset, key, value)
        else:
            assert key not in by_key or by_key[key][2] is None
    ends = [header.last_offset for header in site.log.headers(site.log.start_offset)]
    for end in ends:
        chunk = await site.log.read(end, 1)
        assert parse_header(bytes(chunk.data)).last_offset == end


def test_groups_are_bounded_by_size_and_count() -> None:
    segments = [Candidate(number * 10, number * 10 + 10, 100, NOW_MS, NOW_MS) for number in range(70)]
    assert groups(segments, 1 << 30) == [(0, 32), (32, 64), (64, 70)]
    assert groups(segments[:5], 250) == [(0, 2), (2, 4), (4, 5)]
    assert groups([], 100) == []


def test_an_overdue_log_is_compacted_whatever_its_ratio() -> None:
    segments = [Candidate(0, 10, 1000, NOW_MS, NOW_MS), Candidate(10, 20, 10, NOW_MS, NOW_MS)]
    config = LogConfig(compact=True, max_compaction_lag_ms=100)
    assert maybe_range(segments, 10, config, NOW_MS + 100) is None
    assert maybe_range(segments, 10, config, NOW_MS + 101) == Range(10, 20)


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", ["kill", "power"])
async def test_compaction_may_end_at_any_step(ends_by: str) -> None:
    step, finished = 0, False
    while not finished:
        site = Site(step)
        history: list[Seen] = []
        for number in range(24):
            pair = (b"k%d" % (number % 5), b"%d" % number * 40)
            history.append((site.log.end_offset, *pair))
            site.put(pair)
        site.roll()
        await site.log.durable(site.log.end_offset)
        site.fs.calls_left = step
        try:
            await site.compact()
        except SparrowError:
            await _compare(site, history)  # readers do not notice
        finished, site.fs.calls_left = site.fs.calls_left >= 0, None
        site.fs.kill() if ends_by == "kill" else site.fs.crash()
        site.open()
        await _compare(site, history)
        assert not [path for path in site.fs.paths() if path.endswith((".cleaned", ".swap", ".tmp"))]
        await site.store.close()
        step += 1
    assert step > 20
