"""The conformance suite, over local files and over the faulty file system without faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.conformance.log_store import LogStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sparrow.storage.store import LogStore

ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0, flush_interval_ms=0)


class TestLocalFiles(LogStoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], LogStore]:
        return lambda: LocalLogStore(str(tmp_path / "data"))


class TestFaultyFilesWithoutFaults(LogStoreConformance):
    @pytest.fixture
    def open_store(self) -> Callable[[], LogStore]:
        fs = FaultyFileSystem(seed=1)
        return lambda: LocalLogStore("/data", fs, options=ON_THE_LOOP)


class TestFilesThatNeverAnswerAtOnce(LogStoreConformance):
    """Short writes, and every read has to go to a thread."""

    @pytest.fixture
    def open_store(self) -> Callable[[], LogStore]:
        fs = FaultyFileSystem(seed=2, short_writes=0.3, would_block=1.0)
        return lambda: LocalLogStore("/data", fs)
