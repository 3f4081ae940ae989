"""The simulated machine itself: SQLite works on its disk as on a real one, and a disk that ignores
syncs is detected, so that passing tests on it are meaningful.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import MetaStore
from tests.conformance.meta_store import MetaStoreConformance
from tests.crash.machine.disk import Disk
from tests.crash.machine.sqlite_vfs import sqlite_on, why_unavailable
from tests.crash.machine.stores import DiskFiles
from tests.crash.stories.records import Records
from tests.crash.test_every_step import Film, filmed, look_at

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "-")


class TestMetaStoreOnASimulatedDisk(MetaStoreConformance):
    @pytest.fixture
    def files(self) -> Iterator[DiskFiles]:
        disk = Disk()
        with sqlite_on(disk) as vfs:
            yield DiskFiles(disk, vfs)

    @pytest.fixture
    def open_store(self, files: DiskFiles) -> Callable[[], MetaStore]:
        return lambda: SqliteMetaStore("/meta.db", files=files)

    @pytest.fixture
    def open_new(self, files: DiskFiles) -> Callable[[], MetaStore]:
        numbers = itertools.count()
        return lambda: SqliteMetaStore(f"/{next(numbers)}.db", wal_bytes=16 << 10, files=files)


class ForgetsFiles(Film):
    """A disk that reports a file as synced, and does nothing."""

    def sync(self, fd: int) -> None:
        self._count_call("")


class ForgetsNames(Film):
    """A disk that reports a directory as synced, and does nothing."""

    def sync_dir(self, path: str) -> None:
        self._count_call(path)


@pytest.mark.slow
@pytest.mark.parametrize("film", [ForgetsFiles, ForgetsNames])
async def test_a_disk_that_does_not_sync_is_found_out(film: type[Film]) -> None:
    stories = [Records()]
    pictures = await filmed(stories, film)
    found = 0
    for picture in pictures[-100::10]:
        try:
            await look_at(picture, stories, 0)
        except Exception:
            found += 1
    assert found


def test_two_machines_with_one_seed_lose_the_same() -> None:
    def left() -> dict[str, bytes]:
        disk = Disk(7)
        disk.mkdir("/d")
        for number in range(20):
            fd = disk.open(f"/d/{number}", write=True, create=True)
            disk.write_at(fd, [bytes([number]) * 3000], 0)
            disk.close(fd)
        image = disk.image()
        disk = Disk()
        disk.load(image)
        disk.crash()
        return {path: disk.read_at(disk.open(path), 3000, 0) for path in disk.paths()}

    assert left() == left()
