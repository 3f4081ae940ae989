"""Writes that the kernel carries out while the loop works, and the journal over them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import StorageFailed
from sparrow.storage.direct_writes import DirectWrites
from sparrow.storage.filesystem import BLOCK_BYTES, LocalFileSystem
from sparrow.storage.local_journal import LocalJournal
from tests.conformance.journal import found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCKS = 8


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Yield a file of zeros that is opened for direct writes."""
    path = tmp_path / "blocks"
    path.write_bytes(bytes(BLOCKS * BLOCK_BYTES))
    fd = LocalFileSystem().open_synced(str(path))
    yield fd
    os.close(fd)


def writes_of(fd: int) -> DirectWrites:
    found = LocalFileSystem().direct_writes(fd, asyncio.get_running_loop())
    if found is None:
        pytest.skip("this system has no asynchronous direct writes, or this file system no direct ones")
    return found


def filled(value: bytes) -> tuple[mmap.mmap, int]:
    """Return memory of two blocks with one byte in all, and its address."""
    memory = mmap.mmap(-1, 2 * BLOCK_BYTES)
    memory[:] = value * len(memory)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def begun(writes: DirectWrites, fd: int, address: int, position: int) -> asyncio.Future[OSError | None]:
    future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    writes.begin(fd, address, 2 * BLOCK_BYTES, position, future.set_result)
    return future


async def test_writes_follow_each_other_and_are_in_the_file(fd: int) -> None:
    writes = writes_of(fd)
    for number, value in enumerate((b"a", b"b", b"c")):
        memory, address = filled(value)
        assert await begun(writes, fd, address, 2 * number * BLOCK_BYTES) is None
        del memory
    writes.close()
    assert _content(fd) == b"".join(each * 2 * BLOCK_BYTES for each in (b"a", b"b", b"c", b"\0"))


def _content(fd: int) -> bytes:
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        return file.read()


async def test_a_write_that_the_kernel_refuses_is_an_error_where_it_began_or_ended(fd: int) -> None:
    writes = writes_of(fd)
    _memory, address = filled(b"x")
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        writes.begin(1 << 20, address, BLOCK_BYTES, 0, lambda _: None)
    # An address without memory is found when the kernel copies from it, at once or later.
    try:
        error = await begun(writes, fd, BLOCK_BYTES, 0)
    except OSError as refused:
        error = refused
    assert error is not None
    assert error.errno == errno.EFAULT
    _memory, address = filled(b"y")
    assert await begun(writes, fd, address, 0) is None, "it goes on"
    writes.close()


async def test_closing_waits_for_the_write_under_way(fd: int) -> None:
    writes = writes_of(fd)
    _memory, address = filled(b"z")
    ended = begun(writes, fd, address, 0)
    writes.close()
    await asyncio.sleep(0)
    assert not ended.done(), "nobody is told"
    assert _content(fd)[: 2 * BLOCK_BYTES] == b"z" * 2 * BLOCK_BYTES


def journal_in(path: Path, mark: bytes | None = None) -> LocalJournal:
    return LocalJournal(LocalFileSystem(), f"{path}/journal", mark, 1_700_000_000_000, file_bytes=64 << 10)


async def begun_journal(path: Path) -> tuple[LocalJournal, bytes]:
    journal = journal_in(path)
    mark = await journal.begin()
    journal.release(mark)
    if journal._direct is None:
        pytest.skip("this system has no asynchronous direct writes, or this file system no direct ones")
    return journal, mark


async def test_records_of_a_busy_journal_are_there_in_their_order(tmp_path: Path) -> None:
    journal, mark = await begun_journal(tmp_path)
    records = [b"%d" % number * (number % 500 + 1) for number in range(100)]
    waiting: list[asyncio.Future[None]] = []
    for number, record in enumerate(records):
        waiting.append(journal.append(record))
        if number % 7 == 0:  # some while a write is under way
            await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert journal.sync_times.count >= 1
    await journal.close()
    assert found(journal_in(tmp_path, mark)) == records


async def test_the_loop_works_while_a_write_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = await begun_journal(tmp_path)
    held: list[Callable[[], None]] = []
    begin = DirectWrites.begin

    def hold(
        self: DirectWrites, fd: int, address: int, size: int, position: int,
        done: Callable[[OSError | None], None],
    ) -> None:  # fmt: skip
        begin(self, fd, address, size, position, lambda error: held.append(lambda: done(error)))

    monkeypatch.setattr(DirectWrites, "begin", hold)
    first = journal.append(b"first")
    async with asyncio.timeout(60):
        while not held:
            await asyncio.sleep(0.001)
    second = journal.append(b"second")
    await asyncio.sleep(0.01)
    assert not first.done()
    assert len(held) == 1, "one write at a time"
    held.pop()()
    async with asyncio.timeout(60):
        await first
        while not held:
            await asyncio.sleep(0.001)
        held.pop()()
        await second
    await journal.close()


async def test_records_of_one_iteration_are_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = await begun_journal(tmp_path)
    begin, sizes = DirectWrites.begin, list[int]()

    def count(
        self: DirectWrites, fd: int, address: int, size: int, position: int,
        done: Callable[[OSError | None], None],
    ) -> None:  # fmt: skip
        sizes.append(size)
        begin(self, fd, address, size, position, done)

    monkeypatch.setattr(DirectWrites, "begin", count)
    loop, ended = asyncio.get_running_loop(), list[asyncio.Future[None]]()
    for record in (b"record", b"lease"):  # each from a callback of its own
        loop.call_soon(lambda record=record: ended.append(journal.append(record)))
    async with asyncio.timeout(60):
        while not ended:
            await asyncio.sleep(0)
        await asyncio.gather(*ended)
    assert len(sizes) == 1
    await journal.close()


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_a_failed_write_ends_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_at_once: bool
) -> None:
    journal, _ = await begun_journal(tmp_path)
    error = OSError(errno.EIO, os.strerror(errno.EIO))

    def fail(
        self: DirectWrites, fd: int, address: int, size: int, position: int,
        done: Callable[[OSError | None], None],
    ) -> None:  # fmt: skip
        if is_at_once:
            raise error
        asyncio.get_running_loop().call_soon(done, error)

    def fail_too(*_: object) -> None:
        raise error

    monkeypatch.setattr(DirectWrites, "begin", fail)
    monkeypatch.setattr(LocalFileSystem, "write_at", fail_too)
    with pytest.raises(StorageFailed, match="writing the journal"):
        await asyncio.wait_for(journal.append(b"lost"), 60)
    with pytest.raises(StorageFailed, match="writing the journal"):
        await journal.append(b"later")
    await journal.close()


async def test_a_write_that_cannot_begin_is_done_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, mark = await begun_journal(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(DirectWrites, "begin", refuse)
    await asyncio.wait_for(journal.append(b"kept"), 60)
    await journal.close()
    assert found(journal_in(tmp_path, mark)) == [b"kept"]
