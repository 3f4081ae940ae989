"""The store of queue states: entries in the journal first, then in checkpoints."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conformance.meta_store import MetaStoreConformance
from tests.queues.work import Work, ack, take

from sparrow.base.errors import ConditionFailed, DiskFull, SparrowError
from sparrow.broker.queues.persistence import state_store, state_writer
from sparrow.broker.queues.persistence.state_store import StateStore
from sparrow.broker.queues.persistence.state_writer import StateWriter
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import ABSENT, Delete, Entry, MetaStore, Put, Write
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.filesystem import LocalFileSystem
from sparrow.storage.journal import MAX_RECORD_BYTES
from sparrow.storage.local_journal import LocalJournal

_times = itertools.count(1_700_000_000_000)
SECTOR = 512


class Machine:
    """A disk with a journal, and a meta store that loses nothing."""

    def __init__(self, seed: int = 0, file_bytes: int = 64 << 10) -> None:
        self.fs = FaultyFileSystem(seed)
        self.fs.mkdir("/data")
        self.fs.sync_dir("/")
        self.entries: dict[tuple[str, str], Entry] = {}
        self.meta = MemoryMetaStore(self.entries)
        self._file_bytes = file_bytes

    async def start(self) -> StateStore:
        self.meta = MemoryMetaStore(self.entries)
        return await StateStore.open(self.meta, self)

    def open_journal(self, mark: bytes | None) -> LocalJournal:
        return LocalJournal(
            self.fs, "/data/journal", mark, next(_times), threads=0, file_bytes=self._file_bytes
        )


async def values(store: MetaStore) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in await store.scan("page")}


class WithItsMetaStore(StateStore):
    """A state store that closes the meta store below it."""

    async def close(self) -> None:
        await super().close()
        await self._meta.close()


class TestWithoutAppends(MetaStoreConformance):
    """A store to which nothing was appended is the meta store itself."""

    @pytest.fixture
    def open_store(self) -> Callable[[], MetaStore]:
        machine = Machine()
        return lambda: WithItsMetaStore(MemoryMetaStore(machine.entries), machine.open_journal(None))

    @pytest.fixture
    def open_new(self) -> Callable[[], MetaStore]:
        return lambda: WithItsMetaStore(MemoryMetaStore(), Machine().open_journal(None))


async def test_appended_entries_are_read_at_once_and_after_a_kill() -> None:
    machine = Machine()
    store = await machine.start()
    await store.append([Put("page", "a", b"1"), Put("page", "b", b"1")])
    await store.append([Put("page", "a", b"2")])
    await store.append([Delete("page", "b"), Put("page", "c", b"3")])
    expected = {"a": b"2", "c": b"3"}
    assert await values(store) == expected
    entry = await store.get("page", "a")
    assert entry is not None
    assert entry.value == b"2"
    assert await store.get("page", "b") is None
    machine.fs.crash()
    for _ in range(3):  # replayed again and again
        store = await machine.start()
        assert await values(store) == expected
    await store.close()
    assert await values(machine.meta) == expected


async def test_write_is_newer_than_earlier_appends() -> None:
    machine = Machine()
    store = await machine.start()
    await store.append([Put("page", "other", b"0")])
    await store.append([Put("page", "a", b"1")])
    await store.write([Put("page", "a", b"2"), Put("page", "new", b"3", ABSENT)])
    machine.fs.crash()
    store = await machine.start()
    assert await values(store) == {"a": b"2", "new": b"3", "other": b"0"}
    await store.append([Put("page", "a", b"4")])
    with pytest.raises(ConditionFailed):
        await store.write([Put("page", "a", b"5"), Put("page", "new", b"5", ABSENT)])
    machine.fs.crash()
    assert (await values(await machine.start()))["a"] == b"4"


async def test_a_large_batch_goes_to_the_meta_store_and_those_behind_it_wait_for_it() -> None:
    machine = Machine(file_bytes=4 << 20)
    store = await machine.start()
    await store.append([Put("page", "a", b"1")])
    large = store.append([Put("page", "a", bytes(MAX_RECORD_BYTES))])
    small = store.append([Put("page", "b", b"2")])
    assert not small.done()
    await large
    assert len(machine.entries["page", "a"].value) == MAX_RECORD_BYTES
    await small
    machine.fs.crash()
    assert (await values(await machine.start()))["b"] == b"2"


async def test_a_refused_page_does_not_come_back_over_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "RETRY_S", 0.001)
    machine = Machine()
    store = await machine.start()
    await store.append([Put("page", "first", b"")])
    write, entered, goes_on = machine.meta.write, asyncio.Event(), asyncio.Event()

    async def fail_once(writes: Sequence[Write]) -> None:
        machine.meta.write = write  # type: ignore[method-assign] # the disk has room again
        entered.set()
        await goes_on.wait()
        raise DiskFull("no room")

    machine.meta.write = fail_once  # type: ignore[method-assign,assignment]
    filling = [store.append([Put("page", "x", bytes(4000))])]
    while not store._journal._is_stuck:  # type: ignore[attr-defined]
        filling.append(store.append([Put("page", "x", bytes(4000))]))
        await asyncio.sleep(0)
    await entered.wait()
    pages: list[Write] = []
    writer = StateWriter(store, lambda: [pages.pop()] if pages else [])
    flushed: list[asyncio.Future[None]] = []
    for value in (b"old", b"new" * 10_000):  # the second is too large for the journal
        pages.append(Put("page", "p", value))
        flushed.append(writer.flushed())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(DiskFull):
        await flushed[0]
    await flushed[1]
    await asyncio.sleep(0.05)  # what was refused is tried again
    await asyncio.gather(*filling, return_exceptions=True)
    machine.fs.crash()
    assert (await values(await machine.start()))["p"] == b"new" * 10_000


async def test_a_checkpoint_that_fails_is_tried_again_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_store, "RETRY_S", 0.001)
    machine = Machine()
    store = await machine.start()
    await store.append([Put("page", "a", b"1")])
    write, tries = machine.meta.write, 0

    async def full(writes: Sequence[Write]) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise DiskFull("no room")
        await write(writes)

    machine.meta.write = full  # type: ignore[method-assign]
    for number in range(200):
        await store.append([Put("page", f"{number % 7}", b"%d" % number * 200)])
    assert tries >= 4
    expected = {f"{n % 7}": b"%d" % n * 200 for n in range(193, 200)} | {"a": b"1"}
    assert await values(store) == expected
    machine.fs.crash()
    assert await values(await machine.start()) == expected


async def test_while_no_checkpoint_finds_room_appends_fail_once_the_journal_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_store, "RETRY_S", 0.001)
    machine = Machine()
    store = await machine.start()
    await store.append([Put("page", "a", b"1")])
    machine.meta.full = True
    confirmed = 0
    with suppress(DiskFull):
        async with asyncio.timeout(10):
            for number in range(1000):
                await store.append([Put("page", "b", b"%d" % number * 200)])
                confirmed = number
    assert 100 < confirmed < 999
    machine.meta.full = False
    await store.append([Put("page", "c", b"3")])
    machine.fs.crash()
    found = await values(await machine.start())
    assert found["c"] == b"3"
    assert int(found["b"][: len(str(confirmed))]) >= confirmed


@pytest.mark.parametrize("seed", range(40))
async def test_after_power_failures_the_state_is_that_of_a_prefix_with_all_confirmed_batches(
    seed: int,
) -> None:
    dice = random.Random(seed)
    machine = Machine(seed)
    history: list[dict[str, bytes]] = [{}]
    confirmed = 0
    for _ in range(6):
        machine.fs.calls_left = None
        store = await machine.start()
        found = await values(store)
        reached = max(index for index, state in enumerate(history) if state == found)
        assert reached >= confirmed
        del history[reached + 1 :]
        confirmed = reached
        machine.fs.calls_left = dice.randrange(1, 150)
        pending: list[tuple[int, asyncio.Future[None]]] = []
        try:
            for step in itertools.count():
                for _ in range(dice.randrange(1, 5)):
                    batch = list(_batch(dice, step))
                    history.append(_after(history[-1], batch))
                    pending.append((len(history) - 1, store.append(batch)))
                for index, future in pending:
                    await future
                    confirmed = index
                pending.clear()
                if dice.random() < 0.1:
                    batch = list(_batch(dice, step))
                    history.append(_after(history[-1], batch))
                    await store.write(batch)
                    confirmed = len(history) - 1
        except SparrowError:
            await asyncio.gather(*(future for _, future in pending), return_exceptions=True)
        machine.fs.crash()


class OnDisk:
    """A directory with a journal and a meta store in SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def start(self) -> WithItsMetaStore:
        store = await WithItsMetaStore.open(SqliteMetaStore(str(self.path / "meta.db")), self)
        assert isinstance(store, WithItsMetaStore)
        return store

    def open_journal(self, mark: bytes | None) -> LocalJournal:
        directory, fs = str(self.path / "journal"), LocalFileSystem()
        return LocalJournal(fs, directory, mark, next(_times), threads=0, file_bytes=32 << 10)

    def copied(self, name: str) -> OnDisk:
        """Return a copy, as a kill would leave it."""
        return OnDisk(Path(shutil.copytree(self.path, self.path.with_name(name))))

    async def end_without_checkpoint(self, store: WithItsMetaStore) -> None:
        await store._journal.close()
        await store._meta.close()


