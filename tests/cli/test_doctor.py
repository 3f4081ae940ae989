"""`sparrow doctor`: reports errors of a data directory, and changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import sqlite3
from contextlib import closing

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.clock import ManualClock
from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.broker.config import BrokerConfig
from sparrow.storage.journal_frames import HEADER_BYTES, VERSION, frame_bytes, read_frames
from tests.queues.work import Work, ack, take


def fingerprint(directory):
    """Return names, contents and modification times of everything in a directory."""
    found = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[path] = (hashlib.sha256(file.read()).hexdigest(), os.stat(path).st_mtime_ns)
    return found


def test_healthy_directory_is_well(run, data_dir):
    before = fingerprint(data_dir)
    found = run("doctor", data_dir, "--all")
    assert (found.code, found.err) == (0, "")
    assert "the last broker was stopped cleanly" in found.out
    assert "checked 1 segments" in found.out
    assert found.out.endswith("all is well\n")
    assert fingerprint(data_dir) == before


def test_torn_tail_is_reported_with_the_bytes_to_cut_and_stays(run, data_dir, segment):
    (data_dir / ".clean").unlink()
    with open(segment, "ab") as file:
        file.write(b"torn" * 10)
    before = fingerprint(data_dir)
    found = run("doctor", data_dir)
    assert found.code == 1
    assert "the last broker was not stopped cleanly" in found.out
    assert f"would repair: {segment}" in found.out
    assert "40 bytes are cut off" in found.out
    assert fingerprint(data_dir) == before


def test_damaged_batch_behind_the_checkpoint_is_found_by_all(run, data_dir, segment):
    with open(segment, "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff\xff")
    found = run("doctor", data_dir, "--all")
    assert found.code == 65
    assert f"damaged: {segment}: at position 0: the batch's CRC does not fit its bytes; offset" in found.out


def test_damaged_meta_store_is_named(run, data_dir):
    (data_dir / "meta.db").write_bytes(b"this was a database once" * 100)
    found = run("doctor", data_dir)
    assert found.code == 65
    assert "meta.db is damaged" in found.out


def test_missing_meta_store_is_named(run, data_dir):
    (data_dir / "meta.db").unlink()
    found = run("doctor", data_dir)
    assert found.code == 65
    assert "meta.db is missing" in found.out


def test_newer_format_is_refused(run, data_dir):
    (data_dir / "format").write_text("sparrow data directory\nversion: 99\n")
    found = run("doctor", data_dir)
    assert found.code == 73
    assert "format 99" in found.err


@pytest.mark.parametrize("content", [None, {}, {"letter.txt": "hello"}])
def test_directory_without_data_is_refused(run, tmp_path, content):
    path = tmp_path / "other"
    if content is not None:
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
    found = run("doctor", path)
    assert (found.code, found.out) == (73, "")
    assert "--data-dir" in found.err


def test_directory_in_use_is_refused_with_the_pid(run):
    with sparrow.testing.broker() as broker:
        found = run("doctor", broker.data_dir)
    assert found.code == 73
    assert f"is in use by the broker with pid {os.getpid()}" in found.err


def test_logs_without_their_topics_are_damage_and_not_all_well(run, data_dir):
    with closing(sqlite3.connect(data_dir / "meta.db")) as meta, meta:
        meta.execute("DELETE FROM fact WHERE kind = 'topic'")
    found = run("doctor", data_dir)
    assert found.code == 65
    assert "it names no topic, but there are 1 logs" in found.out
    assert "do not start a broker here" in found.out


def test_damaged_journal_is_reported_and_its_readable_part_used(run, tmp_path):
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path / "data")) as broker:
        with sparrow.sync.connect(broker.url) as client:
            client.admin.create_queue("jobs", policy={"lease": "3s"})
            with client.producer() as producer:
                for number in range(4):
                    producer.send("jobs", b"%d" % number)
            with client.queue("jobs") as queue:
                for _ in range(4):
                    queue.lease(1, wait_s=30).ack()
        broker.kill()
        directory = tmp_path / "data"
        found = run("doctor", directory)
        assert "records to replay" in found.out
        journal = max((directory / "journal").iterdir(), key=lambda path: path.read_bytes()[:8])
        data = bytearray(journal.read_bytes())
        data[4096 + 30] ^= 1
        journal.write_bytes(data)
        found = run("doctor", directory)
        assert found.code == 65
        assert "cannot be replayed" in found.out
        assert "It has leases, acknowledgements and delivery counts" in found.out
        found = run("doctor", directory, "--accept-loss")
        assert "accepted: the journal goes on without what it lost" in found.out
        assert "damaged:" not in found.out
        broker.restart()
        with sparrow.sync.connect(broker.url) as client, client.queue("jobs") as queue:
            again: set[bytes] = set()
            while not again & {b"0", b"1"}:  # at the latest when its lease ends
                again.update(queue.lease(4, wait_s=30).values)


# ── a journal after a kill ────────────────────────────────────────────────────────────────────────


def work_in(directory):
    return Work(str(directory), ManualClock(), BrokerConfig(default_partitions=1))


async def write_killed(directory, running):
    """Write a queue of four records, three of them acknowledged, as a kill -9 leaves it."""
    work = work_in(running)
    await work.start()
    await work.create("jobs")
    await work.publish("jobs", [b"0", b"1", b"2", b"3"])
    consumer = await work.consumer("jobs")
    for _ in range(3):
        await ack(consumer, await take(consumer, 1))
    shutil.move(work.copied(), directory)
    await work.stop()


@pytest.fixture
def killed(tmp_path):
    directory = tmp_path / "killed"
    asyncio.run(write_killed(directory, tmp_path / "running"))
    return directory


def start(directory):
    """Start a broker; return the records that its queue delivers once all leases have ended."""

    async def started():
        work = work_in(directory)
        await work.start()
        try:
            work.pass_time(31)
            return [record.value for record in await take(await work.consumer("jobs"))]
        finally:
            await work.stop()

    return asyncio.run(started())


def file_in_use(directory):
    """Return the file of the journal that has frames."""
    (path,) = [path for path in (directory / "journal").iterdir() if any(path.read_bytes()[:8])]
    return path


@pytest.mark.parametrize("is_in_use", [True, False])
def test_missing_file_of_the_journal_is_reported_with_the_loss_and_the_remedy(run, killed, is_in_use):
    in_use = file_in_use(killed)
    gone = in_use if is_in_use else in_use.with_name("1" if in_use.name == "0" else "0")
    gone.unlink()
    before = fingerprint(killed)
    found = run("doctor", killed)
    assert found.code == 65
    assert f"damaged: the journal in {killed}/journal cannot be replayed: a file is missing." in found.out
    assert "It has leases, acknowledgements and delivery counts of queues since their last" in found.out
    assert "Restore the data directory from a backup, or go on without them (`sparrow doctor" in found.out
    assert "messages that were acknowledged may then be delivered again" in found.out
    assert fingerprint(killed) == before
    with pytest.raises(DirectoryUnreadable) as refused:
        start(killed)
    assert refused.value.text in found.out
    found = run("doctor", killed, "--accept-loss")
    assert "accepted: the journal goes on without what it lost (a file is missing)" in found.out
    assert "damaged:" not in found.out
    left = start(killed)  # the checkpoint may have the first acknowledgement
    assert left[-3:] == [b"1", b"2", b"3"] if is_in_use else left == [b"3"]


@pytest.mark.parametrize("option", [[], ["--accept-loss"], ["--all", "--accept-loss"]], ids=str)
def test_journal_of_a_newer_version_is_refused_with_the_remedy_and_stays(run, killed, option):
    path = file_in_use(killed)
    data = path.read_bytes()
    path.write_bytes(data[:8] + (VERSION + 1).to_bytes(4, "little") + data[12:])
    before = fingerprint(killed)
    found = run("doctor", killed, *option)
    sentence = f"{path} has format {VERSION + 1}, this Sparrow reads up to {VERSION}; start the version that"
    assert found.code == 73
    assert sentence in found.err
    assert "backup" not in found.out + found.err  # nothing is lost
    assert fingerprint(killed) == before
    with pytest.raises(NewerFormat) as refused:
        start(killed)
    assert sentence in refused.value.text
    path.write_bytes(data)
    assert start(killed) == [b"3"]


def test_torn_tail_of_the_journal_is_no_damage_and_leaves_the_records_before_it(run, killed):
    path = file_in_use(killed)
    data = bytearray(path.read_bytes())
    contents = read_frames(memoryview(data))
    whole = run("doctor", killed)
    records = int(re.search(r"journal: (\d+) records to replay\n", whole.out)[1])
    torn = contents.end - frame_bytes(len(contents.payloads[-1])) + HEADER_BYTES
    path.write_bytes(data[:torn] + bytes(len(data) - torn))  # the last acknowledgement is cut short
    before = fingerprint(killed)
    found = run("doctor", killed)
    assert found.code == whole.code
    assert f"journal: {records - 1} records to replay\n" in found.out
    assert "damaged" not in found.out
    assert fingerprint(killed) == before
    assert start(killed) == [b"2", b"3"]
