"""The journal on files: conformance, faults of the disk, and power failures at seeded moments."""

from __future__ import annotations

import asyncio
import itertools
import random
import zlib
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import DirectoryUnreadable, DiskFull, NewerFormat, SparrowError, StorageFailed
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.filesystem import BLOCK_BYTES, LocalFileSystem
from sparrow.storage.journal_frames import (
    HEADER_BYTES,
    VERSION,
    encode_frame,
    encode_header,
    frames_after,
    read_frames,
)
from sparrow.storage.local_journal import LocalJournal
from tests.conformance.journal import JournalConformance, found

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sparrow.storage.journal import Journal

DIRECTORY = "/data/journal"
SMALL = 64 << 10
_times = itertools.count(1_700_000_000_000)


def in_memory(seed: int = 0, **faults: float) -> FaultyFileSystem:
    fs = FaultyFileSystem(seed, **faults)
    fs.mkdir("/data")
    fs.sync_dir("/")
    return fs


def opened(fs: FaultyFileSystem, mark: bytes | None = None, file_bytes: int = SMALL) -> LocalJournal:
    return LocalJournal(fs, DIRECTORY, mark, next(_times), threads=0, file_bytes=file_bytes)


class TestInMemory(JournalConformance):
    @pytest.fixture
    def open_journal(self) -> Callable[[bytes | None], Journal]:
        fs = in_memory(short_writes=0.1)
        return lambda mark: LocalJournal(fs, DIRECTORY, mark, next(_times), threads=0)


class TestOnDisk(JournalConformance):
    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> Callable[[bytes | None], Journal]:
        return lambda mark: LocalJournal(LocalFileSystem(), f"{tmp_path}/journal", mark, next(_times))


# ── frames ────────────────────────────────────────────────────────────────────────────────────────


def file_of(payloads: list[bytes], first: int = 7) -> bytearray:
    frames = [encode_frame(each, first + n, first + n - 1) for n, each in enumerate(payloads)]
    return bytearray(encode_header(bytes(16), first) + b"".join(frames) + bytes(BLOCK_BYTES))


def test_each_flipped_bit_ends_the_frames_before_it_and_is_proved_by_later_ones() -> None:
    payloads = [b"one", b"two", b"three"]
    data = file_of(payloads)
    second = BLOCK_BYTES + HEADER_BYTES + 8
    for bit in range(8 * (HEADER_BYTES + len(b"two"))):
        flipped = data.copy()
        flipped[second + bit // 8] ^= 1 << bit % 8
        contents = read_frames(memoryview(flipped))
        assert [bytes(each) for each in contents.payloads] == [b"one"]
        assert [each.synced for each in frames_after(memoryview(flipped), 7)] == [8]


def test_each_flipped_bit_of_a_header_is_noticed() -> None:
    data = file_of([b"one"])
    for bit in range(8 * 40):
        flipped = data.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        header = read_frames(memoryview(flipped)).header
        assert header is None or header.version > VERSION


# ── damage ────────────────────────────────────────────────────────────────────────────────────────


async def written(fs: FaultyFileSystem, records: list[bytes]) -> bytes:
    """Write each record by itself, then lose power. Return the mark of the first checkpoint."""
    journal = opened(fs)
    mark = await journal.begin()
    for record in records:
        await journal.append(record)
    fs.crash()
    return mark


def current(fs: FaultyFileSystem) -> str:
    return next(path for path in (f"{DIRECTORY}/0", f"{DIRECTORY}/1") if fs._nodes[path].data[:8] != bytes(8))


async def test_a_flipped_bit_before_the_last_synced_record_is_refused() -> None:
    fs = in_memory()
    mark = await written(fs, [b"one", b"two", b"three"])
    fs.corrupt(current(fs), BLOCK_BYTES + HEADER_BYTES, b"O")
    with pytest.raises(DirectoryUnreadable, match=r"at least 2 of its records are damaged.*--accept-loss"):
        opened(fs, mark)


async def test_a_flipped_bit_in_the_last_record_is_a_torn_tail() -> None:
    fs = in_memory()
    mark = await written(fs, [b"one", b"two", b"three"])
    fs.corrupt(current(fs), BLOCK_BYTES + 2 * (HEADER_BYTES + 8) + HEADER_BYTES, b"T")
    assert found(opened(fs, mark)) == [b"one", b"two"]


async def test_a_missing_file_is_refused_unless_the_last_end_was_clean() -> None:
    fs = in_memory()
    journal = opened(fs)
    mark = await journal.begin()
    await journal.append(b"one")
    final = journal.mark(is_final=True)
    await journal.close()
    fs.lose(f"{DIRECTORY}/0")
    with pytest.raises(DirectoryUnreadable, match="a file is missing"):
        opened(fs, mark)
    again = opened(fs, final)
    assert found(again) == []
    again.release(await again.begin())
    await again.append(b"two")
    await again.close()


async def test_a_file_that_lost_its_content_is_refused() -> None:
    fs = in_memory()
    journal = opened(fs)
    await journal.begin()
    await journal.append(b"one")
    mark = journal.mark()
    await journal.append(b"two")
    await journal.close()
    fs.corrupt(current(fs), 0, bytes(SMALL))
    with pytest.raises(DirectoryUnreadable, match="records that the last checkpoint saw are not in it"):
        opened(fs, mark)


async def test_files_of_another_journal_are_refused_and_replaced_where_nothing_is_needed() -> None:
    fs, other = in_memory(), in_memory()
    mark = await written(fs, [b"one"])
    await written(other, [b"two"])
    with pytest.raises(DirectoryUnreadable, match="its files belong to another data directory"):
        opened(other, mark)
    journal = opened(other)
    mark = await journal.begin()
    await journal.append(b"three")
    await journal.close()
    assert found(opened(other, mark)) == [b"three"]


async def test_a_file_of_a_later_version_is_refused() -> None:
    fs = in_memory()
    mark = await written(fs, [b"one"])
    fs.corrupt(current(fs), 8, b"\3")
    with pytest.raises(NewerFormat, match="has format 3, this Sparrow reads up to 2"):
        opened(fs, mark)


async def test_a_file_of_a_later_version_is_named_where_the_other_one_is_missing() -> None:
    fs = in_memory()
    mark = await written(fs, [b"one"])
    path = current(fs)
    fs.corrupt(path, 8, b"\3")
    fs.lose(next(each for each in (f"{DIRECTORY}/0", f"{DIRECTORY}/1") if each != path))
    with pytest.raises(NewerFormat, match=f"^{path} has format 3"):
        opened(fs, mark)


async def test_files_of_version_1_are_read_and_become_version_2() -> None:
    fs = in_memory()
    mark = await written(fs, [b"one", b"two"])
    path = current(fs)
    version = (1).to_bytes(4, "little")
    block = fs._nodes[path].data[16:40]  # the journal's id and the first number
    fs.corrupt(path, 8, version + zlib.crc32(block, zlib.crc32(version)).to_bytes(4, "little"))
    journal = opened(fs, mark)
    assert found(journal) == [b"one", b"two"]
    mark = await journal.begin()
    journal.release(mark)
    await journal.append(b"three")
    await journal.close()
    assert fs._nodes[path].data[8] == VERSION  # used again
    assert found(opened(fs, mark)) == [b"three"]


# ── failing writes ────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_write_fails_all_behind_it_and_the_journal_takes_no_more() -> None:
    fs = in_memory()
    journal = opened(fs)
    mark = await journal.begin()
    await journal.append(b"one")
    fs.sync_errors = 1.0
    appends = [journal.append(b"two"), journal.append(b"three")]
    failures = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(each) for each in failures] == [StorageFailed] * 2
    fs.sync_errors = 0.0
    with pytest.raises(StorageFailed):
        await journal.append(b"four")
    await journal.close()
    assert found(opened(fs, mark))[:1] == [b"one"]


