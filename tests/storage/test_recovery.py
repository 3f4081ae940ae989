"""Directories after a crash, and what the next start makes of them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import InvalidTopicName, LogDamaged, NewerFormat, SparrowError
from sparrow.records.batch import parse_header
from sparrow.storage import recovery
from sparrow.storage.checkpoint import Checkpoint, Gap, RecoveryPoint, SavedSegment, decode
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.index import IndexState
from sparrow.storage.local import LocalLogStore
from sparrow.storage.recovery import CutOff, Ignore, RecoveryRecord, Remove, Rename, tidy
from sparrow.storage.store import LogConfig, LogId
from tests.conformance.log_store import ORDERS, SMALL_SEGMENTS, fill
from tests.storage.batches import NOW_MS, append, batch, keyed, numbered, payload, read_batches
from tests.storage.test_local_log_store import ON_THE_LOOP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.storage.store import PartitionLog

DIRECTORY = "/data/logs/orders-0"
POINTS = "/data/logs/.recovery-points"
FIRST = f"{DIRECTORY}/{0:020d}"


def start(fs: FaultyFileSystem, config: LogConfig = SMALL_SEGMENTS) -> tuple[LocalLogStore, PartitionLog]:
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    return store, store.open(ORDERS, config)


def write(fs: FaultyFileSystem, path: str, data: bytes, position: int = 0, size: int | None = None) -> None:
    """Change a file without the store's knowledge."""
    fd = fs.open(path, write=True, create=True)
    if size is not None:
        fs.truncate(fd, size)
    fs.write_at(fd, [data], position)
    fs.sync(fd)
    fs.close(fd)


def content(fs: FaultyFileSystem, path: str) -> bytes:
    fd = fs.open(path)
    data = fs.read_at(fd, fs.size(path) or 0, 0)
    fs.close(fd)
    return data


def one_file(count: int = 3) -> tuple[FaultyFileSystem, bytes]:
    """Return a killed store whose only segment has `count` batches, never synced."""
    fs = FaultyFileSystem()
    _, log = start(fs, LogConfig())
    fill(log, count)
    fs.kill()
    return fs, content(fs, FIRST + ".log")


async def test_a_tail_torn_at_any_byte_is_cut() -> None:
    fs, data = one_file()
    last = parse_header(data, _position_of(data, 2))
    for size in range(len(data) - last.size_bytes, len(data)):
        write(fs, FIRST + ".log", data[:size], size=0)
        store, log = start(fs)
        assert log.end_offset == last.base_offset
        assert fs.size(FIRST + ".log") == len(data) - last.size_bytes
        assert len(store.repairs) == (size > len(data) - last.size_bytes)
        fs.kill()


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x02", b"garbage!"])
async def test_garbage_behind_the_last_batch_is_cut(filler: bytes) -> None:
    fs, data = one_file()
    for length in (1, 11, 12, 60, 61, 62, 5000):
        write(fs, FIRST + ".log", (filler * length)[:length], len(data))
        _, log = start(fs)
        assert fs.size(FIRST + ".log") == len(data)
        assert append(log, numbered(9)).base_offset == 6
        assert len(await read_batches(log)) == 4
        fs.kill()
        write(fs, FIRST + ".log", data, size=0)


async def test_any_changed_byte_of_the_last_batch_cuts_it() -> None:
    fs, data = one_file()
    begin = _position_of(data, 2)
    for position in range(begin, len(data)):
        if begin + 12 <= position < begin + 16:
            continue  # the leader epoch is outside the CRC, and has no meaning yet
        write(fs, FIRST + ".log", bytes([data[position] ^ 0x55]), position)
        _, log = start(fs)
        assert log.end_offset == 3
        fs.kill()
        write(fs, FIRST + ".log", data, size=0)


async def test_later_segments_go_with_a_damaged_one() -> None:
    fs = FaultyFileSystem()
    store, log = start(fs)
    fill(log)
    fs.kill()
    second = sorted(path for path in fs.paths() if path.endswith(".log"))[1]
    fs.corrupt(second, 30, b"rot")
    findings = recovery.inspect(fs, "/data")
    assert any(isinstance(each, CutOff) and each.path == second for each in findings)
    store, log = start(fs)
    assert max(path for path in fs.paths() if path.endswith(".log")) == second
    assert store.repairs == findings
    assert log.end_offset == parse_header((await read_batches(log))[-1]).next_offset
    append(log, numbered(1))
    await store.close()
    assert recovery.inspect(fs, "/data") == []


async def test_inspect_says_what_it_would_do_and_changes_nothing() -> None:
    fs, data = one_file()
    write(fs, FIRST + ".log", b"torn", len(data))
    write(fs, f"{DIRECTORY}/checkpoint.tmp", b"half")
    before = {path: content(fs, path) for path in fs.paths()}
    findings = [str(each) for each in recovery.inspect(fs, "/data")]
    assert {path: content(fs, path) for path in fs.paths()} == before
    assert any("at position" in each and "the last 4 bytes are cut off" in each for each in findings)
    assert any("checkpoint.tmp" in each and "removed" in each for each in findings)


