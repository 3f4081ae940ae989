"""Group commit: waiting calls are served by as few syncs as possible, and fail when one fails."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import InternalError, SparrowError, StorageFailed
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.flusher import Flusher
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig, LogId
from tests.conformance.log_store import ORDERS
from tests.storage.batches import append, numbered

if TYPE_CHECKING:
    from pathlib import Path


class SlowLog:
    """A log whose sync waits until it is released."""

    def __init__(self) -> None:
        self.end = self.rounds = self.settled = 0
        self.durable = -1
        self.error: SparrowError | None = None
        self.raises: Exception | None = None
        self.go = threading.Event()
        self.begun = threading.Event()
        self.heard = asyncio.Event()

    def sync(self) -> int:
        target = self.end
        self.rounds += 1
        self.begun.set()
        assert self.go.wait(10)
        if self.raises is not None:
            raise self.raises
        return target

    def synced(self, durable_offset: int, error: SparrowError | None) -> None:
        self.durable, self.error = durable_offset, error
        self.heard.set()

    def after_sync(self) -> None:
        self.settled += 1


async def test_requests_during_a_sync_share_the_next_one() -> None:
    flusher, log = Flusher(2, 0), SlowLog()
    log.end = 1
    flusher.request(log)
    await asyncio.to_thread(log.begun.wait)
    for end in range(2, 100):
        log.end = end
        flusher.request(log)
    log.go.set()
    while log.durable < 99:
        await log.heard.wait()
        log.heard.clear()
    flusher.close()
    assert (log.rounds, log.settled) == (2, 2)


async def test_several_logs_are_synced_at_the_same_time() -> None:
    flusher, logs = Flusher(3, 0), [SlowLog() for _ in range(3)]
    for log in logs:
        flusher.request(log)
    for log in logs:
        assert await asyncio.to_thread(log.begun.wait, 10)
        log.go.set()
    for log in logs:
        await log.heard.wait()
    flusher.close()


@pytest.mark.parametrize("error", [StorageFailed("broken"), ZeroDivisionError("a bug")])
async def test_a_failure_is_heard_and_the_thread_lives_on(error: Exception) -> None:
    flusher, log = Flusher(1, 0), SlowLog()
    log.go.set()
    log.raises = error
    flusher.request(log)
    await log.heard.wait()
    assert isinstance(log.error, StorageFailed if isinstance(error, StorageFailed) else InternalError)
    log.raises, log.heard = None, asyncio.Event()
    flusher.request(log)
    await log.heard.wait()
    flusher.close()
    assert (log.error, log.settled) == (None, 1)


async def test_bug_in_a_callback_of_a_sync_does_not_end_the_thread() -> None:
    class Buggy(SlowLog):
        def after_sync(self) -> None:
            super().after_sync()
            raise ZeroDivisionError

    flusher, log = Flusher(1, 0), Buggy()
    log.go.set()
    for _ in range(3):
        log.heard = asyncio.Event()
        flusher.request(log)
        await log.heard.wait()
    flusher.close()
    assert log.settled >= 2


async def test_many_waiters_cost_few_syncs() -> None:
    fs = FaultyFileSystem()
    store = LocalLogStore("/data", fs)
    log = store.open(ORDERS, LogConfig())
    append(log, numbered(0))
    await log.durable(1)
    before = fs.syncs
    for number in range(500):
        append(log, numbered(number))
    await asyncio.gather(*(log.durable(offset) for offset in range(1, log.end_offset + 1)))
    assert fs.syncs - before <= 2
    await store.close()


async def test_a_cancelled_waiter_harms_no_other(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    log = store.open(ORDERS, LogConfig())
    append(log, numbered(0))
    gone, stays = log.durable(1), log.durable(1)
    gone.cancel()
    await stays
    await store.close()


async def test_logs_without_requested_syncs_are_synced_in_the_background(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path), options=StorageOptions(flush_interval_ms=1))
    logs = [store.open(LogId("orders", ORDERS.topic_id, partition), LogConfig()) for partition in range(20)]
    for log in logs:
        append(log, numbered(0))
    async with asyncio.timeout(10):
        while any(log.durable_offset < 1 for log in logs):
            await asyncio.sleep(0)
    await store.close()


async def test_one_failing_log_leaves_the_others_alone() -> None:
    fs = FaultyFileSystem()
    store = LocalLogStore("/data", fs)
    bad = store.open(ORDERS, LogConfig())
    good = store.open(LogId("orders", ORDERS.topic_id, 1), LogConfig())
    append(bad, numbered(0))
    append(good, numbered(0))
    fs.sync_errors = 1.0
    waiting = [bad.durable(1), bad.durable(1)]
    for each in waiting:
        with pytest.raises(StorageFailed, match=r"syncing|using"):
            await each
    failures: list[SparrowError | None] = []
    bad.when_durable(1, failures.append)
    assert isinstance(failures.pop(), StorageFailed)
    fs.sync_errors = 0.0
    await good.durable(1)
    with pytest.raises(StorageFailed):
        append(bad, numbered(1))
    assert (await bad.read(0, 1000)).records == 1
    with pytest.raises(StorageFailed):
        await store.close()
    again = LocalLogStore("/data", fs)
    assert not again.clean_start
    await again.close()
