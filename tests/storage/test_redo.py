"""The newest bytes of logs are on stable storage in the journal, before their file is synced."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import InternalError, SparrowError
from sparrow.broker.queues.persistence.state_store import StateStore
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from sparrow.storage import redo
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.log import LocalLog
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig, LogId
from tests.conformance.log_store import ORDERS
from tests.repetitions import repetitions
from tests.storage.batches import NOW_MS, append, numbered, payload, read_batches
from tests.storage.test_seeded_faults import CONFIG, Story

if TYPE_CHECKING:
    from sparrow.meta.store import Entry

LARGE = LogConfig(segment_bytes=1 << 20)


class Machine:
    """A log store and a state store with its journal, on a file system that can lose power."""

    def __init__(self, seed: int = 0, journal_bytes: int = 64 << 10) -> None:
        self.fs = FaultyFileSystem(seed)
        self.entries: dict[tuple[str, str], Entry] = {}
        self._options = StorageOptions(
            flush_threads=0, worker_threads=0, flush_interval_ms=0, journal_file_bytes=journal_bytes
        )
        self._opened = 0

    async def start(self) -> None:
        """Start the stores, after a crash as well."""
        self._opened += 1
        clock = ManualClock(NOW_MS + self._opened)
        self.store = LocalLogStore("/data", self.fs, clock, self._options)
        self.states = await StateStore.open(MemoryMetaStore(self.entries), self.store)

    async def use_journal(self) -> None:
        await self.states.append([Put("page", "any", b"1")])

    def open(self, log_id: LogId = ORDERS, config: LogConfig = LARGE) -> LocalLog:
        log = self.store.open(log_id, config)
        assert isinstance(log, LocalLog)
        return log

    async def begin(self, log_id: LogId = ORDERS, config: LogConfig = LARGE) -> LocalLog:
        """Start, and make a log whose first batch is in its file."""
        await self.start()
        await self.use_journal()
        log = self.open(log_id, config)
        append(log, numbered(0))
        await log.durable(1)
        return log


def payloads(batches: list[bytes]) -> list[bytes]:
    return [payload(each) for each in batches]


def expected(*numbers: int) -> list[bytes]:
    return [payload(bytes(numbered(number)[1])) for number in numbers]


async def test_a_record_and_a_lease_share_one_sync() -> None:
    machine = Machine()
    log = await machine.begin()
    for number in range(1, 20):
        before = machine.fs.syncs
        append(log, numbered(number))
        lease = machine.states.append([Put("page", "lease", b"%d" % number)])
        await asyncio.gather(log.durable(log.end_offset), lease)
        assert machine.fs.syncs - before == 1 or number <= 3  # the first frames begin a checkpoint
    machine.fs.crash()
    await machine.start()
    assert payloads(await read_batches(machine.open())) == expected(*range(20))
    entry = await machine.states.get("page", "lease")
    assert entry is not None
    assert entry.value == b"19"


async def test_a_large_append_is_synced_in_its_file() -> None:
    machine = Machine()
    log = await machine.begin()
    append(log, numbered(1, 10, 4000))
    await log.durable(log.end_offset)
    machine.fs.crash()
    machine.entries.clear()  # without the mark nothing of the journal is replayed
    await machine.start()
    assert machine.open().end_offset == 11


async def test_without_queues_there_is_no_journal() -> None:
    machine = Machine()
    await machine.start()
    log = machine.open()
    for number in range(3):
        append(log, numbered(number))
        await log.durable(log.end_offset)
    assert machine.fs.size("/data/journal/0") is None
    machine.fs.crash()
    await machine.start()
    assert payloads(await read_batches(machine.open())) == expected(*range(3))


async def test_a_checkpoint_syncs_the_files_before_the_journal_forgets_their_bytes() -> None:
    machine = Machine(journal_bytes=16 << 10)
    log = await machine.begin()
    for number in range(1, 300):  # the journal is used several times over
        append(log, numbered(number))
        await log.durable(log.end_offset)
    machine.fs.crash()
    await machine.start()
    assert payloads(await read_batches(machine.open())) == expected(*range(300))


async def test_a_failed_journal_leaves_the_sync_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    log = await machine.begin()
    synced = machine.fs.write_synced

    def fail(fd: int, data: memoryview, position: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(machine.fs, "write_synced", fail)
    append(log, numbered(1))
    await log.durable(2)
    monkeypatch.setattr(machine.fs, "write_synced", synced)
    append(log, numbered(2))
    await log.durable(3)
    machine.fs.crash()
    await machine.start()
    assert payloads(await read_batches(machine.open())) == expected(0, 1, 2)


async def test_a_new_topic_of_the_same_name_gets_nothing_of_the_old_one() -> None:
    machine = Machine()
    log = await machine.begin()
    append(log, numbered(1))
    await log.durable(2)
    await machine.store.delete(log)
    other = LogId("orders", uuid.UUID(int=7), 0)
    log = machine.open(other)
    append(log, numbered(5))
    await log.durable(1)
    machine.fs.crash()
    await machine.start()
    assert payloads(await read_batches(machine.open(other))) == expected(5)


async def test_a_replay_brings_nothing_back_that_a_compaction_removed() -> None:
    from tests.storage.batches import keyed

    config = LogConfig(segment_bytes=400, compact=True, delete=False, min_cleanable_dirty_ratio=0)
    machine = Machine(journal_bytes=256 << 10)
    log = await machine.begin(config=config)
    for number in range(40):
        append(log, keyed([(b"k", b"%d" % number * 10)]))
        await log.durable(log.end_offset)
    await log.compact(NOW_MS)
    before = [bytes(each) for each in await read_batches(log)]
    machine.fs.crash()
    await machine.start()
    assert [bytes(each) for each in await read_batches(machine.open(config=config))] == before
    assert len(before) < 15


async def test_the_journal_must_be_opened_before_the_logs() -> None:
    machine = Machine()
    await machine.start()
    machine.open()
    with pytest.raises(InternalError, match="before the first log"):
        machine.store.open_journal(None)


class JournalStory(Story):
    """One log's life beside a journal in use."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, FaultyFileSystem(seed, short_writes=0.1, would_block=0.2))
        self.machine = Machine(seed, journal_bytes=16 << 10)
        self.machine.fs = self.fs

    async def reopened(self) -> LocalLog:
        await self.machine.start()
        return self.machine.open(config=CONFIG)

    async def live(self, log: LocalLog) -> None:
        for _ in range(self.rng.randint(0, 60)):
            await self.step(log)
            if self.rng.random() < 0.3:
                await self.machine.states.append([Put("page", "any", b"%d" % self.number)])
            if self.rng.random() < 0.4:
                end = log.end_offset
                await log.durable(end)
                self.durable = max(self.durable, end)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(8))
