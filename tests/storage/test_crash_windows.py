"""Moments between two steps of the storage, with a crash, a full process or a new owner of the
name.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import uuid
from typing import TYPE_CHECKING

import google_crc32c
import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    DiskFull,
    InternalError,
    InvalidArgument,
    LogDamaged,
    Overloaded,
    SparrowError,
    StorageFailed,
)
from sparrow.records.batch import CRC_START, parse_header
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.log import LocalLog
from sparrow.storage.store import LogConfig, LogId
from tests.conformance.log_store import ORDERS, SMALL_SEGMENTS, fill
from tests.storage.batches import NOW_MS, append, batch, numbered, read_batches, wrap
from tests.storage.test_local_log_store import ON_THE_LOOP

if TYPE_CHECKING:
    from pathlib import Path

    from sparrow.storage.filesystem import Space
    from tests.storage.batches import Batch

DIRECTORY = "/data/logs/orders-0"


def start(fs: FaultyFileSystem, config: LogConfig = SMALL_SEGMENTS) -> tuple[LocalLogStore, LocalLog]:
    store = LocalLogStore("/data", fs, ManualClock(NOW_MS), ON_THE_LOOP)
    log = store.open(ORDERS, config)
    assert isinstance(log, LocalLog)
    return store, log


# ── a failed sync, then a restart of the broker alone ──


@pytest.mark.parametrize("rolls", [False, True])
async def test_bytes_lost_by_a_failed_sync_are_rewritten_before_a_restart_promises_them(rolls: bool) -> None:
    for seed in range(10):
        fs = FaultyFileSystem(seed)
        _, log = start(fs, SMALL_SEGMENTS if rolls else LogConfig())
        fill(log, 5)
        await log.durable(log.end_offset)
        fill(log, 20)
        fs.sync_errors = 1.0
        with pytest.raises(StorageFailed):
            await log.durable(log.end_offset)
        fs.sync_errors = 0.0
        fs.kill()
        _, log = start(fs)
        fill(log, 5)
        await log.durable(log.end_offset)
        end, expected = log.end_offset, await read_batches(log)
        fs.crash()
        _, log = start(fs)
        assert log.end_offset == end
        assert await read_batches(log) == expected


# ── a roll that only the checkpoint knows ──


async def test_a_log_whose_new_segment_lost_its_name_takes_appends_again() -> None:
    lost = 0
    for seed in range(80):
        fs = FaultyFileSystem(seed)
        config = LogConfig(segment_bytes=100_000, index_interval_bytes=150)
        _, log = start(fs, config)
        fill(log, 5)
        await log.checkpoint(b"")
        end = log.end_offset
        log.configure(LogConfig(segment_bytes=1))
        append(log, numbered(7))
        log.configure(config)
        fs.calls_left = 10  # the last step: the checkpoint gets its name
        with contextlib.suppress(SparrowError):
            log._durability.settle()  # as in a round that began before the roll
        fs.calls_left = None
        fs.crash()
        is_lost = fs.size(f"{DIRECTORY}/{end:020d}.log") is None
        _, log = start(fs, config)
        lost += is_lost and log._durability.saved.point.segment == end
        append(log, numbered(8))
        await log.durable(log.end_offset)
        await log.checkpoint(b"state")
        expected = await read_batches(log)
        fs.crash()
        _, log = start(fs, config)
        assert await read_batches(log) == expected
    assert lost


# ── the first append fails, and a checkpoint follows ──


async def test_a_checkpoint_of_a_log_without_a_record_does_not_vouch_for_its_directory() -> None:
    for seed in range(20):
        fs = FaultyFileSystem(seed)
        _, log = start(fs)
        fs.capacity_bytes = fs.used_bytes + 60  # space for the metadata, not for a batch
        log._resources.disk_space._most_reserve_bytes = 0
        log._resources.disk_space._budget_bytes, log._resources.disk_space._next_check = 1 << 20, 1e9
        with pytest.raises(DiskFull):
            append(log, numbered(1))
        fs.capacity_bytes = 1 << 40
        await log.checkpoint(b"")
        fs.kill()
        _, log = start(fs)
        append(log, numbered(2))
        await log.durable(log.end_offset)
        fs.crash()
        _, log = start(fs)
        assert log.end_offset == 1


# ── indexes ──


async def test_a_repair_of_indexes_that_a_crash_stops_is_begun_again() -> None:
    for seed in range(60):
        fs = FaultyFileSystem(seed)
        store, log = start(fs)
        for number in range(20):
            append(log, batch(b"%d" % number * 10, timestamps=NOW_MS + number))
        await store.close()
        fs.unlink(min(path for path in fs.paths() if path.endswith(".timeindex")))
        fs.sync_dir(DIRECTORY)
        fs.calls_left = 4 + seed % 12
        with contextlib.suppress(SparrowError):
            start(fs)
        fs.calls_left = None
        fs.crash()
        _, log = start(fs)
        for number in range(20):
            assert await log.offset_for_timestamp(NOW_MS + number) == (number, NOW_MS + number)


async def test_a_read_of_fewer_bytes_than_a_header_ends_without_an_index_interval() -> None:
    _, log = start(FaultyFileSystem(), LogConfig(index_interval_bytes=0))
    fill(log, 5)
    chunk = log.read_nowait(2, 1)
    assert chunk is not None
    assert parse_header(bytes(chunk.data)).base_offset <= 2 < chunk.next_offset


def claiming(count: int, size: int) -> Batch:
    """Return a batch of one record whose header claims `count`."""
    raw = bytearray(batch(bytes(size))[1])
    raw[23:27] = (count - 1).to_bytes(4, "big")
    raw[57:61] = count.to_bytes(4, "big")
    raw[17:21] = google_crc32c.value(bytes(raw[CRC_START:])).to_bytes(4, "big")
    return wrap(bytes(raw))


async def test_batches_that_claim_more_offsets_than_an_index_can_hold_are_refused_whole() -> None:
    store, log = start(FaultyFileSystem(), LogConfig())
    big = claiming((1 << 31) - 1, 5000)
    with pytest.raises(InvalidArgument, match="offsets"):
        append(log, big, big)
    assert (log.end_offset, log.size_bytes) == (0, 0)
    append(log, big)
    append(log, big)
    append(log, numbered(1))
    await log.durable(log.end_offset)
    assert len(await read_batches(log)) == 3
    await store.close()


# ── a name with a new owner ──


async def test_a_sync_that_outlives_its_topic_writes_nothing_into_the_next_of_that_name(
    tmp_path: Path,
) -> None:
    store = LocalLogStore(str(tmp_path))
    log = store.open(ORDERS, SMALL_SEGMENTS)
    assert isinstance(log, LocalLog)
    fill(log, 40)
    durability = log._durability
    syncing, go_on, done = threading.Event(), threading.Event(), threading.Event()
    settle = durability.settle

    def late() -> None:
        syncing.set()
        go_on.wait(5)
        try:
            settle()
        finally:
            done.set()

    await log.durable(log.end_offset)
    durability.settle = late  # type: ignore[method-assign]
    fill(log, 40)  # it rolls, so a sync begins
    await asyncio.to_thread(syncing.wait, 5)
    await store.delete(log)
    other = store.open(LogId("orders", uuid.UUID(int=7), 0), SMALL_SEGMENTS)
    append(other, numbered(1))
    before = sorted(os.listdir(tmp_path / "logs/orders-0"))
    go_on.set()
    await asyncio.to_thread(done.wait, 5)
    assert sorted(os.listdir(tmp_path / "logs/orders-0")) == before
    await store.close()


async def test_a_bug_in_closing_one_log_does_not_keep_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    store, log = start(fs)
    fill(log, 20)

    async def buggy(log: LocalLog) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(LocalLog, "close", buggy)
        with pytest.raises(InternalError, match="orders-0"):
            await store.close()
    again, log = start(fs)
    assert not again.clean_start
    assert len(await read_batches(log)) == 20


# ── no descriptor left ──


class FewDescriptors(FaultyFileSystem):
    """A file system that cannot open directories while `is_exhausted`."""

    is_exhausted = False

    def sync_dir(self, path: str) -> None:
        if self.is_exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        super().sync_dir(path)


async def test_a_process_without_descriptors_fails_no_log_for_good() -> None:
    fs = FewDescriptors()
    _, log = start(fs)
    append(log, numbered(1))
    fs.is_exhausted = True
    with pytest.raises(Overloaded):
        await log.durable(log.end_offset)
    fs.is_exhausted = False
    append(log, numbered(2))
    await log.durable(log.end_offset)
    fs.crash()
    _, log = start(fs)
    assert len(await read_batches(log)) == 2


async def test_a_full_disk_is_freed_by_retention() -> None:
    fs = FaultyFileSystem()
    config = LogConfig(segment_bytes=1000, index_interval_bytes=150, retention_bytes=2000)
    store, log = start(fs, config)
    fill(log, 40)
    fs.capacity_bytes = fs.used_bytes
    assert await log.enforce_retention(NOW_MS) > 0
    assert log.size_bytes < 3000
    expected = await read_batches(log)
    fs.crash()
    store, log = start(fs, config)
    assert await read_batches(log) == expected
    await store.close()


async def test_the_device_may_fail_to_tell_its_free_space_without_failing_the_log() -> None:
    fs = FaultyFileSystem()
    _, log = start(fs)
    space = fs.space

    def unknown(path: str) -> Space:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    fs.space = unknown  # type: ignore[method-assign]
    with pytest.raises(StorageFailed, match="free space"):
        append(log, numbered(1))
    fs.space = space  # type: ignore[method-assign]
    assert append(log, numbered(1)).base_offset == 0


async def test_a_log_whose_segments_are_gone_is_not_opened() -> None:
    fs = FaultyFileSystem()
    _, log = start(fs, LogConfig())
    fill(log, 20)
    await log.delete_records(30)
    await log.checkpoint(b"state")
    end = log.end_offset
    fs.kill()
    for path in [path for path in fs.paths() if path.endswith(".log")]:
        fs.unlink(path)
    for _ in range(2):
        with pytest.raises(
            LogDamaged, match=f"all segments are missing; offsets 30 to {end - 1} of orders-0"
        ):
            start(fs)
        fs.kill()
