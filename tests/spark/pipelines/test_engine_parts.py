"""The parts of the engine that need no Spark: order of flows, reasons from long texts, progress
from reports, lines for people.
"""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from sparrow.base.errors import Conflict, InvalidConfig, NotFound, StorageFailed, UnknownTopic
from sparrow.pipelines import Pipeline
from sparrow.pipelines.engine.display import Display, line_of
from sparrow.pipelines.engine.failures import first_line, flow_failure
from sparrow.pipelines.engine.graph import chosen, generations
from sparrow.pipelines.engine.progress import DONE, RUNNING, Progress, ProgressTally, lag_of
from sparrow.pipelines.engine.sinks.jdbc import merge_statement
from sparrow.pipelines.engine.sinks.parquet import refuse_other_checkpoint
from sparrow.pipelines.engine.states import FlowState, load_state, newest_batch, save_state
from sparrow.pipelines.engine.steps import _with_placeholders, load_function
from sparrow.pipelines.model import ConsoleSink, Flow, Sink, Source, TopicSink

# ── graph ─────────────────────────────────────────────────────────────────────────────────────────


def flow(name: str, *, topics: tuple[str, ...] = ("t",), reads: str | None = None, to: str = "") -> Flow:
    sink: Sink = TopicSink(topic=to) if to else ConsoleSink()
    return Flow(name=name, source=Source(topics=() if reads else topics, flow=reads), sink=sink)


def test_flows_follow_those_whose_sinks_they_read() -> None:
    flows = [
        flow("last", reads="middle"),
        flow("middle", topics=("clean",), to="sums"),
        flow("first", to="clean"),
        flow("other"),
    ]
    names = [[each.name for each in generation] for generation in generations(flows)]
    assert names == [["first", "other"], ["middle"], ["last"]]


def test_flows_follow_those_whose_topics_their_pattern_takes_and_whose_dead_letters_they_read() -> None:
    first = replace(flow("first", to="orders.clean"), dead_letters="orders.dead")
    by_pattern = Flow(name="all", source=Source(pattern=r"orders\.cl.*"), sink=ConsoleSink())
    flows = [by_pattern, flow("repair", topics=("orders.dead",)), first]
    names = [[each.name for each in generation] for generation in generations(flows)]
    assert names == [["first"], ["all", "repair"]]


def test_flow_that_writes_to_the_topic_it_reads_does_not_wait_for_itself() -> None:
    assert len(generations([flow("echo", topics=("t",), to="t")])) == 1


def test_unknown_flow_is_reported_with_those_that_there_are() -> None:
    pipeline = Pipeline(name="p", flows=[flow("clean"), flow("sums")])
    assert [each.name for each in chosen(pipeline, ["sums"])] == ["sums"]
    with pytest.raises(NotFound, match=r"no flow 'sum'; did you mean 'sums'\?; it has clean, sums"):
        chosen(pipeline, ["sum"])


# ── failures ──────────────────────────────────────────────────────────────────────────────────────

STOPPED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to \
stage failure: Task 0 in stage 1.0 failed 1 times:
org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] SPARROW_STOP:the \
expectation 'positive' (a > 0) failed for topic orders, partition 1, offset 7 SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2775)"""
OURS = """[STREAM_FAILED] Query terminated with exception: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker: Traceback (most recent call last):
  File "worker.py", line 1, in main
sparrow.base.errors.ConnectionLost: no broker can be reached at 127.0.0.1:1
 SQLSTATE: 38000"""
CLASSED = """[STREAM_FAILED] Query terminated with exception: [DIVIDE_BY_ZERO] Division by zero. \
Use `try_divide`. SQLSTATE: 22012
== SQL ==
SELECT 1/0"""
RAISED = """[STREAM_FAILED] Query terminated with exception: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker:
Traceback (most recent call last):
  File "steps.py", line 3, in enrich
