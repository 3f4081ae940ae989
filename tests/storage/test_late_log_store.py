"""The public fake with late appends: it passes the conformance suite, and fails as the seam
allows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import SparrowError, StorageFailed
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.late import LateLogStore
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig
from tests.conformance.log_store import ORDERS, LogStoreConformance
from tests.conformance.partition import partition_conformance
from tests.repetitions import repetitions
from tests.storage.batches import numbered, payload, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.storage.store import LogId, LogStore

ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0, flush_interval_ms=0)


def late(fs: FaultyFileSystem, **faults: float) -> LateLogStore:
    seed = int(faults.pop("seed", 3))
    return LateLogStore(LocalLogStore("/data", fs, options=ON_THE_LOOP), seed=seed, **faults)


class TestLateAppends(LogStoreConformance):
    @pytest.fixture
    def fs(self) -> FaultyFileSystem:
        return FaultyFileSystem(seed=3)

    @pytest.fixture
    def lose_end(self, fs: FaultyFileSystem) -> Callable[[LogId], None]:
        return lambda log_id: fs.lose(f"/data/logs/{log_id}")

    @pytest.fixture
    def open_store(self, fs: FaultyFileSystem) -> Callable[[], LogStore]:
        return lambda: late(fs)


class TestLateAppendsAndColdReads(LogStoreConformance):
    @pytest.fixture
    def fs(self) -> FaultyFileSystem:
        return FaultyFileSystem(seed=4)

    @pytest.fixture
    def lose_end(self, fs: FaultyFileSystem) -> Callable[[LogId], None]:
        return lambda log_id: fs.lose(f"/data/logs/{log_id}")

    @pytest.fixture
    def open_store(self, fs: FaultyFileSystem) -> Callable[[], LogStore]:
        return lambda: late(fs, cold=0.5)


@settings(max_examples=repetitions(60), deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 30))
def test_an_append_that_fails_takes_all_behind_it_along_and_nothing_of_them_appears(
    seed: int, count: int
) -> None:
    async def run() -> None:
        store = late(FaultyFileSystem(seed=1), seed=seed, failing=0.2)
        log = store.open(ORDERS, LogConfig())
        first_failed: list[int] = []
        store.hold()
        promises = [log.append([numbered(number)]) for number in range(count)]
        store.release()
        kept = [number for number, each in enumerate(promises) if each.done() and each.exception() is None]
        assert all(each.done() for each in promises)
        assert kept == list(range(len(kept)))
        first_failed += [number for number in range(count) if number not in kept]
        store.failing = 0.0
        await asyncio.gather(*(log.append([numbered(number)]) for number in first_failed))
        assert [payload(each) for each in await read_batches(log)] == [
            payload(bytes(numbered(number)[1])) for number in range(count)
        ]
        await store.close()

    asyncio.run(run())


async def test_deleting_a_log_fails_pending_appends() -> None:
    store = late(FaultyFileSystem(seed=1))
    log = store.open(ORDERS, LogConfig())
    promised = log.append([numbered(0)])
    await store.delete(log)
    with pytest.raises(StorageFailed):
        await promised
    with pytest.raises(SparrowError):
        log.append([numbered(0)])
    await store.close()


TestAPartitionOverLateAppends = partition_conformance(
    lambda fs: LocalLogStore("/data", fs, options=ON_THE_LOOP),
    examples=repetitions(40, "SPARROW_PARTITION_EXAMPLES"),
)
