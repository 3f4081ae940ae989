"""Where the epochs of a log begin and end, over its owners."""

from __future__ import annotations

import pytest

from sparrow.base.errors import DiskFull
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.producers import TransactionEnd
from sparrow.cluster.ledger_model import LedgerFaults
from sparrow.records.batch import parse_header, split
from sparrow.records.builder import build_batch
from sparrow.records.control import maybe_parse_marker
from sparrow.storage.epochs import UNKNOWN, end_of_epoch
from sparrow.storage.store import LogConfig
from tests.cluster.shards import ShardBench
from tests.conformance.log_store import ORDERS
from tests.storage.batches import kept, numbered, read_batches


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


async def test_markers_have_the_epoch_of_the_owner_that_ended_the_transaction() -> None:
    bench = ShardBench()
    epochs, found = [], []
    for sequence in range(3):
        shard = bench.open()
        broker = Broker(config=BrokerConfig(), log_store=shard.logs, meta_store=shard.meta)
        await broker.start()
        if not sequence:
            await broker.topics.create("orders", 1)
        epochs.append(broker.leader_epoch)
        partition = broker.topics.partition("orders", 0)
        await partition.opened()
        known = [each.coordinator_epoch for each in partition.producers()]
        assert known == epochs[:-1][-1:], "the epoch of the last marker is read back from the manifests"
        data = build_batch(
            [b"v"], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        await partition.publish(data, -1, lambda *_: None)
        await partition.end_transactions([TransactionEnd(7, 0, commit=True)])
        assert [each.coordinator_epoch for each in partition.producers()] == epochs[-1:]
        log = partition.log
        batches = [data for each in await read_batches(log) for _, data in split(each)]
        found = [
            marker.coordinator_epoch
            for each in batches
            if parse_header(each).is_control and (marker := maybe_parse_marker(each)) is not None
        ]
        await broker.close()
    assert found == epochs
    assert len(set(epochs)) == 3
