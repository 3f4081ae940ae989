"""The stage without Spark: the copy of the pipeline that it runs, the moment of the kill, and what
it does with processes and places.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sparrow import pipelines
from sparrow.base.errors import Conflict, InvalidArgument, SparrowError
from sparrow.demo import pipeline, surroundings
from sparrow.demo.pipeline import PipelineRun
from sparrow.demo.surroundings import Context
from sparrow.pipelines.status import QueryBatches, batches_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def context(tmp_path, total) -> Context:
    out = str(tmp_path / "out")
    return Context(url="", topic="commits-7", total=total, workers=1, work_dir=str(tmp_path), out_dir=out)


def job_of(path, batches=8, table="table") -> pipeline.PipelineJob:
    return pipeline.PipelineJob("", str(path / table), str(path / "sums"), "", "", batches)


def test_the_pipeline_is_an_example_that_passes_its_checks():
    assert (EXAMPLES / "commits.yml").is_symlink()
    pipelines.load(str(EXAMPLES / "commits.yml")).check()


@pytest.mark.parametrize(("rows", "batches"), [(1, 1), (2, 2), (8, 8), (9, 5), (100_000, 8)])
def test_the_copy_reads_this_topic_in_several_batches_and_writes_to_the_output(rows, batches, tmp_path):
    job = pipeline.prepare(context(tmp_path, rows))
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
    check = pipeline._cut_check(job, QueryBatches(4, 3), QueryBatches(1, 1), 14)
    assert check.held
    assert check.detail == "kill -9 of 14 processes in batch 4 of 8 of the table, after 1 of 3 of the sums"
    assert pipeline._cut_check(job, QueryBatches(3, 3), QueryBatches(1, 1), 14).held
    for table in (QueryBatches(8, 8), QueryBatches(9, 8), QueryBatches(0, 0)):
        assert not pipeline._cut_check(job, table, QueryBatches(1, 1), 14).held
    checkpoint(tmp_path / "left", 9, 8)
    left = job_of(tmp_path, table="left")
    assert not pipeline._cut_check(left, QueryBatches(4, 3), QueryBatches(1, 1), 14).held


def test_batches_are_those_of_the_checkpoint(tmp_path):
    assert batches_of(str(tmp_path / "none")) == QueryBatches(0, 0)
    checkpoint(tmp_path / "some", 12, 11)
    (tmp_path / "some" / "commits" / ".11.crc").write_text("")
    assert batches_of(str(tmp_path / "some")) == QueryBatches(12, 11)
    assert QueryBatches(12, 11).is_in_one
    assert not QueryBatches(12, 12).is_in_one


def test_only_the_table_of_a_run_before_is_removed(tmp_path):
    table = tmp_path / "table"
    surroundings.clear(str(table))
    table.mkdir()
    surroundings.clear(str(table))
    (table / "_spark_metadata").mkdir(parents=True)
    (table / "a.parquet").write_text("")
    surroundings.clear(str(table))
    assert not table.exists()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("")
    table.symlink_to(tmp_path / "letters")
    for make in (lambda: None, lambda: (table.unlink(), table.mkdir(), (table / "dear.txt").write_text(""))):
        make()
        with pytest.raises(Conflict, match="table is in the way"):
            surroundings.clear(str(table))


def test_missing_software_is_named_with_its_installation(monkeypatch, tmp_path):
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
        PipelineRun(str(file), "sparrow://127.0.0.1:1", f"{file}.log", is_once=True) as run,
        pytest.raises(SparrowError, match=r"the pipeline failed: .*tpoic"),
    ):
        run.wait()


@pytest.mark.slow
def test_a_kill_ends_all_of_it_in_whatever_group_it_is(tmp_path, monkeypatch):
    children = (
        "import os, subprocess, sys, time; subprocess.Popen(['sleep', '600'], process_group=0); "
        "open('up', 'w'); time.sleep(600)"
    )
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{children}"\n')
    program.chmod(0o755)
    monkeypatch.setattr(pipeline.sys, "executable", str(program))
    with PipelineRun(str(tmp_path / "p.yml"), "", str(tmp_path / "log"), is_once=False) as run:
        run.wait_until((tmp_path / "up").exists)
        session = run._process.pid
        assert run.kill() == 2
        assert pipeline._kill(session) == 0
        with pytest.raises(SparrowError, match="the pipeline ended too early: it said nothing; exit code -9"):
            run.wait_until(lambda: False)
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
        (('{"progress": {}}\n{"outcome": {"failure": null}}\n{"outcome": {"failure": {"text": "flow '
         'a: no"}}}'), "x", "flow a: no"),
        ('{"outcome": {"failure": nu', "sparrow: no broker\nsparrow-like\n", "no broker"),
        ("", "Java says this\nand that\n", "and that"),
        ("[]\n7", "", "it said nothing; exit code 0"),
    ],
)  # fmt: skip
def test_failure_has_its_reason(outcomes, log, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline.sys, "executable", shutil.which("true"))
    with PipelineRun(str(tmp_path / "p.yml"), "", str(tmp_path / "log"), is_once=True) as run:
        run.wait()
        (tmp_path / "log").write_text(log)
        (tmp_path / "log.json").write_text(outcomes)
        with pytest.raises(SparrowError, match=f"the pipeline ended too early: {reason}$"):
            run.wait_until(lambda: False)
