"""The stages without Spark, with real brokers and real workers, one of which is really killed."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import Conflict, ConnectionLost, InvalidArgument, SparrowError, TimedOut, TopicExists
from sparrow.demo import crew, stages, surroundings
from sparrow.demo.crew import Worked, work_off
from sparrow.demo.history import CommitMessage, find
from sparrow.demo.report import Check, DemoReport, StageResult
from sparrow.demo.surroundings import Context, DemoPlan
from sparrow.testing.running_broker import RunningBroker
from tests.demo.repositories import repository

HISTORY = [
    [],
    *([n] for n in range(10)),
    [],
    [5, 11],
    *([3] for _ in range(8)),
    *([n] for n in range(13, 20)),
    [10, 12, *range(20, 28)],
]
"""A chain, a second root that is merged, and eight branches of which seven have two commits; all
end in one merge.
"""


class Commits:
    """A source of commits without parents."""

    title = "commits of a test"
    note = ""

    def count(self) -> int:
        return 30

    def messages(self) -> Iterator[CommitMessage]:
        return (CommitMessage(f"commit-{n}", b'{"subject": "a change"}') for n in range(30))

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return ((each.id, ()) for each in self.messages())


class NoSpark:
    """A stage in place of the pipeline's; records its contexts."""

    def __init__(self, *, holds: bool = True) -> None:
        self.contexts: list[Context] = []
        self._holds = holds

    def __call__(self, context: Context, source: object, progress: Callable[[int, int], None]) -> StageResult:
        self.contexts.append(context)
        progress(1, 1)
        checks = [Check("it is as it should be", self._holds)]
        return StageResult(checks, {"rows": 1}, {"table": "table", "chart": "chart.png"})


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        yield running


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Shorten leases, do not wait for an absent broker, and keep files in the test's directory."""
    monkeypatch.setattr(stages, "LEASE_MS", 1000)
    monkeypatch.setattr(surroundings, "CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def context_of(broker: RunningBroker, topic: str, path: Path) -> Context:
    return Context(url=broker.url, topic=topic, total=1, workers=1, work_dir=str(path), out_dir=str(path))


def failed(report: DemoReport) -> list[Check]:
    return [each for each in report.checks if not each.held]


@pytest.mark.slow
def test_history_goes_through_the_stages_and_every_check_holds(tmp_path, capsys):
    source = find(str(repository(tmp_path / "repo", HISTORY)))
    pipeline = NoSpark()
    report = stages.run(DemoPlan(workers=3, out_dir=str(tmp_path / "out")), source, pipeline)
    assert failed(report) == []
    assert report.held
    assert len(report.checks) == 8
    figures = {stage.name: stage.figures for stage in report.stages}
    assert figures["publish"]["merges"] == sum(len(each) > 1 for each in HISTORY)
    assert figures["work"]["jobs"] == len(HISTORY)
    assert figures["work"]["p99 ms"] >= figures["work"]["job p50 ms"] > 0
    assert figures["verify"]["handled twice"] == 1
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert told == json.loads(json.dumps(report.as_dict()))
    assert told["held"]
    assert not os.path.exists(pipeline.contexts[0].work_dir)
    assert f"work: {len(HISTORY)} of {len(HISTORY)} in " in capsys.readouterr().err


@pytest.mark.slow
def test_single_commit_and_single_worker_are_enough_for_a_kill(tmp_path, broker):
    source = find(str(repository(tmp_path / "repo", [[]])))
    plan = DemoPlan(workers=1, out_dir=str(tmp_path / "out"), broker=broker.url)
    report = stages.run(plan, source, NoSpark())
    assert failed(report) == []
    assert report.stages[1].figures["jobs"] == 1
    assert [stage.figures["handled by each"] for stage in report.stages if stage.name == "verify"] == [
        "1 + 1"
    ]


@pytest.mark.slow
def test_topic_takes_a_free_name_and_kept_files_stay(tmp_path, broker):
    with sparrow.sync.connect(broker.url) as client, suppress(TopicExists):
        client.admin.create_topic("commits.weekly")
    pipeline = NoSpark(holds=False)
    plan = DemoPlan(workers=2, out_dir=str(tmp_path / "out"), broker=broker.url, keep=True)
    report = stages.run(plan, Commits(), pipeline)
    assert failed(report) == [Check("it is as it should be", False)]
    assert not report.held
    (context,) = pipeline.contexts
    assert re.fullmatch("commits-[0-9]+", context.topic)
    assert os.path.isdir(report.outputs["kept"])
    assert context.topic in report.outputs["topics"]
    with sparrow.sync.connect(broker.url) as client:
        assert client.admin.describe_queue(context.topic).statistics.unfinished == 0


@pytest.mark.slow
def test_failure_says_where_its_logs_are(tmp_path, broker):
    def fail(context: Context, source: object, progress: object) -> StageResult:
        raise SparrowError("Java is tired")

    plan = DemoPlan(workers=1, out_dir=str(tmp_path / "out"), broker=broker.url)
    with pytest.raises(
        SparrowError, match="Java is tired; logs and data of the attempt are kept in "
    ) as raised:
        stages.run(plan, Commits(), fail)
    assert os.path.isfile(os.path.join(raised.value.text.rpartition(" ")[2], "workers", "worker-1.log"))


def test_broker_that_cannot_be_reached_is_named():
    plan = DemoPlan(broker="sparrow://127.0.0.1:1")
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"), surroundings.broker(plan, ""):
        pass


@pytest.mark.slow
def test_worker_that_ends_by_itself_ends_the_work_with_its_words(tmp_path, broker, monkeypatch):
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue("short")
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nread task\necho nowhere to go >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(crew.sys, "executable", str(program))
    with pytest.raises(SparrowError, match=r"worker-1 ended by itself: nowhere to go$"):
        work_off(context_of(broker, "short", tmp_path), lambda *_: None)


@pytest.mark.slow
def test_stalled_work_is_given_up_with_the_state_of_the_queue(tmp_path, broker, monkeypatch):
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue("stuck", policy={"order": "parented"})
        client.publish("stuck", b"orphan", message_id="orphan", parents=["nobody"])
        client.admin.create_topic("stuck.handled", partitions=1)
    monkeypatch.setattr(crew, "STALL_TIMEOUT_S", 0.5)
    with pytest.raises(TimedOut, match=r"no job was done for 0\.5 s: .*1 waiting for parents"):
        work_off(context_of(broker, "stuck", tmp_path), lambda *_: None)


def test_outputs_of_an_earlier_run_are_replaced_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    surroundings.output_directory(str(out))
    (out / "table" / "_spark_metadata").mkdir(parents=True)
    (out / "table" / "old.parquet").write_text("old")
    (out / "report.json").write_text("{}")
    (out / "mine.txt").write_text("mine")
    (out / "chart.png").symlink_to(out / "mine.txt")
    assert surroundings.output_directory(str(out)) == str(out)
    assert sorted(each.name for each in out.iterdir()) == [".gitignore", "mine.txt"]


def test_somebody_elses_table_and_git_settings_in_the_output_directory_survive(tmp_path):
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert surroundings.output_directory(str(tmp_path)) == str(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*.log\n"
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "oak.txt").write_text("mine")
    with pytest.raises(Conflict, match=r"table is in the way.*--out"):
        surroundings.output_directory(str(tmp_path))
    assert (tmp_path / "table" / "oak.txt").read_text() == "mine"


def test_output_directory_that_cannot_be_made_is_refused(tmp_path):
    for path in ("/proc/none/out", ""):
        with pytest.raises(InvalidArgument, match=r"cannot be written to: .*--out"):
            surroundings.output_directory(path)


def test_failure_before_there_are_logs_keeps_no_directory(tmp_path):
    with pytest.raises(SparrowError) as told, surroundings.work_directory(keep=False):
        raise ConnectionLost("nobody is there")
    assert told.value.text == "nobody is there"
    assert list(tmp_path.iterdir()) == []


def test_output_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(SparrowError, match=r"is not a directory.*--out"):
        surroundings.output_directory(str(tmp_path / "out"))


def test_percentiles_are_of_all_jobs():
    worked = Worked(latencies_ms=[*map(float, range(101, 0, -1))])
    assert [worked.percentile_ms(share) for share in (0.5, 0.99)] == [51.0, 100.0]
    assert Worked().percentile_ms(0.5) == 0.0


def test_report_says_which_checks_did_not_hold(tmp_path: Path):
    report = DemoReport(title="a history", checks=[Check("this", True), Check("that", False, "3 times")])
    told = "\n".join(report.lines())
    assert "✓ this\n" in told
    assert "✗ that (3 times)\n" in told
    assert told.endswith("1 of 2 checks did not hold, after 0 s.")
    assert not DemoReport(title="nothing was checked").held