async def test_records_without_space_are_refused_in_their_order() -> None:
    journal = opened(in_memory())
    await journal.begin()
    ended: list[int] = []
    for number in range(20):
        future = journal.append(bytes(journal.max_record_bytes // 2))
        future.add_done_callback(lambda done, number=number: ended.append(number) or done.exception())
    for _ in range(10):
        await asyncio.sleep(0)
    written = len(ended)
    assert 0 < written < 18
    journal.refuse_waiting(DiskFull("no room"))
    await asyncio.sleep(0)
    assert ended == list(range(20))
    await journal.close()


async def test_a_full_disk_is_said_at_the_beginning_and_not_later() -> None:
    fs = in_memory(capacity_bytes=SMALL)
    journal = opened(fs)
    with pytest.raises(DiskFull):
        await journal.begin()
    assert fs.used_bytes == 0
    fs.capacity_bytes = 8 * SMALL
    mark = await journal.begin()
    fs.capacity_bytes = fs.used_bytes
    for number in range(3000):
        await journal.append(b"%d" % number)
        if journal.is_filling:
            mark = journal.mark()
            journal.release(mark)
    await journal.close()
    assert found(opened(fs, mark))[-1] == b"2999"


# ── power failures ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(60))
async def test_confirmed_entries_survive_power_failures_in_order(seed: int) -> None:
    """The owner here keeps the number of its last record in its checkpoint. At each start it must
    find all confirmed records behind that, and maybe further ones, without a gap.
    """
    dice = random.Random(seed)
    fs = in_memory(seed, short_writes=0.1 * dice.random())
    mark: bytes | None = None
    saved, confirmed, appended = 0, 0, 0
    for _ in range(8):
        fs.calls_left = None
        journal = opened(fs, mark)
        numbers = [int(record[:8]) for record in found(journal)]
        assert numbers == list(range(saved + 1, saved + 1 + len(numbers)))
        assert confirmed <= saved + len(numbers) <= appended
        if dice.random() < 0.2:
            fs.crash() if dice.random() < 0.5 else fs.kill()
            continue  # a start that was cut short: replay again
        appended = confirmed = last = saved + len(numbers)
        fs.calls_left = dice.randrange(1, 120)
        futures: list[tuple[int, asyncio.Future[None]]] = []
        try:
            mark, saved = await journal.begin(), last
            journal.release(mark)
            while True:
                futures.clear()
                for _ in range(dice.randrange(1, 6)):
                    appended += 1
                    record = b"%08d" % appended + dice.randbytes(dice.choice((0, 50, 5_000)))
                    futures.append((appended, journal.append(record)))
                for number, future in futures:
                    await future
                    confirmed = number
                if journal.is_filling or dice.random() < 0.05:
                    mark, saved = journal.mark(), appended
                    journal.release(mark)
        except SparrowError:
            await asyncio.gather(*(future for _, future in futures), return_exceptions=True)
            fs.calls_left = None
            fs.crash() if dice.random() < 0.8 else fs.kill()


async def test_a_kill_between_append_and_sync_loses_nothing_that_was_confirmed() -> None:
    fs = in_memory()
    journal = opened(fs)
    mark = await journal.begin()
    await journal.append(b"one")
    unconfirmed = journal.append(b"two")
    fs.crash()
    assert not unconfirmed.done()
    assert found(opened(fs, mark)) == [b"one"]
    with pytest.raises(StorageFailed):  # its descriptors are gone
        await unconfirmed
