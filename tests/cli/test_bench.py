"""`sparrow bench` on a real broker: the figures match the messages that exist."""

from __future__ import annotations

import json

import pytest

import sparrow.testing
from sparrow.cli.bench_report import Figures


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker(default_partitions=2) as running:
        yield running


@pytest.fixture(autouse=True)
def url(broker, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", broker.url)


def count_of(run, topic):
    return len(run("consume", topic, "--format", "raw").out.splitlines())


def test_published_messages_are_in_the_topic(run, sparrow_topic):
    found = run("bench", "publish", sparrow_topic, "-n", 500, "--size", 20, "--keys", 3)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("500 messages (0.0 MB) acknowledged on stable storage in ")
    assert "from sent to acknowledged: p50 " in found.out
    # One message is sent before, to open the connection.
    assert count_of(run, sparrow_topic) == 501


def test_lines_of_a_file_are_sent_in_turn(run, sparrow_topic, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\n")
    assert run("bench", "publish", sparrow_topic, "-n", 4, "--payload-file", file).code == 0
    lines = sorted(run("consume", sparrow_topic, "--format", "raw").out.splitlines())
    assert lines == ["one", "one", "one", "two", "two"]


def test_a_file_without_lines_is_refused(run, sparrow_topic, tmp_path):
    file = tmp_path / "empty.txt"
    file.touch()
    found = run("bench", "publish", sparrow_topic, "--payload-file", file)
    assert found.code == 2
    assert "has no lines" in found.err


@pytest.mark.slow
def test_at_a_fixed_rate_every_message_is_timed_and_takes_its_time(run, sparrow_topic):
    found = json.loads(
        run("bench", "publish", sparrow_topic, "-n", 200, "--rate", 1000, "--acks", "1", "--json").out
    )
    assert found["messages"] == 200
    assert found["seconds"] >= 0.19
    assert set(found["latency_ms"]) == {"p50", "p95", "p99", "p99.9", "max"}
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["max"]


@pytest.mark.slow
def test_consume_reads_all_records_and_stops(run, sparrow_topic):
    run("publish", sparrow_topic, *["x" * 10] * 30)
    found = json.loads(run("bench", "consume", sparrow_topic, "--json").out)
    assert (found["messages"], found["bytes"], found["latency_ms"]) == (30, 300, {})


@pytest.mark.slow
def test_consume_in_a_group_commits_read_records(run, sparrow_topic):
    run("publish", sparrow_topic, *["x"] * 20)
    assert run("bench", "consume", sparrow_topic, "-n", 20, "--group", "bench-group").code == 0
    described = run("group", "describe", "bench-group").out
    lags = [line.split("\t")[-1] for line in described.splitlines() if line.startswith(sparrow_topic)]
    assert lags == ["0"] * len(lags)
    assert lags


@pytest.mark.slow
def test_a_queue_of_its_own_is_used_and_removed(run):
    found = json.loads(run("bench", "queue", "-n", 300, "--workers", 3, "--rate", 3000, "--json").out)
    assert found["messages"] == 300
    assert found["latency_ms"]["max"] > 0
    assert "bench-" not in run("queue", "list").out
    assert "bench-" not in run("topic", "list").out


def test_latencies_are_told_by_rank():
    figures = Figures(latencies_s=[number / 1000 for number in range(1, 1002)])
    found = {name: round(value, 6) for name, value in figures.quantiles_ms().items()}
    assert found == {"p50": 501, "p95": 951, "p99": 991, "p99.9": 1000, "max": 1001}


def test_an_unreachable_broker_is_one_line(run, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", "sparrow://127.0.0.1:1")
    found = run("bench", "publish", "orders")
    assert found.code == 69
    assert len(found.err.splitlines()) == 1