async def test_a_torn_checkpoint_of_a_filled_journal_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "life").mkdir()
    disk = OnDisk(tmp_path / "life")
    store = await disk.start()
    write, copies, confirmed = store._meta.write, list[OnDisk](), {}
    expected: dict[str, bytes] = {}

    async def copying(writes: Sequence[Write]) -> None:
        if len(confirmed) == 40 and not copies and any(each.kind == state_store.KIND for each in writes):
            expected.update(confirmed)
            copies.append(disk.copied("before"))
            await write(writes)
            copies.append(disk.copied("after"))
        else:
            await write(writes)

    store._meta.write = copying  # type: ignore[method-assign]
    for number in range(1000):
        value = b"%03d" % number * 150
        await store.append([Put("page", f"{number % 40}", value)])
        confirmed[f"{number % 40}"] = value
        if len(copies) == 2:
            break
    await store.close()
    before, after = ((each.path / "meta.db-wal").read_bytes() for each in copies)
    assert len({(each.path / "meta.db").read_bytes() for each in copies}) == 1
    changed = [at for at in range(0, len(after), SECTOR) if after[at:][:SECTOR] != before[at:][:SECTOR]]
    assert len(changed) > 5
    found = []
    for at in [0, *(each + SECTOR for each in changed)]:
        torn = copies[0].copied(f"torn-{at}")
        (torn.path / "meta.db-shm").unlink(missing_ok=True)
        (torn.path / "meta.db-wal").write_bytes(after[:at] + before[at:])
        again = await torn.start()
        found.append(await values(again))
        await torn.end_without_checkpoint(again)
    assert len(expected) == 40
    for each in found:
        assert each.keys() == expected.keys()
        newer = {key: value for key, value in each.items() if value != expected[key]}
        assert len(newer) <= 1  # the append that was under way
        assert all(int(value[:3]) > int(expected[key][:3]) for key, value in newer.items())


