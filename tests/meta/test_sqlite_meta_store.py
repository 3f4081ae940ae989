"""The SQLite store: the contract, group commit, refusals at open, full and failing disks, kill
-9.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrow.base.errors import (
    DirectoryInUse,
    DirectoryUnreadable,
    DiskFull,
    InternalError,
    NewerFormat,
    Overloaded,
)
from sparrow.meta.database import APPLICATION_ID, FORMAT_VERSION, Database
from sparrow.meta.reserved_space import ReservedSpace
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import Delete, Entry, Put
from tests.conformance.meta_store import MetaStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.meta.store import MetaStore

WRITER = Path(__file__).parent / "meta_writer.py"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "meta.db")


def file_size(path: str) -> int:
    return os.path.getsize(path)


def damage(path: str) -> None:
    """Overwrite everything after the first page."""
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 1000)


async def scan_all(path: str) -> list[Entry]:
    store = SqliteMetaStore(path)
    try:
        return await store.scan("k")
    finally:
        await store.close()


async def write_until_refused(store: SqliteMetaStore) -> int:
    """Return how many entries went in before the disk was full."""
    for n in itertools.count():
        try:
            await store.write([Put("k", f"{n:05}", bytes(2000))])
        except DiskFull:
            return n
    raise AssertionError


class TestSqliteMetaStore(MetaStoreConformance):
    @pytest.fixture
    def open_store(self, path: str) -> Callable[[], MetaStore]:
        return lambda: SqliteMetaStore(path)

    @pytest.fixture
    def open_new(self, tmp_path: Path) -> Callable[[], MetaStore]:
        numbers = itertools.count()
        return lambda: SqliteMetaStore(tmp_path / f"{next(numbers)}.db", wal_bytes=16 << 10)


@pytest.mark.parametrize("name", ["a b", "wh?t=1&vfs=unix", "50%41#x", "\udcff"])
async def test_any_name_of_a_directory_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    store = SqliteMetaStore(f"{tmp_path}/{name}/meta.db")
    await store.write([Put("k", "a", b"1")])
    await store.close()
    assert os.listdir(tmp_path) == [name]
    assert os.listdir(tmp_path / name) == ["meta.db"]


# ── group commit ──────────────────────────────────────────────────────────────────────────────────


async def test_a_thousand_writes_at_once_share_few_commits(path: str) -> None:
    store = SqliteMetaStore(path)
    await asyncio.gather(*(store.write([Put("k", f"{n}", b"")]) for n in range(1000)))
    assert store.commits <= 20
    assert len(await store.scan("k")) == 1000
    await store.close()


async def test_reads_see_writes_asked_for_before_them(path: str) -> None:
    store = SqliteMetaStore(path)
    write = asyncio.ensure_future(store.write([Put("k", "a", b"1")]))
    await asyncio.sleep(0)
    entry = await store.get("k", "a")
    assert entry is not None
    await write
    await store.close()


async def test_a_flood_is_refused_before_it_fills_the_memory(path: str) -> None:
    store = SqliteMetaStore(path, max_waiting_bytes=10_000)
    writes = (store.write([Put("k", f"{n}", bytes(1000))]) for n in range(50))
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {type(None), Overloaded}
    await store.write([Put("k", "later", bytes(1000))])
    await store.close()


async def test_the_log_stays_bounded_by_checkpoints(path: str) -> None:
    store = SqliteMetaStore(path, wal_bytes=64 << 10)
    for n in range(200):
        await store.write([Put("k", f"{n % 7}", b"%d" % n)])
    assert store._database.checkpoints > 2
    assert file_size(f"{path}-wal") <= 128 << 10
    await store.close()


async def test_a_bug_in_a_commit_fails_all_waiting_calls_and_is_no_failure_of_the_disk(path: str) -> None:
    store = SqliteMetaStore(path)
    no_bytes: Any = [1, 2]
    writes = [store.write([Put("k", "a", no_bytes)]), store.write([Put("k", "b", b"")])]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [InternalError, InternalError]
    await store.write([Put("k", "c", b"")])
    assert [entry.key for entry in await store.scan("k")] == ["c"]
    await store.close()


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_second_owner_is_refused(path: str) -> None:
    store = SqliteMetaStore(path)
    with pytest.raises(DirectoryInUse, match="another process"):
        SqliteMetaStore(path, busy_timeout_ms=0)
    await store.write([Put("k", "a", b"")])
    await store.close()
    await SqliteMetaStore(path).close()


async def test_a_newer_format_is_refused_and_left_alone(path: str) -> None:
    await SqliteMetaStore(path).close()
    with sqlite3.connect(path) as sql:
        sql.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    sql.close()
    with pytest.raises(NewerFormat, match=f"format {FORMAT_VERSION + 1}"):
        SqliteMetaStore(path)


async def test_a_file_of_another_program_is_refused(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    sql = sqlite3.connect(path)
    sql.execute("CREATE TABLE theirs (x)")
    sql.close()
    with pytest.raises(DirectoryUnreadable, match="another program"):
        SqliteMetaStore(path)


@pytest.mark.parametrize("content", [b"this is no database" * 500, b"\x00" * 8192 + b"\x01"])
def test_garbage_is_refused_with_advice(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(content)
    with pytest.raises(DirectoryUnreadable, match="backup"):
        SqliteMetaStore(path)
    assert Path(path).read_bytes() == content


async def test_a_directory_in_the_place_of_the_file_is_refused(path: str) -> None:
    os.makedirs(path)
    with pytest.raises(DirectoryUnreadable, match="permissions"):
        SqliteMetaStore(path)


async def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DirectoryUnreadable):
        SqliteMetaStore(tmp_path / "data" / "meta.db")


async def test_a_damaged_page_is_an_error_not_a_result(path: str) -> None:
    store = SqliteMetaStore(path)
    await store.write([Put("k", f"{n:05}", bytes(100)) for n in range(1000)])
    await store.close()
    damage(path)
    with pytest.raises(DirectoryUnreadable, match="backup"):
        await scan_all(path)


async def test_a_file_of_format_1_is_still_read(path: str) -> None:
    """A file of format 1, written here by hand."""
    os.makedirs(os.path.dirname(path))
    sql = sqlite3.connect(path)
    sql.executescript(
        "CREATE TABLE fact (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version "
        "INTEGER NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID; CREATE TABLE room (filler BLOB NOT NULL); "
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
        "INSERT INTO fact VALUES ('topic', 'orders', x'01', 5);"
    )
    sql.close()
    store = SqliteMetaStore(path)
    entry = await store.get("topic", "orders")
    assert entry is not None
    assert (entry.value, entry.version) == (b"\x01", 5)
    await store.close()


# ── full and failing disks ────────────────────────────────────────────────────────────────────────


async def test_a_full_disk_refuses_puts_keeps_reading_and_recovers(path: str) -> None:
    store = SqliteMetaStore(path, max_bytes=256 << 10)
    kept = await write_until_refused(store)
    assert len(await store.scan("k")) == kept
    await store.write([Put("k", "00000", b"smaller")])
    await store.write([Delete("k", f"{n:05}") for n in range(kept // 2)])
    await store.write([Put("k", "again", bytes(2000))])
    assert await store.get("k", "again") is not None
    await store.close()


async def test_a_write_that_does_not_fit_spares_those_beside_it(path: str) -> None:
    store = SqliteMetaStore(path, max_bytes=256 << 10)
    await store.write([Put("k", "a", b"old")])
    batches = [
        [Put("k", "a", b"new")],
        [Put("k", "huge", bytes(1 << 20))],
        [Put("k", "b", b"new")],
        [Delete("k", "a")],
    ]
    outcomes = await asyncio.gather(*map(store.write, batches), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), DiskFull, type(None), type(None)]
    assert [entry.key for entry in await store.scan("k")] == ["b"]
    await store.close()


async def test_a_full_device_still_takes_small_updates(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteMetaStore(path, wal_bytes=64 << 10)
    await store.write([Put("offset", f"{n}", bytes(40)) for n in range(100)])
    monkeypatch.setattr(ReservedSpace, "_free_bytes", lambda room: 0)
    for n in range(300):
        await store.write([Put("offset", f"{n % 100}", b"%040d" % n)])
    with pytest.raises(DiskFull):
        await store.write([Put("topic", "large", bytes(1 << 20))])
    assert len(await store.scan("offset")) == 100
    await store.close()


FAILING_WRITER = """
import asyncio, resource, sys
from sparrow.base.errors import StorageFailed
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import Put

