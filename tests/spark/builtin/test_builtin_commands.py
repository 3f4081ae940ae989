"""The commands of the built-in pipelines, as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparrow.cli import main
from sparrow.cli.exits import BAD_DATA, FAILED, OK, UNAVAILABLE, USAGE
from sparrow.sync.client import Client
from sparrow.testing.running import RunningBroker
from tests.spark.builtin.loglines import lines
from tests.spark.builtin.published import got, publish_natively, values_of

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `sparrow pipeline ARGUMENTS…` in this process; gives exit code, stdout and stderr."""
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
    for seed in (1, 2):
        publish_natively(client, name, lines(100, seed))
        code, out, err = run("archive", name, "--to", archive, "--by", "month")
        assert code == OK
        assert out.splitlines()[1].split("\t")[:2] == [name, "100"]
        assert "archiving 100 offsets of 1 topic" in err
    code, out, _ = run("compact-table", archive, "--target-size", "16MiB", "--json")
    assert code == OK
    assert json.loads(out)["files_after"] < json.loads(out)["files_before"]
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
    assert sum(int(row[2]) for row in rows[1:]) == 200
    code, out, _ = run("stats", name, "--json")
    assert json.loads(out)["messages"] == 200
    client.admin.delete_records(name, {0: 1, 1: 1})
    assert run("archive", name, "--to", archive)[:2] == (
        OK,
        f"TOPIC\tARCHIVED\tFILES\tSIZE\n{name}\t0\t0\t0 B\n",
    )


def test_deleted_messages_end_the_archive_with_1_and_their_number(
    client: Client, name: str, run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    client.admin.create_topic(name, partitions=1)
    publish_natively(client, name, lines(10))
    assert run("archive", name, "--to", tmp_path / "a")[0] == OK
    publish_natively(client, name, lines(10))
    client.admin.delete_records(name, {0: 20})
    code, _, err = run("archive", name, "--to", tmp_path / "a")
    assert code == FAILED
    assert f"{name}-0: 10 offsets (10 to 19) were deleted before they were archived" in err


def test_redrive_from_the_command_line(
    client: Client, name: str, run: Run, broker: RunningBroker, spark: SparkSession
) -> None:
    client.admin.create_topic(name, partitions=1)
    for number in range(3):
        headers = {"reason": b"bad", "flow": b"f", "topic": name.encode()}
        client.publish(f"{name}.dead", b"%d" % number, headers=headers)
    code, out, _ = run("redrive", f"{name}.dead", "--where", "value = '1'", "--dry-run")
    assert code == OK
    assert out.splitlines()[-1] == f"{name}.dead\t1\t0\t0\t0"
    code, out, _ = run("redrive", f"{name}.dead", "--where", "value = '1'", "--json")
    assert json.loads(out)["sent"] == 1
    assert values_of(got(broker, name)) == [b"1"]


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
    arguments: list[str], code: int, text: str, run: Run
) -> None:
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
