"""The stores of a shard keep the contracts of the broker's stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparrow.cluster.ledger_model import LedgerFaults
from sparrow.cluster.manifest import decode_manifest
from sparrow.cluster.objects_model import ObjectFaults
from tests.cluster.shards import ALL_OBJECTS, ShardBench
from tests.conformance.journal import JournalConformance
from tests.conformance.log_store import LogStoreConformance
from tests.conformance.meta_store import MetaStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.meta.store import MetaStore
    from sparrow.storage.journal import Journal
    from sparrow.storage.store import LogId, LogStore
    from tests.conformance.journal import OpenJournal

LOSSY = LedgerFaults(seed=5, lost_requests=0.1, lost_responses=0.1)
"""Commits whose outcome is unknown."""
SHAKY = ObjectFaults(seed=6, failed=0.1, stored_but_error=0.1)


def lose_end(bench: ShardBench, log_id: LogId) -> None:
    """Remove the last commit that has batches of a log."""
    entry = next(state.entry for each, state in _states(bench).items() if each == log_id)
    rows = bench.state.shards[0].wal
    seq = max(
        seq
        for seq, (row, _) in rows.items()
        if any(run.log == entry.number for run in decode_manifest(row.manifest).runs)
    )
    del rows[seq]


def _states(bench: ShardBench):  # type: ignore[no-untyped-def]  # of a module that only tests look into
    from sparrow.cluster.ledger import ShardContent
    from sparrow.cluster.loaded_logs import load_logs

    shard = bench.state.shards[0]
    return load_logs(
        ShardContent([row for row, _ in shard.wal.values()], list(shard.entries.values()))
    ).states


class ShardLogs(LogStoreConformance):
    """The suite over a bench."""

    @pytest.fixture
    def bench(self) -> ShardBench:
        raise NotImplementedError

    @pytest.fixture
    def open_store(self, bench: ShardBench) -> Callable[[], LogStore]:
        def open_store() -> LogStore:
            shard = bench.open()
            shard._open_stores = 1
            return shard.logs

        return open_store

    @pytest.fixture
    def lose_end(self, bench: ShardBench) -> Callable[[LogId], None]:
        return lambda log_id: lose_end(bench, log_id)


class TestLogsInTheLedger(ShardLogs):
    @pytest.fixture
    def bench(self) -> ShardBench:
        return ShardBench()


class TestLogsInObjects(ShardLogs):
    @pytest.fixture
    def bench(self) -> ShardBench:
        return ShardBench(options=ALL_OBJECTS)


class TestLogsOverLossyEnginesWithoutACache(ShardLogs):
    @pytest.fixture
    def bench(self) -> ShardBench:
        return ShardBench(LOSSY, options=ALL_OBJECTS, cache_bytes=1)


class TestEntriesInTheLedger(MetaStoreConformance):
    @pytest.fixture
    def open_store(self) -> Callable[[], MetaStore]:
        bench = ShardBench()
        return lambda: open_meta(bench)

    @pytest.fixture
    def open_new(self) -> Callable[[], MetaStore]:
        return lambda: open_meta(ShardBench())


class TestEntriesOverALossyLedger(MetaStoreConformance):
    @pytest.fixture
    def open_store(self) -> Callable[[], MetaStore]:
        bench = ShardBench(LOSSY)
        return lambda: open_meta(bench)

    @pytest.fixture
    def open_new(self) -> Callable[[], MetaStore]:
        return lambda: open_meta(ShardBench(LOSSY))


def open_meta(bench: ShardBench) -> MetaStore:
    shard = bench.open()
    shard._open_stores = 1
    return shard.meta


class TestJournalInTheLedger(JournalConformance):
    @pytest.fixture
    def open_journal(self) -> Iterator[OpenJournal]:
        bench = ShardBench(LOSSY)

        def open_journal(mark: bytes | None) -> Journal:
            shard = bench.open()
            journal = shard.logs.open_journal(mark)
            close = journal.close

            async def close_all() -> None:
                await close()
                await shard.close()

            journal.close = close_all  # type: ignore[method-assign]
            return journal

        return open_journal