async def main():
    store = SqliteMetaStore(sys.argv[1], wal_bytes=32 << 10)
    await store.write([Put("k", "a", b"1")])
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
    for n in range(2):
        try:
            await store.write([Put("k", "b", bytes(1 << 20))])
        except StorageFailed as error:
            print(error.code, "restarted" in error.text)
    print(len(await store.scan("k")))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_failing_device_takes_no_more_changes_and_keeps_reading(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING_WRITER, path], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["STORAGE_FAILED", "True", "STORAGE_FAILED", "True", "1"], done.stderr


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────


def acknowledged_before_kill(path: str, first: int, after_lines: int) -> list[int]:
    """Start a writer and kill it when it has acknowledged this many batches. Return all that it
    acknowledged.
    """
    process = subprocess.Popen(
        [sys.executable, str(WRITER), path, str(first)], stdout=subprocess.PIPE, bufsize=0, text=False
    )
    assert process.stdout is not None
    output = b""
    while output.count(b"\n") < after_lines:
        output += process.stdout.read(4096)
    process.send_signal(signal.SIGKILL)
    output += process.stdout.read()
    process.wait()
    process.stdout.close()
    whole_lines = output[: output.rindex(b"\n")]
    return [int(line) for line in whole_lines.split()]


@pytest.mark.slow
def test_acknowledged_writes_survive_kill_9(path: str) -> None:
    dice = random.Random(42)
    acknowledged: set[int] = set()
    for _ in range(8):
        acknowledged.update(
            acknowledged_before_kill(path, max(acknowledged, default=-1) + 100, dice.randrange(1, 400))
        )
        database = Database(path)
        kept_a = {int(entry.key): entry.value for entry in database.scan("a", "")}
        kept_b = {int(entry.key) for entry in database.scan("b", "")}
        database.close()
        assert acknowledged <= kept_a.keys()
        assert kept_a.keys() == kept_b
        assert all(value == b"%d" % n * 50 for n, value in kept_a.items())


@pytest.mark.parametrize("size", [100, 1_000, 1_300, 4_000, 5_000, 16_384])
async def test_the_file_grows_for_many_values_of_any_size(path: str, size: int) -> None:
    store = SqliteMetaStore(path)
    await store.write([Put("page", f"{number:0100d}", bytes(size)) for number in range(600)])
    assert len(await store.scan("page")) == 600
    await store.close()