# ── indexes ──


async def test_rebuilt_indexes_are_those_that_appends_made() -> None:
    fs = FaultyFileSystem()
    config = LogConfig(segment_bytes=4000, index_interval_bytes=150)
    store, log = start(fs, config)
    for number in range(100):
        append(log, batch(bytes(number % 60), timestamps=NOW_MS + number * 7 % 50))
    await store.close()
    made = {path: content(fs, path) for path in fs.paths() if path.endswith("index")}
    assert len(made) > 4
    for path in made:
        fs.unlink(path)
    fs.unlink(f"{DIRECTORY}/checkpoint")
    store, log = start(fs, config)
    assert len(await read_batches(log)) == 100
    await store.close()
    assert {path: content(fs, path) for path in fs.paths() if path.endswith("index")} == made


@pytest.mark.parametrize("damage", ["missing", "short", "long", "zeros"])
async def test_damaged_indexes_of_closed_segments_are_rebuilt(damage: str) -> None:
    fs = FaultyFileSystem()
    store, log = start(fs)
    sent = fill(log)
    await store.close()
    for path in [path for path in fs.paths() if path.endswith("index")]:
        size = fs.size(path) or 0
        if damage == "missing":
            fs.unlink(path)
        elif damage == "short":
            write(fs, path, b"", size=max(size - 3, 0))
        elif damage == "long":
            write(fs, path, b"abc", size)
        else:
            write(fs, path, bytes(size))
    store, log = start(fs)
    assert [payload(each) for each in await read_batches(log)] == [payload(bytes(data)) for _, data in sent]
    for offset in range(log.end_offset):
        chunk = await log.read(offset, 1)
        assert chunk.base_offset <= offset < chunk.next_offset
    await store.close()


# ── the checkpoint ──


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    point = RecoveryPoint(5, 600, 77, IndexState(3, 2, 99, NOW_MS, 60), NOW_MS - 5, NOW_MS)
    segments = (SavedSegment(0, 5000, NOW_MS, (1, 2)), SavedSegment(5, 600))
    checkpoint = Checkpoint(12, point, 40, 70, b"state", segments, (Gap(3, 5),))
    assert decode(checkpoint.encode(), "x") == checkpoint


def test_any_changed_byte_makes_a_checkpoint_none() -> None:
    data = Checkpoint(12, RecoveryPoint(5, 600, 77), 40, 70, b"state").encode()
    for position in range(len(data)):
        assert decode(data[:position], "x") is None
        assert decode(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], "x") is None


async def test_a_checkpoint_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow.storage.checkpoint.VERSION", 3)
    data = Checkpoint(0, RecoveryPoint(0, 0, 0)).encode()
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match="format 3"):
        decode(data, "x")


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("content_now", [b"", b"rotten", bytes(200)])
async def test_a_damaged_checkpoint_loses_no_record_of_a_compacted_log(
    content_now: bytes, *, has_copy: bool
) -> None:
    fs = FaultyFileSystem()
    config = LogConfig(segment_bytes=800, compact=True, delete=False, min_cleanable_dirty_ratio=0)
    store, log = start(fs, config)
    for number in range(40):
        append(log, keyed([(b"k%d" % (number % 7), b"%d" % number * 20)]))
    await log.compact(NOW_MS)
    kept, end = await read_batches(log), log.end_offset
    await store.close()
    for _ in range(2):
        write(fs, f"{DIRECTORY}/checkpoint", content_now, size=0)
        if not has_copy:
            fs.unlink(POINTS)
        store, log = start(fs, config)
        assert any(isinstance(each, RecoveryRecord if has_copy else Ignore) for each in store.repairs)
        assert (await read_batches(log), log.end_offset) == (kept, end)
        fs.kill()  # the damaged file is still there
    store, log = start(fs, config)
    await store.close()
    store, log = start(fs, config)
    assert (await read_batches(log), store.repairs) == (kept, [])


async def test_a_log_that_lacks_bytes_of_its_checkpoint_is_not_opened() -> None:
    fs = FaultyFileSystem()
    store, log = start(fs, LogConfig())
    fill(log, 10)
    await store.close()
    size = fs.size(FIRST + ".log") or 0
    write(fs, FIRST + ".log", b"", size=size - 5)
    with pytest.raises(LogDamaged, match=f"{size - 5} bytes, {size} were on stable storage; offset 18"):
        start(fs, LogConfig())
    assert fs.size(FIRST + ".log") == size - 5


# ── names ──


def test_leftovers_of_a_compaction_are_undone_or_finished() -> None:
    stem = f"{0:020d}"
    undone, files = tidy("/d", [f"{stem}.log", f"{stem}.log.cleaned", f"{stem}.index.cleaned"])
    assert [type(each) for each in undone] == [Remove, Remove]
    assert files == {f"{stem}.log": f"/d/{stem}.log"}
    swap = f"{stem}-{20:020d}.swap"
    finished, files = tidy(
        "/d",
        [
            f"{stem}.log",
            f"{10:020d}.log",
            f"{10:020d}.index",
            f"{20:020d}.log",
            f"{stem}.index.cleaned",
            swap,
        ],
    )
    assert [type(each) for each in finished] == [Remove, Remove, Rename, Rename]
    assert files == {
        f"{stem}.log": f"/d/{swap}",
        f"{stem}.index": f"/d/{stem}.index.cleaned",
        f"{20:020d}.log": f"/d/{20:020d}.log",
    }