ValueError: no such thing
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            STOPPED,
            "the expectation 'positive' (a > 0) failed for topic orders, partition 1, offset 7",
        ),
        (OURS, "no broker can be reached at 127.0.0.1:1"),
        (CLASSED, "Division by zero. Use `try_divide`. [DIVIDE_BY_ZERO]"),
        (RAISED, "ValueError: no such thing"),
        ("only this\nand more", "RuntimeError: only this"),
        ("", "RuntimeError"),
    ],
)
def test_reason_is_found_in_an_error_of_spark(text: str, reason: str) -> None:
    assert first_line(RuntimeError(text)) == reason


def test_failure_names_flow_and_batch_and_keeps_all_that_was_said() -> None:
    failure = flow_failure("clean", 7, RuntimeError(STOPPED))
    assert failure.text.startswith("flow clean, batch 7: the expectation 'positive'")
    assert "QueryExecutionErrors" in failure.detail
    assert flow_failure("clean", None, UnknownTopic("there is none")).text == "flow clean: there is none"


# ── progress ──────────────────────────────────────────────────────────────────────────────────────


def report(
    batch: int, *, rows: int = 10, end: int = 10, latest: int = 25, has_run: bool = True
) -> dict[str, Any]:
    return {
        "timestamp": f"2024-01-01T00:00:{batch:02}.000Z",
        "batchId": batch,
        "durationMs": {"triggerExecution": 500, **({"addBatch": 400} if has_run else {})},
        "sources": [
            {
                "numInputRows": rows,
                "endOffset": f'{{"orders": {{"0": {end}}}, "$ids": {{"orders": "x"}}}}',
                "latestOffset": f'{{"orders": {{"0": {latest}, "1": 3}}}}',
            }
        ],
        "observedMetrics": {"sparrow_rows_expectations": {"positive": 2, "other": 0}, "somebody's": {"x": 1}},
    }


def test_reports_of_batches_add_up_and_none_counts_twice() -> None:
    tally = ProgressTally("clean")
    tally.take([report(0), report(1)])
    tally.take([report(1), report(2, rows=5)])
    found = tally.progress(RUNNING)
    assert (found.rows, found.batches, found.batch, found.rows_per_second) == (25, 3, 2, 10.0)
    assert found.refused == {"positive": 6}
    assert found.lag == 18


def test_counts_are_the_same_as_spark_connect_tells_them() -> None:
    fields = [{"name": "positive", "type": "long"}, {"name": "other", "type": "long"}]
    values = {"values": [2, 0], "schema": {"type": "struct", "fields": fields}}
    tally = ProgressTally("clean")
    tally.take([{**report(0), "observedMetrics": {"sparrow_rows_expectations": values}}])
    assert tally.progress(RUNNING).refused == {"positive": 2}


def test_looking_for_news_is_no_batch_but_tells_the_lag() -> None:
    tally = ProgressTally("clean")
    tally.take([report(0), report(1, rows=0, end=25, has_run=False)])
    found = tally.progress(RUNNING)
    assert (found.batches, found.batch, found.lag) == (1, 0, 3)


@pytest.mark.parametrize("offsets", [None, "", "null", "[]", "{", {"orders": 5}, 7])
def test_lag_is_not_known_where_offsets_are_not_reported(offsets: Any) -> None:
    assert lag_of([{"endOffset": offsets, "latestOffset": offsets}]) is None
    assert lag_of([]) is None


# ── for people ────────────────────────────────────────────────────────────────────────────────────


def test_line_of_a_flow_has_its_figures() -> None:
    progress = Progress(
        "clean",
        RUNNING,
        rows=12345,
        rows_per_second=1234.5,
        batch_ms=1500,
        lag=7,
        batch=3,
        refused={"positive": 2},
    )
    expected = (
        "clean: running, batch 3, 12,345 rows, 1,234 rows/s, 1,500 ms a batch, lag 7, refused positive 2"
    )
    assert line_of(progress) == expected
    assert line_of(Progress("clean")) == "clean: starting"


def test_lines_are_written_when_a_state_changes_and_not_at_each_look() -> None:
    out = io.StringIO()
    with Display(Console(file=out)) as display:
        running = Progress("clean", RUNNING, rows=1, batch=0)
        for progress in (running, replace(running, rows=2), replace(running, state=DONE)):
            display.show([progress])
    assert [line.split(",")[0] for line in out.getvalue().splitlines()] == ["clean: running", "clean: done"]


