"""`sparrow pipeline check|list|status|schema|run`, as far as they go without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import jsonschema_rs
import pytest
import yaml

import sparrow.testing
from sparrow import pipelines
from sparrow.pipelines.status import QueryBatches, batches_of, connection, status_of
from tests.pipelines_check.files import clean
from tests.pipelines_check.test_right_files import EXAMPLES, WHOLE

WRONG = clean(steps=("sql: SELECT nope FROM input",))
DEAD = {"dead_letters": "orders.dead"}


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker() as running:
        yield running


def write(home, text, name="p.yml"):
    (home / name).write_text(text)
    return name


# ── check and list ────────────────────────────────────────────────────────────────────────────────


def test_check_of_a_right_file_says_what_it_does(run, home):
    done = run("check", write(home, clean(more=DEAD)))
    assert done.code == 0
    assert done.lines == [
        ["p.yml: good, 1 flow"],
        ["FLOW", "FROM", "TO", "TRIGGER", "MODE", "STEPS"],
        ["clean", "topic orders", "topic clean (dead letters: orders.dead)", "once", "append", "none"],
    ]


def test_check_of_a_wrong_file_says_all_and_ends_with_78(run, home):
    done = run("check", write(home, WRONG))
    assert (done.code, done.out) == (78, "")
    assert done.err == (
        "sparrow: p.yml:8: flows.clean.steps[0].sql: there is no column 'nope' here; there are id, "
        "amount, at, name, tags, place\n"
    )


def test_check_as_json_is_one_object(run, home):
    wrong = run("check", write(home, WRONG), "--json")
    assert wrong.code == 78
    assert json.loads(wrong.out)["is_good"] is False
    assert json.loads(wrong.out)["errors"][0].startswith("p.yml:8: ")
    assert json.loads(run("check", write(home, clean()), "--json").out) == {
        "file": "p.yml",
        "is_good": True,
        "errors": [],
    }


def test_list_shows_the_flows_of_files_and_directories(run, home):
    write(home, clean())
    (home / "more").mkdir()
    write(
        home / "more",
        clean(to="console", top=("trigger: {every: 90 s}",)).replace("orders\n", "other\n", 1),
        "o.yaml",
    )
    done = run("list", "p.yml", "more")
    assert done.code == 0
    assert [row[:5] for row in done.lines[1:]] == [
        ["orders", "clean", "topic orders", "topic clean", "once"],
        ["other", "clean", "topic orders", "console", "every 1m30s"],
    ]
    assert json.loads(run("list", "p.yml", "--json").out)["query"] == "orders.clean"


def test_list_goes_on_behind_a_file_that_cannot_be_read(run, home):
    write(home, "name: [\n", "bad.yml")
    done = run("list", "bad.yml", write(home, clean()))
    assert done.code == 78
    assert "bad.yml" in done.err
    assert done.lines[1][:2] == ["orders", "clean"]


def test_list_of_the_examples_has_all_their_flows(run):
    done = run("list", EXAMPLES[0].parent, "--json")
    assert len(done.out.splitlines()) >= 2 * len(EXAMPLES)


def test_schema_allows_every_right_file(run, home):
    validator = jsonschema_rs.validator_for(json.loads(run("schema").out))
    for text in (WHOLE, clean(), *(path.read_text() for path in EXAMPLES)):
        # To an editor (YAML 1.2) a bare `on` is a string, and so are values for which JSON has no
        # type (points in time).
        given = yaml.safe_load(text.replace(" on: ", ' "on": '))
        validator.validate(json.loads(json.dumps(given, default=str)))
    assert not validator.is_valid({"name": "a", "flows": {"b": {"from": "c"}}})
    assert not validator.is_valid({"name": "a", "flow": {}})


def test_a_name_that_the_broker_declares_means_its_file(run, home):
    (home / "pipelines").mkdir()
    write(home / "pipelines", clean(), "o.yml")
    write(home, "pipelines: {nightly: {file: pipelines/o.yml}}\n", "sparrow.yml")
    assert run("check", "nightly").lines[0] == ["nightly: good, 1 flow"]
    assert "the pipeline's file daily cannot be read" in run("check", "daily").err


# ── run ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("wrong.yml",), 78, "wrong.yml:8: flows.clean.steps[0].sql: there is no column 'nope'"),
        (("none.yml",), 78, "the pipeline's file none.yml cannot be read"),
        (("p.yml", "--flow", "claen"), 2, "the pipeline orders has no flow 'claen'; did you mean 'clean'?"),
        (("p.yml", "--conf", "x"), 2, "--conf x: write NAME=VALUE"),
        (("p.yml", "--master", "local", "--remote", "sc://h"), 2, "--master and --remote are two places"),
        (("p.yml", "--url", "kafka://h"), 78, "its scheme is 'kafka'"),
    ],
)
def test_run_refuses_wrong_files_before_spark_starts(arguments, code, sentence, run, home):
    write(home, WRONG, "wrong.yml")
    write(home, clean())
    before = set(sys.modules)
    done = run("run", *arguments)
    assert done.code == code
    assert sentence in done.err
    assert not {"sparrow.pipelines.engine"} & (set(sys.modules) - before)


# ── status ────────────────────────────────────────────────────────────────────────────────────────


def test_status_without_a_broker_shows_the_checkpoints_and_ends_with_69(run, home):
    write(home, clean(more=DEAD))
    commits = home / "checkpoints" / "clean" / "commits"
    commits.mkdir(parents=True)
    for name in ("0", "1", "10", ".10.crc", "9.compact"):
        (commits / name).write_text("")
    done = run("status", "p.yml", "--url", "sparrow://127.0.0.1:1")
    assert done.code == 69
    assert done.lines[1:] == [
        ["clean", "unknown", "10", "-", "-", "-", "-", "-"],
        ["clean.dead", "unknown", "-", "-", "-", "-", "-", "-"],
    ]
    assert "no broker can be reached at 127.0.0.1:1" in done.err


def test_status_shows_what_runs_report_and_how_far_behind_they_are(run, home, broker):
    write(home, clean(more=DEAD, top=(f"broker: {broker.url}",)))
    pipeline = pipelines.load("p.yml")
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", partitions=1)
        for _ in range(5):
            client.publish("orders", b"x")
        client.admin.commit("spark-orders.clean", {("orders", 0): 2})
    with connection(pipeline) as link:
        report = {
            "name": "orders",
            "flow": "clean",
            "run": "1",
            "rows": 2,
            "rows_per_second": 10.0,
            "batch": 0,
        }
        link.call("pipeline.report", {**report, "state": "running", "batch_ms": 200})
        found = status_of(pipeline, link)
    assert [(each.flow, each.state, each.lag, each.rows) for each in found] == [
        ("clean", "running", 3, 2),
        ("clean.dead", "running", None, None),
    ]
    done = run("status", "p.yml")
    assert done.code == 0
    assert done.lines[1][:7] == ["clean", "running", "-", "3", "2", "10", "200"]


@pytest.mark.parametrize(
    ("state", "age_ms", "shown"),
    [("running", 5_000, "running"), ("running", 60_000, "silent"), ("failed", 60_000, "failed")],
)
def test_run_that_has_not_reported_for_long_is_not_said_to_run(home, state, age_ms, shown):
    class Link:
        def call(self, verb, _):
            updated_ms = int(time.time() * 1000) - age_ms
            report = {"name": "orders", "flow": "clean", "state": state, "updated_ms": updated_ms}
            return {"pipelines": [report]} if verb == "pipeline.list" else {"offsets": []}

    write(home, clean())
    (found,) = status_of(pipelines.load("p.yml"), Link())
    assert found.state == shown


def test_status_of_a_flow_that_failed_says_why_and_ends_with_1(run, home, broker):
    write(home, clean(top=(f"broker: {broker.url}",)).replace("name: orders", "name: failing"))
    with connection(pipelines.load("p.yml")) as link:
        link.call(
            "pipeline.report", {"name": "failing", "flow": "clean", "state": "failed", "error": "it broke"}
        )
    done = run("status", "p.yml", "--json")
    assert done.code == 1
    assert json.loads(done.out)["error"] == "it broke"


def test_batches_of_a_checkpoint_behind_a_uri_are_not_known():
    assert batches_of("s3a://bucket/checkpoints/clean") == QueryBatches()


# ── without Spark ─────────────────────────────────────────────────────────────────────────────────

_BLOCKED = """
import sys, time
for name in ("pyspark", "py4j", "numpy", "pyarrow", "numba", "pandas"):
    sys.modules[name] = None
from sparrow import pipelines
from sparrow.cli import main
assert pipelines.load(sys.argv[1]).name == "orders"
code = main(["pipeline", "check", sys.argv[1]])
print(time.process_time(), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.slow
def test_check_needs_no_spark_and_starts_no_java(home):
    write(home, WHOLE)
    (home / "secret").write_text("x\n")
    (home / "people.csv").write_text("id,country\n")
    environment = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED, "p.yml"],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("p.yml: good, 4 flows, 4 tables")
    # One second, with room for a slow machine.
    assert float(done.stderr) < 3
