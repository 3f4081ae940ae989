"""Redo records between the steps of everything else: refused, late, too old for their file, and
waits that nobody may forget.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, LogDamaged, Overloaded, StorageFailed
from sparrow.meta.store import Put
from sparrow.storage import names
from sparrow.storage.local import LocalLogStore
from sparrow.storage.local_journal import LocalJournal
from sparrow.storage.log import LocalLog
from sparrow.storage.offline import remove_batch
from sparrow.storage.options import StorageOptions
from sparrow.storage.redo import RedoLog
from sparrow.storage.store import LogConfig, LogId
from tests.conformance.log_store import ORDERS
from tests.storage.batches import NOW_MS, append, numbered, payload, read_batches
from tests.storage.test_redo import LARGE, Machine, expected, payloads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sparrow.base.errors import SparrowError

SMALL = LogConfig(segment_bytes=1000)
OTHER = LogId("other", ORDERS.topic_id, 0)
SEGMENT = f"/data/logs/{ORDERS}/{names.segment_stem(0)}{names.LOG}"


class Journal:
    """A journal that takes records and confirms them when the test says so."""

    max_record_bytes = 1 << 20
    takes_redo = True

    def __init__(self) -> None:
        self.waiting: list[Callable[[SparrowError | None], None]] = []

    def append_redo(self, record: bytes, then: Callable[[SparrowError | None], None]) -> None:
        self.waiting.append(then)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ── waits ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_wait_ends_if_a_sync_took_more_along_than_it_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StorageOptions(flush_threads=1, flush_interval_ms=0)
    store = LocalLogStore(str(tmp_path), clock=ManualClock(NOW_MS), options=options)
    log = store.open(ORDERS, LARGE)
    assert isinstance(log, LocalLog)
    append(log, numbered(0))
    await log.durable(1)
    store._resources.redo.use(Journal())
    has_begun, may_go_on = threading.Event(), threading.Event()
    sync_all = log._durability._sync_all

    def paused_sync_all() -> None:
        has_begun.set()
        may_go_on.wait(10)
        sync_all()

    monkeypatch.setattr(log._durability, "_sync_all", paused_sync_all)
    append(log, numbered(1))
    store._resources.flusher.request(log._durability)
    await asyncio.to_thread(has_begun.wait, 10)
    append(log, numbered(2))  # behind the end that the sync will report, before the sync
    may_go_on.set()
    while log._durability.unsettled[0].synced < log._durability.unsettled[0].size:
        await asyncio.sleep(0.001)
    await asyncio.wait_for(log.durable(3), 10)
    store._resources.redo._journal = None
    await store.close()


async def test_record_behind_a_refused_one_is_not_confirmed_by_the_journal() -> None:
    machine = Machine()
    log = await machine.begin()
    journal = Journal()
    machine.store._resources.redo.use(journal)
    sync, machine.fs.sync = machine.fs.sync, lambda fd: None  # type: ignore[method-assign]
    append(log, numbered(1))
    first = log.durable(2)
    await turns()
    append(log, numbered(2))
    second = log.durable(3)
    await turns()
    assert len(journal.waiting) == 2
    machine.store._resources.flusher.request = lambda _: None  # type: ignore[method-assign] # it takes its time
    journal.waiting[0](DiskFull("no checkpoint"))
    journal.waiting[1](None)
    await turns()
    assert not first.done()
    assert not second.done()  # it has a hole before it, in the file and in the journal
    machine.fs.sync = sync  # type: ignore[method-assign]


async def test_a_wait_requests_no_sync_while_the_journal_takes_the_same_bytes() -> None:
    machine = Machine()
    log = await machine.begin()
    journal = Journal()
    machine.store._resources.redo.use(journal)
    append(log, numbered(1))
    first = log.durable(2)
    await turns()
    second = log.durable(2)
    assert not log._durability._is_requested
    journal.waiting[0](DiskFull("no checkpoint"))
    await turns()
    machine.store._resources.redo._journal = None
    await asyncio.wait_for(asyncio.gather(first, second, log.durable(2)), 10)  # by the file
    assert len(journal.waiting) == 1


async def test_the_journal_closes_without_space_and_without_a_checkpoint() -> None:
    machine = Machine(journal_bytes=16 << 10)
    await machine.start()
    await machine.use_journal()
    meta = machine.states._meta
    meta.full = True  # type: ignore[attr-defined]
    waits = [machine.states.append([Put("page", "large", bytes(3000))]) for _ in range(12)]
    await turns(50)
    waits += [machine.states.append([Put("page", "large", bytes(3000))]) for _ in range(4)]
    with pytest.raises(DiskFull):
        await asyncio.wait_for(machine.states.close(), 10)
    for wait in waits:
        with suppress(DiskFull, StorageFailed):
            await asyncio.wait_for(wait, 10)
    assert any(wait.exception() is not None for wait in waits)


async def test_nothing_is_appended_to_a_closed_journal() -> None:
    machine = Machine()
    log = await machine.begin()
    await machine.states.close()
    append(log, numbered(1))
    await asyncio.wait_for(log.durable(2), 10)
    with pytest.raises(StorageFailed, match="closed"):
        await machine.states.append([Put("page", "any", b"2")])


async def test_no_checkpoint_comes_after_the_last_one() -> None:
    machine = Machine()
    await machine.begin()
    await machine.states.close()
    last = machine.entries["journal", "queues"]
    machine.states._save_soon()
    await turns(50)
    assert machine.entries["journal", "queues"] == last


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────


class FilesOfLog:
    """A log whose files are synced, or not, as the test says."""

    def __init__(self) -> None:
        self.is_closed = False
        self.error: StorageFailed | Overloaded | None = None
        self.asked = 0

    def files_synced(self, *, even_if_failed: bool = False) -> asyncio.Future[None]:
        assert even_if_failed
        self.asked += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.error is None:
            future.set_result(None)
        else:
            future.set_exception(type(self.error)(self.error.text))
        return future


async def test_every_log_whose_sync_failed_is_asked_again() -> None:
    redo, logs = RedoLog(), [FilesOfLog() for _ in range(3)]
    redo.use(Journal())
    for log in logs:
        redo.append(log, ORDERS, 0, 0, b"bytes", then=lambda _: None)
    logs[0].error, logs[1].error = Overloaded("no descriptor"), StorageFailed("EIO")
    with pytest.raises(Overloaded):
        await redo.settle()
    logs[0].error = None
    with pytest.raises(StorageFailed):
        await redo.settle()
    logs[1].is_closed = True  # it is deleted
    redo.forget(logs[1])
    await redo.settle()
    assert [log.asked for log in logs] == [2, 2, 1]


async def test_a_log_that_a_write_error_failed_does_not_hold_up_checkpoints() -> None:
    machine = Machine()
    log = await machine.begin()
    append(log, numbered(1))
    await log.durable(2)
    machine.fs.write_errors = 1.0
    with pytest.raises(StorageFailed):
        append(log, numbered(2))
    machine.fs.write_errors = 0.0
    before = machine.entries["journal", "queues"]
    await machine.states._save()
    assert machine.entries["journal", "queues"] != before
    machine.fs.crash()
    await machine.start()
    assert payloads(await read_batches(machine.open())) == expected(0, 1)


# ── files that do not fit ─────────────────────────────────────────────────────────────────────────


async def machine_with_checkpoint() -> tuple[Machine, int]:
    """Return a stopped machine whose journal has bytes behind a log's checkpoint, and the position
    of that.
    """
    machine = Machine()
    log = await machine.begin()
    for number in range(1, 6):
        append(log, numbered(number))
    await log.durable(6)
    await log.checkpoint(b"")
    position = log._row.active.size
    await machine.states._save()
    append(log, numbered(6))
    await log.durable(7)
    assert log._row.active.synced == position
    machine.fs.crash()
    return machine, position


async def test_a_file_that_lost_its_end_is_not_filled_with_a_hole() -> None:
    machine, position = await machine_with_checkpoint()
    machine.fs.lose_end(SEGMENT, position - 150)
    await machine.start()
    assert machine.fs.size(SEGMENT) == position - 150
    with pytest.raises(LogDamaged):
        machine.open()


async def test_bytes_behind_the_end_of_a_file_are_not_written() -> None:
    machine, _ = await machine_with_checkpoint()
    machine.fs.lose_end(SEGMENT, 40)
    for path in (f"/data/logs/{ORDERS}/{names.CHECKPOINT_FILE}", f"/data/logs/{names.POINTS_FILE}"):
        machine.fs.lose(path)  # an older copy of all logs
    await machine.start()
    assert machine.fs.size(SEGMENT) == 40
    assert machine.open().end_offset == 0


async def test_a_log_that_cannot_be_read_closes_its_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    log = await machine.begin()
    other = machine.open(OTHER)
    for each in (log, other):
        append(each, numbered(1))
        await each.durable(each.end_offset)
        append(each, numbered(2))
        await each.durable(each.end_offset)
    machine.fs.crash()
    opened = machine.fs.open
    metadata = f"/data/logs/{ORDERS}/{names.METADATA_FILE}"

    def refuse(path: str, *, write: bool = False, create: bool = False) -> int:
        if path == metadata:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, write=write, create=create)

    monkeypatch.setattr(machine.fs, "open", refuse)
    await machine.start()
    with pytest.raises(LogDamaged):
        machine.open()
    assert payloads(await read_batches(machine.open(OTHER))) == expected(1, 2)


async def test_a_write_error_during_the_replay_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, _ = await machine_with_checkpoint()
    opened = machine.fs.open

    def refuse(path: str, *, write: bool = False, create: bool = False) -> int:
        if path == SEGMENT and write:
            raise OSError(5, "Input/output error", path)
        return opened(path, write=write, create=create)

    monkeypatch.setattr(machine.fs, "open", refuse)
    with pytest.raises(StorageFailed, match="replaying the journal"):
        await machine.start()
    monkeypatch.setattr(machine.fs, "open", opened)
    machine.fs.kill()
    await machine.start()
    assert payloads(await read_batches(machine.open())) == expected(*range(7))


async def test_offline_removal_of_a_batch_keeps_the_records_of_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sparrow.broker.queues.persistence.state_store import decode_mark

    for seed in range(10):
        machine = Machine(seed)
        log = await machine.begin()
        for number in range(1, 5):
            append(log, numbered(number))
            await log.durable(log.end_offset)
        machine.fs.crash()
        monkeypatch.setattr(
            "sparrow.storage.offline.LocalLogStore",
            lambda path, fs=machine.fs: LocalLogStore(
                path, fs, options=StorageOptions(flush_threads=0, worker_threads=0)
            ),
        )
        mark = decode_mark(machine.entries["journal", "queues"])
        await remove_batch("/data", "orders", 0, 1, force=True, journal_mark=mark)
        machine.fs.crash()
        await machine.start()
        found = await read_batches(machine.open())
        assert len(found) == 5
        assert payload(found[4]) == expected(4)[0]


async def test_records_are_short_enough_for_a_small_journal() -> None:
    machine = Machine(journal_bytes=16 << 10)
    log = await machine.begin()
    journal = machine.states._journal
    assert isinstance(journal, LocalJournal)
    for number in range(1, 30):
        append(log, numbered(number, 1, 100 * number))
        await log.durable(log.end_offset)
        assert machine.fs.size("/data/journal/0") == machine.fs.size("/data/journal/1") == 16 << 10
    machine.fs.crash()
    await machine.start()
    assert machine.open().end_offset == 30