def test_terminal_shows_a_table_with_failures() -> None:
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=True, width=120)) as display:
        display.show([Progress("clean", "failed", rows=1, batch=0, error="flow clean: it broke")])
    assert "flow clean: it broke" in out.getvalue()


# ── SQL, functions, files ─────────────────────────────────────────────────────────────────────────


def test_tables_of_a_query_become_placeholders_and_the_rest_stays_as_it_was() -> None:
    query = (
        "WITH x AS (SELECT * FROM input i) SELECT '{a}' AS t /* input */ "
        "FROM x JOIN Customers ON x.c = Customers.c"
    )
    text, used = _with_placeholders(query, ["input", "customers"])
    assert text == (
        "WITH x AS (SELECT * FROM {table_0} i) SELECT '{{a}}' AS t /* input */ FROM x JOIN "
        "{table_1} AS `customers` ON x.c = Customers.c"
    )
    assert used == {"input": "table_0", "customers": "table_1"}


def test_name_that_a_query_defines_itself_is_not_the_table() -> None:
    text, used = _with_placeholders("WITH input AS (SELECT 1 AS a) SELECT * FROM input", ["input"])
    assert (text, used) == ("WITH input AS (SELECT 1 AS a) SELECT * FROM input", {})


def test_function_that_is_not_there_is_reported_with_its_source(tmp_path: Any) -> None:
    (tmp_path / "steps.py").write_text("def enrich(df):\n    return df\n\nnumber = 1\n")
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    path = str(tmp_path)
    assert callable(load_function(f"{path}/steps.py:enrich", path))
    for name, text in (
        (f"{path}/steps.py:enrik", "has no function 'enrik'"),
        (f"{path}/steps.py:number", "has no function 'number'"),
        (f"{path}/broken.py:x", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("no_such_module_anywhere:x", "cannot be imported for the step"),
    ):
        with pytest.raises(InvalidConfig, match=text):
            load_function(name, path)


def test_merge_takes_rows_over_by_their_key() -> None:
    assert merge_statement("totals", "totals_sparrow", ["id", "sum"], ["id"]) == (
        'MERGE INTO totals t USING totals_sparrow s ON t."id" = s."id" WHEN MATCHED THEN UPDATE '
        'SET "sum" = s."sum"'
        ' WHEN NOT MATCHED THEN INSERT ("id", "sum") VALUES (s."id", s."sum")'
    )


def test_files_of_another_checkpoint_are_refused_and_those_of_a_start_that_was_killed_are_not(
    tmp_path: Any,
) -> None:
    listed = tmp_path / "out" / "_spark_metadata"
    checkpoint = tmp_path / "checkpoint"
    refuse = partial(refuse_other_checkpoint, str(tmp_path / "out"), str(checkpoint))
    refuse()
    listed.mkdir(parents=True)
    (listed / ".0.f00.tmp").touch()
    refuse()
    (listed / "9.compact").touch()
    with pytest.raises(Conflict, match="was written with another checkpoint"):
        refuse()
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "9").touch()
    refuse()


def test_state_of_a_flow_lies_beside_its_checkpoint(tmp_path: Any) -> None:
    directory = str(tmp_path / "clean")
    state = load_state(directory)
    assert load_state(directory) == state
    save_state(directory, state.with_schema("value", "a int"))
    assert load_state(directory) == FlowState(state.id, {"value": "a int"})
    assert load_state(f"file://{directory}").id == state.id
    assert newest_batch(directory) is None
    (tmp_path / "clean" / "offsets").mkdir()
    for name in ("9", "10", ".9.crc"):
        (tmp_path / "clean" / "offsets" / name).touch()
    assert newest_batch(directory) == 10
    (tmp_path / "clean" / "sparrow.json").write_text("{")
    with pytest.raises(StorageFailed, match="cannot be used"):
        load_state(directory)
