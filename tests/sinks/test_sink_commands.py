"""`sparrow sink …`, and the client's methods behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import UnknownSink
from sparrow.cli import main
from sparrow.records.builder import build_batch
from sparrow.spark.wire import Session, Target, connect
from sparrow.spark.wire.staged import StagedWriter, commit, stage
from sparrow.testing.running_broker import RunningBroker

Run = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture
def session(server: RunningBroker) -> Iterator[Session]:
    with connect(Target(server.url)) as made:
        yield made


@pytest.fixture
def run(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Return a function that runs `sparrow sink ARGUMENTS…` in this process; it returns the output,
    or the error.
    """
    monkeypatch.setenv("SPARROW_URL", server.url)

    def command(*arguments: str, fails: bool = False) -> str:
        capsysbinary.readouterr()
        ended = main(["sink", *arguments])
        out, err = capsysbinary.readouterr()
        assert bool(ended) == fails, err
        return (err if fails else out).decode()

    return command


@pytest.fixture
def sink(session: Session, sparrow_topic: str) -> str:
    """Return a sink with a committed batch, a fenced run and an open stage."""
    name = sparrow_topic
    commit(session, sink=name, query="q-1", run="run-1", batch=0, stages=[])
    made = stage(session, sink=name, query="q-1", run="run-2", batch=1, task=3, attempt=7)
    assert made is not None
    writer = StagedWriter(session, made, name)
    batch = build_batch(
        [b"1"],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    writer.publish(0, batch)
    writer.finish()
    writer.close()
    return name


def test_a_sink_is_listed_and_described(run: Run, sink: str) -> None:
    (row,) = [line.split("\t") for line in run("list").splitlines() if line.startswith(sink)]
    assert row[:5] == [sink, "stream", "q-1", "0", "1"]
    first, second, third, _, stage_row = run("describe", sink).splitlines()
    assert first.startswith(f"sink {sink} (stream): last batch 0, changed 20")
    assert second == "query q-1, run run-2 (epoch 1)"
    assert third == "fenced runs: run-1"
    assert stage_row.split("\t")[1:4] == ["1", "3", "7"]
    assert f"{sink}-0" in stage_row


def test_json_has_everything(run: Run, sink: str) -> None:
    described = json.loads(run("describe", sink, "--json"))
    assert described["past_runs"] == ["run-1"]
    assert described["stages"][0]["partitions"] == [[sink, 0]]
    (listed,) = [each for each in map(json.loads, run("list", "--json").splitlines()) if each["sink"] == sink]
    assert {**described, "stages": []} == listed


def test_deleting_a_sink_needs_a_yes(run: Run, sink: str, server: RunningBroker) -> None:
    assert "--yes" in run("delete", sink, fails=True)
    assert run("delete", sink, "--yes") == f"deleted sink {sink}; 1 open stages were dropped\n"
    assert sink not in run("list")
    assert "there is no sink" in run("describe", sink, fails=True)
    with sparrow.sync.connect(server.url) as client:
        with pytest.raises(UnknownSink):
            client.admin.describe_sink(sink)
        with pytest.raises(UnknownSink):
            client.admin.delete_sink(sink)
        assert sink not in {each.sink for each in client.admin.list_sinks()}