async def test_durable_records_survive_power_failures(group: int) -> None:
    for seed in range(group * 25, group * 25 + repetitions(25)):
        story = JournalStory(seed)
        for _ in range(4):
            log = await story.reopened()
            if story.rng.random() < 0.5:
                story.fs.calls_left = story.rng.randrange(300)
            is_cut_short = True
            with suppress(SparrowError):
                await story.machine.use_journal()
                await story.live(log)
                is_cut_short = False
            story.fs.calls_left = None
            story.fs.crash()
            log = await story.reopened()
            if is_cut_short:  # retention may have got as far as the disk
                story.start = max(story.start, log.start_offset)
            await story.check(log, story.durable)
            story.fs.crash()  # replayed twice, and nothing was synced meanwhile
            await story.check(await story.reopened(), story.durable)
            story.fs.kill()


def test_the_bytes_of_a_redo_record() -> None:
    data = redo.encode(LogId("t", uuid.UUID(bytes=b"0123456789abcdef"), 3), 128, 5, b"xyz")
    assert data == b"\x01\x96\xa1t\xc4\x100123456789abcdef\x03\xcc\x80\x05\xc4\x03xyz"
    assert redo.is_redo(memoryview(data))
    assert not redo.is_redo(memoryview(b"\x93\xa1k"))
