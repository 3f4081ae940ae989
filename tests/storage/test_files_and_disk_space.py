"""The local file system's own promises, and the check of free space."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, Overloaded, StorageFailed
from sparrow.storage.disk_space import DiskSpace
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.filesystem import (
    IOV_MAX,
    PROBE_BYTES,
    LocalFileSystem,
    read_file,
    replace_file,
    translate,
    write_all,
)
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig
from tests.conformance.log_store import ORDERS
from tests.storage.batches import append, batch, read_batches

if TYPE_CHECKING:
    from pathlib import Path

    from sparrow.storage.store import PartitionLog

MIB = 1 << 20


@pytest.mark.parametrize("count", [0, 1, IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX + 5])
def test_any_number_of_buffers_is_written(tmp_path: Path, count: int) -> None:
    fs = LocalFileSystem()
    fd = fs.open(str(tmp_path / "file"), write=True, create=True)
    write_all(fs, fd, [b"%d," % number for number in range(count)], 3)
    fs.close(fd)
    expected = b"".join(b"%d," % number for number in range(count))
    assert read_file(fs, str(tmp_path / "file")) == (b"\0\0\0" + expected if count else b"")


@pytest.mark.parametrize("seed", range(20))
def test_short_writes_are_gone_on_with(seed: int) -> None:
    fs = FaultyFileSystem(seed, short_writes=0.8)
    fd = fs.open("/file", write=True, create=True)
    buffers = [bytes([number]) * number for number in range(60)]
    write_all(fs, fd, buffers, 0)
    assert fs.read_at(fd, 10_000, 0) == b"".join(buffers)


@pytest.mark.parametrize("size", [1, PROBE_BYTES - 1, PROBE_BYTES, PROBE_BYTES + 1, 5 * PROBE_BYTES + 17])
def test_reads_without_waiting_give_the_right_bytes(tmp_path: Path, size: int) -> None:
    fs = LocalFileSystem()
    path = str(tmp_path / "file")
    content = os.urandom(6 * PROBE_BYTES)
    fd = fs.open(path, write=True, create=True)
    write_all(fs, fd, [content], 0)
    for position in (0, 1, PROBE_BYTES, len(content) - size // 2 - 1):
        data = fs.read_at_nowait(fd, size, position)
        expected = content[position : position + size]
        assert data is None or (len(data) > 0 and bytes(data) == expected[: len(data)])
        assert fs.read_at(fd, size, position) == expected
    fs.close(fd)


def test_a_small_file_is_replaced_whole_or_not_at_all() -> None:
    for step in range(8):
        for seed in range(10):
            fs = FaultyFileSystem(seed)
            replace_file(fs, "/file", b"old" * 1000)
            fs.calls_left = step
            try:
                replace_file(fs, "/file", b"new" * 2000)
                done = True
            except OSError:
                done = False
            fs.calls_left = None
            fs.crash()
            found = read_file(fs, "/file")
            assert found == b"new" * 2000 if done else found in (b"old" * 1000, b"new" * 2000)


def test_errors_of_the_system_become_sentences() -> None:
    assert isinstance(translate(OSError(28, "No space left on device"), "writing", "/x"), DiskFull)
    assert isinstance(translate(OSError(24, "Too many open files"), "opening", "/x"), Overloaded)
    failed = translate(OSError(5, "Input/output error"), "reading", "/x")
    assert isinstance(failed, StorageFailed)
    assert failed.text == "reading /x failed: Input/output error. Check the device and restart the broker"


# ── room ──


def disk_space(fs: FaultyFileSystem, clock: ManualClock) -> DiskSpace:
    return DiskSpace(fs, "/", clock, reserve_bytes=64 * MIB, check_bytes=16 * MIB)


def test_the_reserve_is_kept_free_and_is_a_twentieth_at_most() -> None:
    fs, clock = FaultyFileSystem(capacity_bytes=100 * MIB), ManualClock()
    disk_space(fs, clock).take(95 * MIB)
    with pytest.raises(DiskFull, match="100 MiB left and 5 MiB are kept in reserve; free some space"):
        disk_space(fs, clock).take(95 * MIB + 1)
    fs.capacity_bytes = 10_000 * MIB
    with pytest.raises(DiskFull):
        disk_space(fs, clock).take(10_000 * MIB - 64 * MIB + 1)


def test_the_device_is_asked_once_a_second_and_every_so_many_bytes() -> None:
    fs, clock = FaultyFileSystem(capacity_bytes=1000 * MIB), ManualClock()
    watched = disk_space(fs, clock)
    asked = []
    space = fs.space
    fs.space = lambda path: (asked.append(path), space(path))[1]  # type: ignore[method-assign]
    for _ in range(16):
        watched.take(MIB)
    assert len(asked) == 1
    watched.take(1)
    assert len(asked) == 2
    clock.advance(0.9)
    watched.take(1)
    assert len(asked) == 2
    clock.advance(0.2)
    watched.take(1)
    assert len(asked) == 3


def fill_up(log: PartitionLog) -> None:
    for _ in range(100):
        append(log, batch(bytes(100_000)))


async def test_a_full_disk_refuses_appends_keeps_reading_and_recovers_by_itself() -> None:
    fs = FaultyFileSystem(capacity_bytes=4 * MIB)
    store = LocalLogStore("/data", fs, options=StorageOptions(reserve_bytes=64 * MIB))
    log = store.open(ORDERS, LogConfig(segment_bytes=MIB, retention_bytes=MIB, retention_ms=-1))
    with pytest.raises(DiskFull, match="in reserve"):
        fill_up(log)
    count = log.end_offset
    assert 30 < count < 45
    assert len(await read_batches(log)) == count
    await log.durable(count)
    await log.checkpoint(b"there is room for this")
    await log.delete_records(3)
    assert await log.enforce_retention(0) > MIB
    append(log, batch(bytes(100_000)))
    await store.close()