async def test_unreadable_metadata_is_rewritten() -> None:
    fs = FaultyFileSystem()
    store, log = start(fs)
    fill(log, 3)
    await store.close()
    write(fs, f"{DIRECTORY}/partition.metadata", b"\0\0\0", size=0)
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    assert store.ids() == [ORDERS]  # the second copy of its checkpoint has it
    assert store.open(ORDERS, LogConfig()).end_offset == 6
    assert store.ids() == [ORDERS]


async def test_a_log_of_an_unknown_topic_id_is_set_aside_and_kept() -> None:
    fs = FaultyFileSystem()
    store, log = start(fs)
    fill(log, 3)
    await store.close()
    store = LocalLogStore("/data", fs, options=ON_THE_LOOP)
    other = LogId("orders", uuid.UUID(int=5), 0)
    assert store.open(other, LogConfig()).end_offset == 0
    await store.close()
    aside = f"/data/logs/.stray/orders-0.{ORDERS.topic_id}"
    assert fs.size(f"{aside}/{0:020d}.log")
    fs.rename(aside, "/data/logs/orders-0")
    assert start(fs)[1].end_offset == 6


async def test_names_that_differ_in_case_alone_do_not_share_a_directory() -> None:
    """On a file system that ignores the case of letters."""
    fs = FaultyFileSystem()
    store, log = start(fs)
    fill(log, 3)
    real = fs.listdir
    fs.listdir = lambda path: [name.upper() for name in real(path)]  # type: ignore[method-assign]
    with pytest.raises(InvalidTopicName, match="upper and lower case"):
        LocalLogStore._claim(store, LogId("orders", uuid.UUID(int=5), 0), DIRECTORY)
    assert fs.size(FIRST + ".log")


# ── ends at any step ──


async def _drop(log: PartitionLog) -> None:
    log.configure(LogConfig(segment_bytes=1000, index_interval_bytes=150, retention_bytes=1500))
    await log.enforce_retention(NOW_MS)


async def _delete(log: PartitionLog) -> None:
    await log.delete_records(33)


async def _checkpoint(log: PartitionLog) -> None:
    await log.checkpoint(b"new state")


@pytest.mark.parametrize("ends_by", ["kill", "power"])
@pytest.mark.parametrize("act", [_drop, _delete, _checkpoint])
async def test_maintenance_may_end_at_any_step(
    act: Callable[[PartitionLog], Awaitable[None]], ends_by: str
) -> None:
    step, finished = 0, False
    while not finished:
        fs = FaultyFileSystem(step)
        _, log = start(fs)
        fill(log, 40)
        await log.checkpoint(b"state")
        before = await read_batches(log)
        end = log.end_offset
        fs.calls_left = step
        try:
            await act(log)
        except SparrowError:
            fs.calls_left = -1
        finished, fs.calls_left = fs.calls_left >= 0, None
        done = await read_batches(log)
        promised = (log.start_offset, log.end_offset)
        fs.kill() if ends_by == "kill" else fs.crash()
        store, log = start(fs)
        found = await read_batches(log)
        if finished:
            assert (found, (log.start_offset, log.end_offset)) == (done, promised)
        else:
            # Some segments may be gone and others not yet; the rest is a whole piece of the
            # original.
            assert found in (before[: len(found)], before[-len(found) :])
            assert promised[1] <= log.end_offset <= end
        assert log.saved_state()[1] in (b"", b"state", b"new state")
        append(log, numbered(99))
        await store.close()
        assert recovery.inspect(fs, "/data") == []
        step += 1
    assert step > 3


@pytest.mark.parametrize("ends_by", ["kill", "power"])
async def test_deleting_a_log_may_end_at_any_step(ends_by: str) -> None:
    step, finished = 0, False
    while not finished:
        fs = FaultyFileSystem(step)
        store, log = start(fs)
        sent = fill(log, 20)
        await log.durable(log.end_offset)
        fs.calls_left = step
        try:
            await store.delete(log)
        except SparrowError:
            fs.calls_left = -1
        finished, fs.calls_left = fs.calls_left >= 0, None
        fs.kill() if ends_by == "kill" else fs.crash()
        store, log = start(fs)
        assert log.end_offset in ({0} if finished else {0, sum(header.record_count for header, _ in sent)})
        other = LogId("orders", type(ORDERS.topic_id)(int=9), 1)
        assert store.open(other, LogConfig()).end_offset == 0
        assert fs.listdir("/data/logs/.deleted") == []
        step += 1
    assert step > 3


def _position_of(data: bytes, number: int) -> int:
    position = 0
    for _ in range(number):
        position += parse_header(data, position).size_bytes
    return position
