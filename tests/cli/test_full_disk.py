"""`sparrow publish` while the broker's disk is full."""

from __future__ import annotations

import threading

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import DiskFull, InvalidRecord, TimedOut
from sparrow.broker.partition import Partition
from sparrow.cli.publication import MAX_RANGES, MAX_REASONS, PublishTally


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture(autouse=True)
def url(broker, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", broker.url)


@pytest.fixture
def full(monkeypatch):
    """Fill the disk until the event is set, which happens by itself after this many refusals."""
    has_room, publish, refusals = threading.Event(), Partition.publish, []

    def full_or_not(self, *args, **options):
        if has_room.is_set():
            return publish(self, *args, **options)
        refusals.append(args)
        if len(refusals) >= 3:
            has_room.set()
        raise DiskFull("the device has 3 MiB left")

    monkeypatch.setattr(Partition, "publish", full_or_not)
    return refusals


def test_full_disk_is_said_once_and_the_messages_arrive_when_there_is_room(run, sparrow_topic, broker, full):
    run("topic", "create", sparrow_topic)
    found = run("publish", sparrow_topic, "a", "b")
    assert found.code == 0
    assert found.out.startswith("2 messages acknowledged")
    assert found.err == (
        f"sparrow: the broker at {broker.host}:{broker.port} takes no messages for now: the device "
        "has 3 MiB left"
        " (DISK_FULL); trying for 120 s, Ctrl-C stops\n"
    )
    assert run("consume", sparrow_topic).out == "a\nb\n"


def test_full_disk_ends_after_the_timeout_with_ranges_and_one_reason(
    run, sparrow_topic, monkeypatch, tmp_path
):
    def full(self, *args, **options):
        raise DiskFull("the device has 3 MiB left")

    run("topic", "create", sparrow_topic, "-p", 3)
    monkeypatch.setattr(Partition, "publish", full)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(5000)))
    found = run("publish", sparrow_topic, "--file", lines, "--timeout", "500ms")
    assert found.code == 69
    first, second = found.err.splitlines()
    assert first.endswith("(DISK_FULL); trying for 0.5 s, Ctrl-C stops")
    assert second.startswith("sparrow: messages 1-5000 were not published: ")
    assert "were not written; the broker says: the device has 3 MiB left (DISK_FULL)" in second
    assert found.out.startswith("0 messages acknowledged")


def test_the_producer_for_threads_tells_its_program(sparrow_topic, broker, full):
    told = []
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic(sparrow_topic)
        with client.producer(on_refused=told.append) as producer:
            assert producer.send(sparrow_topic, b"x").result().offset == 0
    assert [each.code for each in told] == ["DISK_FULL"]


@pytest.mark.parametrize("text", ["0", "soon", "-1s"])
def test_timeout_that_is_none_is_refused(run, text):
    found = run("publish", "t", "x", "--timeout", text)
    assert found.code == 2
    assert "--timeout cannot be" in found.err


def test_failures_are_summed_up_by_reason_as_ranges():
    tally = PublishTally()
    for number in (1, 2, 3, 7, 9, 10):
        tally.fail(number, TimedOut(f"message of batch {number} timed out"))
    tally.fail(8, InvalidRecord("its header is wrong"))
    assert [each.sentence() for each in tally.failures.values()] == [
        "messages 1-3, 7, 9-10 were not published: message of batch 1 timed out",
        "message 8 was not published: its header is wrong",
    ]
    assert (tally.failed, tally.unexplained) == (7, 0)


def test_memory_of_failures_is_bounded():
    tally = PublishTally()
    for number in range(0, 1000, 2):
        tally.fail(number, TimedOut("late"))
    (failure,) = tally.failures.values()
    assert len(failure.ranges) == MAX_RANGES
    assert failure.sentence().startswith("messages 0, 2, 4, ")
    assert f" and {500 - MAX_RANGES} more were not published: late" in failure.sentence()
    for word in "abcdefgh":
        tally.fail(5, InvalidRecord(word))
    assert len(tally.failures) == MAX_REASONS
    assert tally.unexplained == 8 - (MAX_REASONS - 1)
