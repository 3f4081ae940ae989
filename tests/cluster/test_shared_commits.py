"""A whole broker over a shard: writes of several kinds that wait together cost one commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.cluster.ledger import Commit
from tests.cluster.shards import ShardBench
from tests.queues.work import Work, ack, records, take

NEVER_MS = 1 << 40
QUIET = BrokerConfig(tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS, default_partitions=1)


class Site(Work):
    """A broker over a shard of the models, whose commits can be held back."""

    def __init__(self) -> None:
        super().__init__("", ManualClock(), QUIET)
        self.bench = ShardBench()
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    async def start(self) -> None:
        shard = self.bench.open()
        self.broker = Broker(config=QUIET, clock=self.clock, log_store=shard.logs, meta_store=shard.meta)
        await self.broker.start()
        commit = self.bench.ledger.commit

        async def held(number: int, epoch: int, what: Commit) -> bool:
            await self.may_commit.wait()
            return await commit(number, epoch, what)

        self.bench.ledger.commit = held  # type: ignore[method-assign]

    @property
    def commits(self) -> int:
        return self.bench.ledger.commits

    async def commits_of(self, *writes: Coroutine[Any, Any, object]) -> int:
        """Let writes wait behind a commit that is under way; return the commits that they cost."""
        self.may_commit.clear()
        first = asyncio.ensure_future(self.publish("other", [b"first"]))
        await turns()
        waiting = [asyncio.ensure_future(each) for each in writes]
        await turns()
        assert not any(each.done() for each in (first, *waiting)), "nothing is confirmed before its commit"
        before = self.commits
        self.may_commit.set()
        await asyncio.gather(first, *waiting)
        return self.commits - before - 1


async def turns(count: int = 200) -> None:
    """Let everything go on that waits for nothing."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.start()
    for topic in ("orders", "other"):
        await site.broker.topics.create(topic, 1)
    yield site
    await site.stop()


async def test_a_publish_a_lease_an_acknowledgement_and_an_offset_cost_one_commit(site: Site) -> None:
    await site.create("jobs")
    consumer = await site.consumer("jobs")
    await site.publish("jobs", [b"1", b"2"])
    (first,) = await take(consumer, 1)
    leased: list[bytes | None] = []

    async def lease() -> None:
        leased.extend(each.value for each in records(await consumer.lease(1, wait_ms=500)))

    cost = await site.commits_of(
        site.broker.groups.commit_offsets("readers", {("orders", 0): (0, "")}),
        lease(),
        site.publish("orders", [b"a"]),
        ack(consumer, [first]),
    )
    assert leased == [b"2"]
    assert cost == 1


async def test_publishes_to_many_partitions_cost_one_commit(site: Site) -> None:
    await site.broker.topics.create("wide", 20)
    cost = await site.commits_of(*(site.publish("wide", [b"a"], partition=each) for each in range(20)))
    assert cost == 1
