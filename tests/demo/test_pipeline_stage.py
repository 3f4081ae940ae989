"""The stage without Spark: the copy of the pipeline that it runs, the moment of the kill, and what it does with processes and places."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import Conflict, InvalidArgument, SparrowError
from sparrow.demo import copies, pipeline, sparkrun
from sparrow.demo.levels import Levels
from sparrow.demo.lines import LogFile
from sparrow.demo.plan import Context
from sparrow.demo.sparkrun import Batches, PipelineRun, batches_of
from sparrow.demo.weekly import Weekly
from sparrow.spark import pipelines

EXAMPLES = Path(__file__).parents[2] / "examples"


def context(tmp_path, kind="commits") -> Context:
    return Context(
        url="",
        topic=f"{kind}-7",
        work_dir=str(tmp_path),
        out_dir=str(tmp_path / "out"),
        progress=lambda done, total: None,
    )


def job_of(path, batches=8, table="table") -> copies.Job:
    return copies.Job("", str(path / table), str(path / "sums"), "", "", "", 100, batches)


@pytest.fixture
def no_broker(monkeypatch):
    monkeypatch.setattr(copies, "make_topic", lambda url, name: name)


class Nothing:
    title = "nothing"


@pytest.mark.parametrize("name", ["commits.yml", "lines.yml"])
def test_the_pipelines_are_examples_that_pass_their_checks(name):
    assert (EXAMPLES / name).is_symlink()
    pipelines.load(str(EXAMPLES / name)).check()


@pytest.mark.parametrize(("rows", "batches"), [(1, 1), (2, 2), (8, 8), (9, 5), (100_000, 8)])
def test_the_copy_reads_this_topic_in_several_batches_and_writes_to_the_output(
    rows, batches, no_broker, tmp_path
):
    job = copies.prepare(context(tmp_path), Weekly(Nothing()), rows)
    copy = pipelines.load(job.file)
    copy.check()
    flow = copy.flow("table")
    assert list(flow.source.topics) == ["commits-7"]
    assert job.batches == batches == -(-rows // flow.source.max_rows_per_trigger)
    assert flow.sink.path == str(tmp_path / "out" / "table")
    assert copy.flow("weekly").sink.topic == "commits-7.weekly"
    assert (job.table_checkpoint, job.sums_checkpoint) == tuple(
        copy.checkpoint_of(copy.flow(each)) for each in ("table", "weekly")
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-05-01 12:00:00 INFO it's a \\ and a {brace}",
        '10.0.0.1 - - [01/May/2026:12:00:03 +0200] "GET / HTTP/1.1" 200 17',
        "May  1 12:00:03 box sshd[199]: failure",
        '{"@timestamp": "2026-05-01T12:00:00Z", "log.level": "info"}',
        "nothing to go by",
    ],
)
def test_the_copy_for_a_file_has_expressions_for_its_lines(line, no_broker, tmp_path):
    (tmp_path / "some.log").write_text(f"{line}\n")
    source = LogFile(str(tmp_path / "some.log"))
    job = copies.prepare(context(tmp_path, "lines"), Levels(source), 1)
    pipelines.load(job.file).check()
    steps = yaml.safe_load(Path(job.file).read_text())["flows"]["table"]["steps"]
    assert steps == [{"sql": source.shape.word_step()}, {"sql": source.shape.kind_step()}]


@pytest.mark.parametrize(
    ("table", "sums", "planned", "is_time"),
    [
        ((0, 0), (0, 0), 8, False),
        ((3, 3), (1, 1), 8, False),
        ((2, 1), (1, 1), 8, False),
        ((3, 2), (1, 1), 8, True),
        ((4, 3), (1, 0), 8, False),
        ((7, 6), (1, 0), 8, True),
        ((1, 0), (0, 0), 1, True),
        ((2, 1), (0, 0), 2, True),
    ],
)
def test_the_kill_falls_into_a_batch_with_some_committed_and_some_left(
    table, sums, planned, is_time, tmp_path
):
    job = job_of(tmp_path, planned)
    for name, (begun, committed) in (("table", table), ("sums", sums)):
        checkpoint(tmp_path / name, begun, committed)
    assert pipeline._is_time(job) is is_time


def test_a_pipeline_that_was_not_killed_in_the_middle_is_told(tmp_path):
    job = job_of(tmp_path)
    checkpoint(tmp_path / "table", 8, 8)
    checkpoint(tmp_path / "sums", 3, 3)
    check = pipeline._cut_check(job, pipeline.Cut(Batches(4, 3), Batches(1, 1), 14))
    assert check.held
    assert check.detail == "kill -9 of 14 processes in batch 4 of 8 of the table, after 1 of 3 of the sums"
    assert pipeline._cut_check(job, pipeline.Cut(Batches(3, 3), Batches(1, 1), 14)).held
    for table in (Batches(8, 8), Batches(9, 8), Batches(0, 0)):
        assert not pipeline._cut_check(job, pipeline.Cut(table, Batches(1, 1), 14)).held
    checkpoint(tmp_path / "left", 9, 8)
    left = job_of(tmp_path, table="left")
    assert not pipeline._cut_check(left, pipeline.Cut(Batches(4, 3), Batches(1, 1), 14)).held


def test_batches_are_those_of_the_checkpoint(tmp_path):
    assert batches_of(str(tmp_path / "none")) == Batches(0, 0)
    checkpoint(tmp_path / "some", 12, 11)
    (tmp_path / "some" / "commits" / ".11.crc").write_text("")
    assert batches_of(str(tmp_path / "some")) == Batches(12, 11)
    assert Batches(12, 11).is_in_one
    assert not Batches(12, 12).is_in_one


def test_only_the_table_of_a_run_before_is_removed(tmp_path):
    table = tmp_path / "table"
    copies.clear(str(table))
    table.mkdir()
    copies.clear(str(table))
    (table / "_spark_metadata").mkdir(parents=True)
    (table / "a.parquet").write_text("")
    copies.clear(str(table))
    assert not table.exists()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("")
    table.symlink_to(tmp_path / "letters")
    for make in (lambda: None, lambda: (table.unlink(), table.mkdir(), (table / "dear.txt").write_text(""))):
        make()
        with pytest.raises(Conflict, match="table is in the way"):
            copies.clear(str(table))


@pytest.mark.slow
def test_a_topic_of_sums_that_is_there_already_is_left_alone():
    with sparrow.testing.broker() as broker:
        names = [copies.make_topic(broker.url, "commits.weekly") for _ in range(2)]
        assert names == ["commits.weekly", "commits.weekly-2"]
        with sparrow.sync.connect(broker.url) as client:
            config = client.admin.describe_topic(names[1]).config
        assert next(each.value for each in config if each.name == "cleanup.policy") == "compact"


def test_what_is_missing_is_said_with_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidArgument, match="apt install openjdk"):
        pipeline.check_installed()
    monkeypatch.setattr(pipeline, "find_spec", lambda name: None if name == "matplotlib" else 1)
    with pytest.raises(
        InvalidArgument, match=r"needs matplotlib; install it by pip install 'sparrow-broker\[demo\]'"
    ):
        pipeline.check_installed()


@pytest.mark.slow
def test_a_pipeline_that_fails_says_why(tmp_path):
    file = tmp_path / "bad.yml"
    file.write_text("name: bad\nflows: {a: {from: x, to: {tpoic: y}}}\n")
    with (
        PipelineRun(str(file), url="sparrow://127.0.0.1:1", log=f"{file}.log", is_once=True) as run,
        pytest.raises(SparrowError, match=r"the pipeline failed: .*tpoic"),
    ):
        run.wait(60)


@pytest.mark.slow
def test_a_kill_ends_all_of_it_in_whatever_group_it_is(tmp_path, monkeypatch):
    children = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '600'], process_group=0); open('up', 'w'); time.sleep(600)"
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{children}"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sparkrun.sys, "executable", str(program))
    with PipelineRun(str(tmp_path / "p.yml"), url="", log=str(tmp_path / "log"), is_once=False) as run:
        run.wait_until((tmp_path / "up").exists, 60)
        session = run._process.pid
        assert run.kill() == 2
        assert sparkrun._session(session) == []
        with pytest.raises(SparrowError, match="the pipeline ended too early: it said nothing; exit code -9"):
            run.wait_until(lambda: False, 60)
    with suppress(ProcessLookupError):
        os.kill(session, 0)
        raise AssertionError("the process is still there")


def checkpoint(path, begun, committed):
    for name, count in (("offsets", begun), ("commits", committed)):
        (path / name).mkdir(parents=True)
        for number in range(count):
            (path / name / str(number)).write_text("v1")


@pytest.mark.parametrize(
    ("outcomes", "log", "reason"),
    [
        ('{"progress": {}}\n{"outcome": {"failure": null}}\n{"outcome": {"failure": {"text": "flow a: no"}}}', "x", "flow a: no"),
        ('{"outcome": {"failure": nu', "sparrow: no broker\nsparrow-like\n", "no broker"),
        ("", "Java says this\nand that\n", "and that"),
        ("[]\n7", "", "it said nothing; exit code 0"),
    ],
)  # fmt: skip
def test_of_a_failure_the_reason_is_told(outcomes, log, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(sparkrun.sys, "executable", shutil.which("true"))
    with PipelineRun(str(tmp_path / "p.yml"), url="", log=str(tmp_path / "log"), is_once=True) as run:
        run.wait(60)
        (tmp_path / "log").write_text(log)
        (tmp_path / "log.json").write_text(outcomes)
        with pytest.raises(SparrowError, match=f"the pipeline ended too early: {reason}$"):
            run.wait_until(lambda: False, 60)
