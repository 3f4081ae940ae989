"""The conformance suite, over local files and over the faulty file system without faults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.conformance.log_store import LogStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sparrow.storage.store import LogId, LogStore

ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0, flush_interval_ms=0)


class TestLocalFiles(LogStoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], LogStore]:
        return lambda: LocalLogStore(str(tmp_path / "data"))

    @pytest.fixture
    def lose_end(self, tmp_path: Path) -> Callable[[LogId], None]:
        def lose(log_id: LogId) -> None:
            last = max((tmp_path / f"data/logs/{log_id}").glob("*.log"))
            os.truncate(last, last.stat().st_size - 1)

        return lose


class TestFaultyFilesWithoutFaults(LogStoreConformance):
    @pytest.fixture
    def fs(self) -> FaultyFileSystem:
        return FaultyFileSystem(seed=1)

    @pytest.fixture
    def open_store(self, fs: FaultyFileSystem) -> Callable[[], LogStore]:
        return lambda: LocalLogStore("/data", fs, options=ON_THE_LOOP)

    @pytest.fixture
    def lose_end(self, fs: FaultyFileSystem) -> Callable[[LogId], None]:
        def lose(log_id: LogId) -> None:
            last = max(path for path in fs.paths() if f"/{log_id}/" in path and path.endswith(".log"))
            fs.lose_end(last, (fs.size(last) or 0) - 1)

        return lose


class TestFilesThatNeverAnswerAtOnce(LogStoreConformance):
    """Short writes, and every read has to use a thread."""

    @pytest.fixture
    def fs(self) -> FaultyFileSystem:
        return FaultyFileSystem(seed=2, short_writes=0.3, would_block=1.0)

    @pytest.fixture
    def open_store(self, fs: FaultyFileSystem) -> Callable[[], LogStore]:
        return lambda: LocalLogStore("/data", fs)

    @pytest.fixture
    def lose_end(self, fs: FaultyFileSystem) -> Callable[[LogId], None]:
        return lambda log_id: fs.lose(f"/data/logs/{log_id}")
