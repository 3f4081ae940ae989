"""The data directory: its owner, its format, and its state at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import DirectoryInUse, DirectoryUnreadable, NewerFormat
from sparrow.storage.directory import DataDirectory
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.filesystem import LocalFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.store import LogConfig
from tests.conformance.log_store import ORDERS, fill
from tests.storage.test_local_log_store import ON_THE_LOOP

if TYPE_CHECKING:
    from pathlib import Path


def test_a_directory_in_use_says_by_which_process(tmp_path: Path) -> None:
    taken = DataDirectory(LocalFileSystem(), str(tmp_path))
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()}.*stop that broker"):
        DataDirectory(LocalFileSystem(), str(tmp_path))
    taken.release(clean=True)
    DataDirectory(LocalFileSystem(), str(tmp_path)).release(clean=True)


@pytest.mark.slow
def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from sparrow.storage.directory import DataDirectory\n"
        "from sparrow.storage.filesystem import LocalFileSystem\n"
        "DataDirectory(LocalFileSystem(), sys.argv[1])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    directory = DataDirectory(LocalFileSystem(), str(tmp_path))
    assert not directory.was_clean
    directory.release(clean=True)


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    DataDirectory(LocalFileSystem(), str(tmp_path)).release(clean=True)
    (tmp_path / "format").write_text("sparrow data directory\nversion: 3\n")
    with pytest.raises(NewerFormat, match=r"format 3 .* up to 2; start the newer"):
        DataDirectory(LocalFileSystem(), str(tmp_path))


def test_an_older_format_becomes_the_present_one(tmp_path: Path) -> None:
    DataDirectory(LocalFileSystem(), str(tmp_path)).release(clean=True)
    (tmp_path / "format").write_text("sparrow data directory\nversion: 1\n")
    DataDirectory(LocalFileSystem(), str(tmp_path)).release(clean=True)
    assert (tmp_path / "format").read_text() == "sparrow data directory\nversion: 2\n"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"version: 1", b"sparrow data directory\nversion: x\n"]
)
def test_a_damaged_format_file_is_not_guessed_at(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "format").write_bytes(content)
    with pytest.raises(DirectoryUnreadable, match="damaged"):
        DataDirectory(LocalFileSystem(), str(tmp_path))


def test_a_directory_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(DirectoryUnreadable, match=r"holiday\.jpg.*not a Sparrow data directory"):
        DataDirectory(LocalFileSystem(), str(tmp_path))


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DirectoryUnreadable, match="a part of the path is a file"):
        DataDirectory(LocalFileSystem(), str(tmp_path / "file" / "data"))


def test_a_full_device_is_reported_at_start() -> None:
    with pytest.raises(DirectoryUnreadable, match="full"):
        DataDirectory(FaultyFileSystem(capacity_bytes=0), "/data")


def test_missing_parents_are_made(tmp_path: Path) -> None:
    directory = DataDirectory(LocalFileSystem(), str(tmp_path / "a" / "b"))
    assert os.path.isdir(tmp_path / "a" / "b" / "logs")
    directory.release(clean=False)


def test_only_a_clean_end_makes_a_clean_start() -> None:
    fs = FaultyFileSystem()
    DataDirectory(fs, "/data").release(clean=True)
    directory = DataDirectory(fs, "/data")
    assert directory.was_clean
    directory.release(clean=False)
    directory = DataDirectory(fs, "/data")
    assert not directory.was_clean
    directory.release(clean=True)
    fs.crash()
    assert DataDirectory(fs, "/data").was_clean
    fs.crash()
    assert not DataDirectory(fs, "/data").was_clean


async def test_a_clean_start_reads_no_record_data() -> None:
    fs = FaultyFileSystem()
    config = LogConfig(segment_bytes=1000, index_interval_bytes=150)
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    log = store.open(ORDERS, config)
    fill(log)
    await log.checkpoint(b"state")
    await store.close()
    fs.read_bytes.clear()
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    assert store.clean_start
    log = store.open(ORDERS, config)
    assert log.saved_state() == (log.end_offset, b"state")
    assert log.max_timestamp > 0
    assert log.uncheckpointed_bytes == 0
    assert [path for path in fs.read_bytes if path.endswith(".log")] == []
    assert store.repairs == []


async def test_start_after_kill_reads_only_records_behind_the_checkpoint() -> None:
    fs = FaultyFileSystem()
    config = LogConfig(segment_bytes=2000, index_interval_bytes=150)
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    log = store.open(ORDERS, config)
    fill(log, 100)
    await log.checkpoint(b"")
    size = log.size_bytes
    fill(log, 3)
    added = log.size_bytes - size
    fs.kill()
    fs.read_bytes.clear()
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    log = store.open(ORDERS, config)
    assert log.size_bytes == size + added
    assert sum(count for path, count in fs.read_bytes.items() if path.endswith(".log")) == added


async def test_a_rolled_segment_is_not_read_again_after_a_kill() -> None:
    """The roll made a checkpoint, without a request."""
    fs = FaultyFileSystem()
    config = LogConfig(segment_bytes=2000, index_interval_bytes=150)
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    log = store.open(ORDERS, config)
    fill(log, 100)
    await log.durable(log.end_offset)
    fs.kill()
    fs.read_bytes.clear()
    LocalLogStore("/data", fs, options=ON_THE_LOOP).open(ORDERS, config)
    assert len([path for path in fs.read_bytes if path.endswith(".log")]) == 1


async def test_ten_thousand_empty_logs_make_no_directories() -> None:
    fs = FaultyFileSystem()
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    for partition in range(100):
        store.open(type(ORDERS)("orders", ORDERS.topic_id, partition), LogConfig())
    assert fs.listdir("/data/logs") == []
    await store.close()
