"""Few open files for many segments, and none closed under its user."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import OffsetOutOfRange
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.handles import Handle, Handles
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.resources import MemoryBudget
from sparrow.storage.store import LogConfig
from tests.conformance.log_store import ORDERS, SMALL_SEGMENTS, fill
from tests.storage.batches import read_batches

if TYPE_CHECKING:
    from pathlib import Path


def make(count: int, limit: int) -> tuple[FaultyFileSystem, Handles, list[Handle]]:
    fs = FaultyFileSystem()
    for number in range(count):
        fs.close(fs.open(f"/{number}", create=True))
    return fs, Handles(fs, limit), [Handle(f"/{number}") for number in range(count)]


def use(handles: Handles, handle: Handle) -> None:
    handles.acquire(handle)
    handles.release(handle)


def test_the_least_recently_used_file_is_closed() -> None:
    _, handles, files = make(4, 3)
    for number in (0, 1, 2, 0, 3):
        use(handles, files[number])
    assert [handle.fd >= 0 for handle in files] == [True, False, True, True]


def test_a_file_in_use_stays_open_beyond_the_limit() -> None:
    _, handles, files = make(4, 2)
    held = [handles.acquire(handle) for handle in files]
    assert len(handles) == len(set(held)) == 4
    for handle in files:
        handles.release(handle)
    assert len(handles) == 2


def test_a_retired_file_is_closed_by_its_last_user() -> None:
    _, handles, files = make(1, 2)
    handles.acquire(files[0])
    handles.retire(files[0])
    handles.acquire(files[0])
    handles.release(files[0])
    assert files[0].fd >= 0
    handles.release(files[0])
    assert files[0].fd == -1
    with pytest.raises(FileNotFoundError):
        handles.acquire(files[0])


def test_a_process_without_descriptors_gives_up_one_of_ours() -> None:
    fs, handles, files = make(3, 100)
    use(handles, files[0])
    real, refusals = fs.open, [errno.EMFILE]

    def refusing(path: str, *, write: bool = False, create: bool = False) -> int:
        if refusals:
            raise OSError(refusals.pop(), "too many open files")
        return real(path, write=write, create=create)

    fs.open = refusing  # type: ignore[method-assign]
    use(handles, files[1])
    assert files[0].fd == -1
    handles.close()
    refusals.append(errno.EMFILE)
    with pytest.raises(OSError, match="too many"):
        handles.acquire(files[2])


def test_indexes_in_memory_are_bounded() -> None:
    class Owner:
        forgot = False

        def forget(self) -> None:
            self.forgot = True

    cache, owners = MemoryBudget(100), [Owner() for _ in range(5)]
    for owner in owners[:3]:
        cache.admit(owner, 40)
    assert [owner.forgot for owner in owners] == [True, False, False, False, False]
    cache.drop(owners[1])
    cache.admit(owners[3], 60)
    assert [owner.forgot for owner in owners] == [True, False, False, False, False]
    cache.admit(owners[4], 1000)
    assert [owner.forgot for owner in owners] == [True, False, True, True, False]


async def test_one_open_file_and_no_index_cache_are_enough(tmp_path: Path) -> None:
    options = StorageOptions(max_open_files=1, index_cache_bytes=1)
    store = LocalLogStore(str(tmp_path), options=options)
    log = store.open(ORDERS, SMALL_SEGMENTS)
    sent = fill(log, 60)
    await log.durable(log.end_offset)
    for _ in range(2):
        assert len(await read_batches(log)) == len(sent)
    await store.close()


async def test_reads_in_threads_continue_while_segments_are_removed(tmp_path: Path) -> None:
    """Readers run against retention; each gets right bytes or OffsetOutOfRange."""
    fs = FaultyFileSystem(would_block=1.0)
    store = LocalLogStore("/data", fs)
    log = store.open(ORDERS, SMALL_SEGMENTS)
    fill(log, 200)
    log.configure(LogConfig(segment_bytes=1000, retention_bytes=3000))

    async def read_all() -> None:
        for offset in range(0, 300, 7):
            try:
                chunk = await log.read(offset, 500)
            except OffsetOutOfRange:
                continue
            assert chunk.base_offset <= offset < chunk.next_offset or not chunk.data

    async def cut() -> None:
        await log.enforce_retention(0)

    await asyncio.gather(read_all(), cut(), read_all())
    await store.close()


PROGRAM = """
import asyncio, resource, sys, uuid
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from sparrow.records.builder import build_batch
from sparrow.records.batch import parse_header
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig, LogId

async def main():
    data = build_batch([b"value"])
    batch = [(parse_header(data), memoryview(data))]
    store = LocalLogStore(sys.argv[1])
    topic = uuid.uuid4()
    logs = [store.open(LogId("many", topic, number), LogConfig()) for number in range(1000)]
    for _ in range(2):
        for log in logs:
            log.append(batch)
        await asyncio.gather(*(log.durable(log.end_offset) for log in logs))
        for log in logs:
            assert (await log.read(0, 1000)).records == log.end_offset
    await store.close()
    store = LocalLogStore(sys.argv[1])
    assert store.clean_start and len(store.ids()) == 1000
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_thousand_partitions_work_with_1024_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
