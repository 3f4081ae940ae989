"""The commands of the built-in pipelines, as typed by a user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparrow.cli import main
from sparrow.cli.exits import BAD_DATA, FAILED, OK, UNAVAILABLE, USAGE
from sparrow.pipelines import builtin
from sparrow.pipelines.builtin.manifest import ArchiveGap
from sparrow.spark.wire import session
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.spark.builtin.loglines import lines
from tests.spark.builtin.published import got, publish_natively, values_of

Run = Callable[..., tuple[int, str, str]]
Stub = Callable[[str, object], list[dict[str, Any]]]


@pytest.fixture
def run(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `sparrow pipeline ARGUMENTS…` in this process. Return exit code, stdout and stderr."""
    monkeypatch.setenv("SPARROW_URL", broker.url)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["pipeline", *[str(each) for each in arguments]])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_archive_compact_replay_and_stats_from_the_command_line(
    spark: SparkSession, broker: RunningBroker, client: Client, name: str, run: Run, tmp_path: Path
) -> None:
    client.admin.create_topic(name, partitions=2)
    archive = tmp_path / "archive"
    publish_natively(client, name, lines(100))
    code, out, err = run("archive", name, "--to", archive, "--by", "month")
    assert code == OK
    assert out.splitlines()[1].split("\t")[:2] == [name, "100"]
    assert "archiving 100 offsets of 1 topic" in err
    code, out, _ = run("compact-table", archive, "--target-size", "16MiB", "--json")
    assert code == OK
    assert json.loads(out)["format"] == "archive"
    code, out, _ = run(
        "replay", archive, "--to", f"{name}-again", "--where", "offset >= 10 AND partition = 1"
    )
    assert code == OK
    assert sorted(map(str, values_of(got(broker, f"{name}-again")))) == sorted(
        str(record.value) for record in got(broker, name)[1][10:]
    )
    code, out, _ = run("stats", name, "--window", "1d")
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0][:3] == ["TOPIC", "WINDOW", "MESSAGES"]
    assert sum(int(row[2]) for row in rows[1:]) == 100
    client.admin.delete_records(name, {0: 1, 1: 1})
    assert run("archive", name, "--to", archive)[:2] == (
        OK,
        f"TOPIC\tARCHIVED\tFILES\tSIZE\n{name}\t0\t0\t0 B\n",
    )


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Replace a pipeline by one that returns at once. Return the arguments of its call."""

    def stub(name: str, answer: object) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def call(*arguments: object, **options: Any) -> object:
            calls.append({"arguments": arguments, **options})
            return answer

        monkeypatch.setattr(builtin, name, call, raising=False)
        return calls

    return stub


def test_deleted_messages_end_the_archive_with_1_and_their_number(run: Run, stub: Stub) -> None:
    topic = builtin.ArchivedTopic("logs", 3, 1, 400, (ArchiveGap(0, 10, 20, "now"),))
    stub("archive", builtin.Archived("/a", (topic,), "run"))
    code, out, err = run("archive", "logs", "--to", "/a")
    assert (code, out.splitlines()[1]) == (FAILED, "logs\t3\t1\t400 B")
    assert "logs-0: 10 offsets (10 to 19) were deleted before they were archived" in err
    code, out, _ = run("archive", "logs", "--to", "/a", "--json")
    assert (code, json.loads(out)["topics"][0]["gaps"][0]["to_offset"]) == (FAILED, 20)


def test_options_reach_the_pipelines(run: Run, stub: Stub, broker: RunningBroker) -> None:
    calls = stub("stats", [])
    assert run("stats", "a", "b*", "--window", "1h", "--since", "1970-01-01T00:00:01", "--exact")[0] == OK
    (call,) = calls
    assert call["arguments"] == (["a", "b*"],)
    assert (call["window_ms"], call["since_ms"], call["until_ms"], call["exact"]) == (
        3_600_000,
        1000,
        None,
        True,
    )
    assert call["connection"]["url"] == broker.url
    assert call["conf"]["spark.sql.session.timeZone"] == "UTC"
    calls = stub("replay", builtin.Replayed("/a", "t", 0, was_done=True))
    zone = ("--conf", "spark.sql.session.timeZone=Asia/Tokyo")
    code, _, err = run("replay", "/a", "--to", "t", "--rate", "5", "--no-verify", "--sink-id", "x", *zone)
    assert calls[0]["conf"]["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert (calls[0]["per_second"], calls[0]["verify"], calls[0]["sink_id"]) == (5, False, "x")
    assert (code, "the replay 'x' was done before; nothing was written" in err) == (OK, True)


def test_redrive_reports_its_result_and_that_of_a_dry_run(run: Run, stub: Stub) -> None:
    letter = builtin.Letter(0, 7, "bad", None, "orders", "k")
    stub("redrive", builtin.Redriven("orders.dead", 1, 0, sample=(letter,), is_dry_run=True))
    code, out, _ = run("redrive", "orders.dead", "--where", "value = '1'", "--dry-run")
    assert (code, out.splitlines()[1]) == (OK, "0\t7\tbad\t-\torders\tk")
    assert out.splitlines()[-1] == "orders.dead\t1\t0\t0\t0"
    stub("redrive", builtin.Redriven("orders.dead", 3, 1, failed=1, left=1))
    code, out, _ = run("redrive", "orders.dead", "--json")
    assert (code, json.loads(out)["sent"]) == (FAILED, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["stats", "nothing"], FAILED, "there is no topic 'nothing'"),
        (["stats", "nothing", "--window", "x"], USAGE, "--window x: a duration such as"),
        (["stats", "nothing", "--since", "x"], USAGE, "--since x: 'x' is no time"),
        (["archive", "a", "--to", "/tmp/x", "--format", "orc"], USAGE, "written as parquet only"),
        (["archive", "a", "--to", "/tmp/x", "--by", "week"], USAGE, "It is one of month, day"),
        (["archive", "a", "--to", "/tmp/x", "--conf", "x"], USAGE, "write NAME=VALUE"),
        (["compact-table", "/nowhere"], USAGE, "no such file or directory"),
        (["compact-table", "/nowhere", "--target-size", "big"], USAGE, "--target-size big: a size such as"),
        (["redrive", "nothing"], FAILED, "there is no topic 'nothing'"),
        (
            ["redrive", "nothing", "--where", "resaon = 'x'"],
            USAGE,
            "no column 'resaon'; did you mean 'reason'?",
        ),
        (["replay", "/nowhere", "--to", "t"], USAGE, "no such file or directory"),
        (["stats", "a", "--url", "sparrow://127.0.0.1:1"], UNAVAILABLE, "127.0.0.1:1"),
    ],
)
def test_mistakes_end_with_a_sentence_before_spark_starts(
    arguments: list[str], code: int, text: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "BACKOFF_INITIAL_S", 0.01)
    ended, _, err = run(*arguments)
    assert (ended, text in err) == (code, True), err
    assert "Traceback" not in err


def test_a_damaged_archive_is_bad_data(
    client: Client, name: str, run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    client.admin.create_topic(name, partitions=1)
    publish_natively(client, name, lines(10))
    run("archive", name, "--to", tmp_path)
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1])
    code, _, err = run("replay", tmp_path, "--to", f"{name}-again")
    assert code == BAD_DATA
    assert "is not what its manifest says" in err
