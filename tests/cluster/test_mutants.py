"""The judges of these tests are sharp: broken rules are caught.

Each mutant is a mistake that an implementation may have, and a history in which it does harm.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import LogDamaged, SparrowError
from sparrow.cluster import collect
from sparrow.cluster.committer import ShardCommitter, object_key
from sparrow.cluster.errors import NotOwner, OutcomeUnknown
from sparrow.cluster.ledger import Commit
from sparrow.cluster.ledger_model import LedgerFaults, LedgerState, MemoryLedger
from sparrow.cluster.log import ObjectLog
from sparrow.cluster.objects_model import MemoryObjects
from sparrow.storage.store import LogConfig
from tests.cluster.shards import ShardBench
from tests.cluster.test_committer import calm, check
from tests.conformance.ledger import joined, taken
from tests.conformance.log_store import ORDERS
from tests.storage.batches import kept, numbered

History = Callable[[], Awaitable[None]]


async def two_owners() -> None:
    """An owner that does not know that it lost the shard goes on to publish."""
    bench = ShardBench()
    old, new = bench.open(), None
    log = old.logs.open(ORDERS, LogConfig())
    acknowledged = {0: (await kept(log, numbered(0))).base_offset}
    new = bench.open()
    again = new.logs.open(ORDERS, LogConfig())
    for number in (1, 2):
        for each, owner in ((log, number), (again, number + 10)):
            try:
                acknowledged[owner] = (await kept(each, numbered(owner))).base_offset
            except SparrowError:
                continue
    for shard in (old, new):
        await shard.abandon(NotOwner("the history ends"))
    judge = bench.open()
    try:
        await check(judge.logs.open(ORDERS, LogConfig()), acknowledged)
    finally:
        await judge.abandon(NotOwner("the history ends"))


async def lost_responses() -> None:
    """Answers of the ledger are lost; the owner is killed now and then."""
    bench = ShardBench(LedgerFaults(3, lost_requests=0.2, lost_responses=0.2))
    acknowledged: dict[int, int] = {}
    for start in range(0, 60, 20):
        shard = bench.open()
        log = shard.logs.open(ORDERS, LogConfig())
        for number in range(start, start + 20):
            try:
                acknowledged[number] = (await kept(log, numbered(number))).base_offset
            except SparrowError:
                break
        await shard.abandon(NotOwner("it was killed"))
    shard = bench.open()
    try:
        await calm(bench, check(shard.logs.open(ORDERS, LogConfig()), acknowledged))
    finally:
        await shard.abandon(NotOwner("the history ends"))


async def reader_at_the_end() -> None:
    """A reader reads at the end while commits fail."""
    bench = ShardBench()
    shard = bench.open()
    log = shard.logs.open(ORDERS, LogConfig())
    await kept(log, numbered(0))
    bench.ledger.with_faults(disk_full=1.0)
    failing = log.append([numbered(1)])
    seen = log.end_offset
    while not failing.done():
        seen = max(seen, log.end_offset)
        await asyncio.sleep(0)
    assert failing.exception() is not None
    await shard.abandon(NotOwner("the history ends"))
    assert seen == 1, "a reader saw what was never kept"


async def stalled_writer() -> None:
    """An upload succeeds, and its commit comes after the collector has looked."""
    clock = ManualClock()
    state, objects = LedgerState(clock), MemoryObjects()
    ledger = MemoryLedger(state)
    epoch = (await taken(ledger, await joined(ledger))).epoch
    at_ms = clock.wall_ms()
    key = object_key("w", at_ms)
    await objects.put(key, [b"data"])
    clock.advance(60)
    await collect.collect_orphans(ledger, objects)
    committed = await ledger.commit(0, epoch, Commit(1, 0, b"m", None, key, at_ms))
    assert not committed or key in objects.content, "a commit names an object that was deleted"


HISTORIES: list[History] = [two_owners, lost_responses, reader_at_the_end, stalled_writer]


@pytest.mark.parametrize("history", HISTORIES)
async def test_the_rules_as_they_are_pass(history: History) -> None:
    await history()


async def test_a_commit_without_the_check_of_the_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryLedger.commit

    async def unchecked(self: MemoryLedger, shard: int, _: int, what: Commit) -> bool:
        row = self.state.shards[shard]
        return await commit(self, shard, row.epoch, dataclasses.replace(what, seq=row.seq + 1))

    monkeypatch.setattr(MemoryLedger, "commit", unchecked)
    with pytest.raises((AssertionError, LogDamaged)):
        await two_owners()


@pytest.mark.parametrize("guess", ["it happened", "it did not happen"])
async def test_a_guess_on_a_lost_answer_is_caught(guess: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(self: ShardCommitter, commit: Commit) -> None:
        while True:
            try:
                if await self._ledger.commit(0, self.epoch, commit):
                    return
                raise self.lose(NotOwner("it is fenced"))
            except OutcomeUnknown:
                taken = await self._retake()
                self.epoch = taken.epoch
                if guess == "it happened":
                    return
                commit = dataclasses.replace(commit, seq=taken.seq + 1)

    monkeypatch.setattr(ShardCommitter, "_send", send)
    with pytest.raises((AssertionError, LogDamaged)):
        await lost_responses()


async def test_readers_that_are_woken_before_the_commit_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    append = ObjectLog.append

    def early(self: ObjectLog, *arguments: object, **options: object) -> object:
        promised = append(self, *arguments, **options)  # type: ignore[arg-type]
        self.content.end = self.content.next
        return promised

    monkeypatch.setattr(ObjectLog, "append", early)
    with pytest.raises(AssertionError):
        await reader_at_the_end()


async def test_a_collection_without_the_check_of_the_age_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "ORPHAN_MS", -collect.DEAD_MS)
    with pytest.raises(AssertionError):
        await stalled_writer()
