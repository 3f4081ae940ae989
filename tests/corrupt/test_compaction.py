"""The broker's maintenance compacts a topic with an unreadable batch."""

from __future__ import annotations

from tests.corrupt.bad import KINDS, good
from tests.http_frontend.conftest import Http, http, make_http

__all__ = ["http", "make_http"]


async def test_it_keeps_the_batch_continues_and_counts_it(http: Http) -> None:
    broker = http.broker
    config = {
        "record.validation": "header",
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0",
    }
    await broker.topics.create("t", 1, config)
    for data in (good("a"), KINDS["header counts"](), good("a")):
        await broker.records.publish("t", 0, data)
    await broker.records.publish("t", 0, good("b" * 100_000))  # rolls
    await broker.records.publish("t", 0, good("c" * 100_000))
    partition = broker.parts.topic_registry.get("t").partition(0)
    kept = await partition.log.read(3, 1)
    await broker._maintenance.walk()
    assert (await partition.log.read(3, 1)).data == kept.data
    assert (await partition.log.read(0, 1)).base_offset == 3  # the first batch's keys came again
    assert broker.measures.corrupt_batches.counts["compaction", "keep"] == 1
    text = (await http.get("/metrics")).body.decode()
    assert 'sparrow_corrupt_batches_total{reader="compaction",rule="keep"} 1' in text
