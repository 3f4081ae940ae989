"""Where the epochs of a log begin and end, over its owners."""

from __future__ import annotations

import pytest

from sparrow.base.errors import DiskFull
from sparrow.cluster.ledger_model import LedgerFaults
from sparrow.storage.epochs import UNKNOWN, end_of_epoch
from sparrow.storage.store import LogConfig
from tests.cluster.shards import ShardBench
from tests.conformance.log_store import ORDERS
from tests.storage.batches import kept, numbered


def test_an_epoch_ends_where_the_next_one_with_batches_begins() -> None:
    begins = [(2, 0), (5, 10), (7, 30)]
    asked = [-1, 0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    found = [end_of_epoch(begins, epoch, 9, 40) for epoch in asked]
    assert found == [
        UNKNOWN, (0, 0), (1, 0), (2, 10), (2, 10), (5, 30), (5, 30), (7, 40), (7, 40), (9, 40), UNKNOWN
    ]  # fmt: skip
    assert end_of_epoch([], 0, 0, 40) == (0, 40)
    assert end_of_epoch([], 3, 5, 40) == (3, 40), "nothing was appended by this owner"


async def test_each_owner_leaves_the_begin_of_its_epoch() -> None:
    bench = ShardBench()
    expected = []
    for count in (2, 3, 1):
        shard = bench.open()
        epoch = shard.committer.epoch
        log = shard.logs.open(ORDERS, LogConfig())
        assert log.epochs == expected
        expected.append((epoch, log.end_offset))
        for number in range(count):
            await log.append([numbered(number)], leader_epoch=epoch)
        assert log.epochs == expected
        await shard.logs.close()
        await shard.meta.close()
    assert [begin for _, begin in expected] == [0, 2, 5]


async def test_an_epoch_whose_first_batch_fails_begins_later() -> None:
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await log.append([numbered(0)], leader_epoch=1)
    bench.ledger.faults = LedgerFaults(disk_full=1.0)
    with pytest.raises(DiskFull):
        await log.append([numbered(1)], leader_epoch=2)
    assert log.epochs == [(1, 0)]
    bench.ledger.faults = LedgerFaults()
    await kept(log, numbered(1))
    await log.append([numbered(2)], leader_epoch=2)
    assert log.epochs == [(1, 0), (2, 2)]
    await shard.logs.delete(log)
    assert not [row for row in (await bench.ledger.load(0)).entries if row.kind == b"E"]
    await shard.logs.close()
    await shard.meta.close()
