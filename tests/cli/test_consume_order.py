"""`sparrow consume` prints the existing records of several partitions in the order of their
timestamps.
"""

from __future__ import annotations

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.cli import merge


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker(default_partitions=4) as running:
        yield running


@pytest.fixture(autouse=True)
def url(broker, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", broker.url)


@pytest.fixture
def topic(sparrow_topic):
    return sparrow_topic


@pytest.fixture
def spread(broker, topic):
    """Publish three hundred messages a second apart, in four partitions in turn, partition by
    partition.
    """
    with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
        for partition in (2, 0, 3, 1):
            for number in range(partition, 300, 4):
                time_ms = 1_700_000_000_000 + number * 1000
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=time_ms)
    return topic


def test_existing_records_are_printed_in_order_of_time(run, spread):
    assert run("consume", spread).out.split() == [str(number) for number in range(300)]


def test_the_first_few_are_the_earliest(run, spread):
    assert run("consume", spread, "--max", 5).out.split() == ["0", "1", "2", "3", "4"]
    assert run("consume", spread, "--max", 1).out == "0\n"


def test_a_time_to_start_from_holds_for_all_partitions(run, spread):
    found = run("consume", spread, "--from", 1_700_000_000_000 + 290_000)
    assert found.out.split() == [str(number) for number in range(290, 300)]


def test_an_offset_to_start_from_holds_for_each_partition(run, spread):
    assert run("consume", spread, "--from", 70).out.split() == [str(number) for number in range(280, 300)]


def test_from_the_end_nothing_is_there(run, spread):
    found = run("consume", spread, "--from", "end")
    assert (found.code, found.out) == (0, "")


def test_several_topics_are_printed_as_one(run, broker, topic):
    with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
        for number in range(20):
            name = f"{topic}.{'ab'[number % 2]}"
            producer.send(name, b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
    assert run("consume", f"{topic}.*").out.split() == [str(number) for number in range(20)]


def test_order_within_a_partition_stays_though_times_do_not(run, broker, topic):
    with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
        for partition, times in ((0, (5, 1, 6)), (1, (2, 3, 4))):
            for time in times:
                value = f"{partition}:{time}".encode()
                producer.send(topic, value, partition=partition, timestamp_ms=1_700_000_000_000 + time)
    assert run("consume", topic).out.split() == ["1:2", "1:3", "1:4", "0:5", "0:1", "0:6"]


def test_more_than_waits_at_a_time_is_printed_whole(run, broker, topic, monkeypatch):
    monkeypatch.setattr(merge, "_PREFETCH_BYTES", 1 << 16)
    monkeypatch.setattr(merge, "_LEAST_PREFETCH_BYTES", 1 << 14)
    monkeypatch.setattr(merge, "_AT_A_TIME", 3)
    with sparrow.sync.connect(broker.url) as client, client.producer(batch_bytes=4000) as producer:
        for number in range(3000):
            value = b"%05d" % number + bytes(100)
            time_ms = 1_700_000_000_000 + number
            producer.send(topic, value, partition=number * 7 % 4, timestamp_ms=time_ms)
    lines = run("consume", topic, "--format", "raw").out.split("\n")
    assert [int(line[:5]) for line in lines[:-1]] == list(range(3000))


def test_more_partitions_than_are_merged_are_printed_all_the_same(run, broker, topic, monkeypatch):
    monkeypatch.setattr("sparrow.cli.consume.MAX_PARTITIONS", 2)
    with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
        for number in range(40):
            producer.send(topic, b"%d" % number, partition=number % 4)
    assert sorted(run("consume", topic).out.split(), key=int) == [str(number) for number in range(40)]


def test_lines_of_a_file_come_back_in_their_order(run, topic, tmp_path):
    (tmp_path / "numbers").write_text("".join(f"{number}\n" for number in range(1, 100_001)))
    assert run("publish", topic, "--file", tmp_path / "numbers").out.startswith("100000 messages ack")
    assert run("consume", topic, "--max", 5).out.split() == ["1", "2", "3", "4", "5"]