def _batch(dice: random.Random, step: int) -> Iterator[Write]:
    for key in dice.sample("abcdef", dice.randrange(1, 4)):
        if dice.random() < 0.2:
            yield Delete("page", key)
        else:
            yield Put("page", key, b"%d %d" % (step, dice.getrandbits(64)) * dice.choice((1, 1, 100)))


def _after(state: dict[str, bytes], batch: Sequence[Write]) -> dict[str, bytes]:
    after = dict(state)
    for write in batch:
        if isinstance(write, Put):
            after[write.key] = write.value
        else:
            after.pop(write.key, None)
    return after


# ── the broker's ──────────────────────────────────────────────────────────────────────────────────


async def test_a_directory_of_the_format_before_the_journal_keeps_leases_and_acknowledgements(
    work: Work,
) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1", b"2", b"3"])
    one = await work.consumer("jobs")
    await ack(one, (await take(one, 2))[:1])
    await work.stop()
    version = Path(f"{work.path}/format")
    await asyncio.to_thread(version.write_text, "sparrow data directory\nversion: 1\n")
    await work.start()
    one = await work.consumer("jobs")
    assert [record.value for record in await take(one)] == [b"3"]
    work.pass_time(31)
    assert [record.value for record in await take(one)] == [b"2", b"3"]
    await work.crash()
    assert (await asyncio.to_thread(version.read_text)).endswith("version: 2\n")
    work.pass_time(31)
    assert [record.value for record in await take(await work.consumer("jobs"))] == [b"2", b"3"]


@pytest.mark.usefixtures("large_appends")
async def test_a_lease_on_a_record_that_did_not_survive_is_dropped(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"0"])
    one = await work.consumer("jobs")
    await ack(one, await take(one))
    before = work.copied()
    await work.publish("jobs", [b"1", b"2"])
    leased = await take(one)
    assert [record.value for record in leased] == [b"1", b"2"]
    await ack(one, leased[:1])
    await work.crash(loses_since=before)
    await work.crash()
    assert work.statistics("jobs").unfinished == 0
    await work.publish("jobs", [b"3", b"4"])
    one = await work.consumer("jobs")
    assert [record.value for record in await take(one)] == [b"3", b"4"]
