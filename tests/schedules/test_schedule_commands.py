"""`sparrow schedule …`, and schedules of the configuration file, at a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.cli import main
from sparrow.server.config import load


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    filed = {"filed": {"queue": "jobs", "every": "1h"}}
    with sparrow.testing.broker(schedules=filed, queues={"jobs": {"partitions": 1}}) as broker:
        monkeypatch.setenv("SPARROW_URL", broker.url)

        def run(*arguments: str) -> tuple[int, str, str]:
            capsys.readouterr()
            code = main([*arguments])
            return code, *capsys.readouterr()

        yield run


def test_a_schedule_is_created_shown_run_paused_and_deleted(run) -> None:
    code, out, _ = run(
        "schedule", "create", "nightly", "jobs", "hello",
        "--cron", "30 2 * * MON-FRI", "--time-zone", "Europe/Berlin",
        "--header", "a=b", "--priority", "7", "--overlap", "skip",
    )  # fmt: skip
    assert code == 0
    assert out.splitlines()[0] == "schedule nightly publishes to jobs, 30 2 * * MON-FRI (Europe/Berlin)"
    assert len(out.splitlines()) == 6
    assert run("schedule", "run", "nightly")[1] == "published to jobs, partition 0, offset 0\n"
    out = run("queue", "lease", "jobs", "--ack")[1]
    assert "hello" in out
    out = run("schedule", "list")[1]
    assert [line.split()[0] for line in out.splitlines()] == ["SCHEDULE", "filed", "nightly"]
    (shown,) = map(json.loads, run("schedule", "show", "nightly", "--json")[1].splitlines())
    assert (shown["overlap"], shown["priority"], shown["headers"]) == ("skip", 7, [["a", "b"]])
    assert run("schedule", "pause", "nightly")[0] == 0
    assert "paused" in run("schedule", "show", "nightly")[1]
    assert len(run("schedule", "resume", "nightly")[1].splitlines()) == 5
    assert run("queue", "delete", "jobs", "--yes")[0] == 0
    assert "queue 'jobs' is missing: it was deleted." in run("schedule", "list")[1]
    assert run("schedule", "delete", "nightly", "--yes")[0] == 0
    code, _, err = run("schedule", "show", "nightly")
    assert code != 0
    assert "there is no schedule 'nightly'" in err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--cron", "0 0 30 2 *"], "would never be due"),
        (["--cron", "@daily", "--time-zone", "Mars"], "time_zone 'Mars' is not known"),
        (["--every", "5ms"], "every"),
        ([], "give one of them"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(run, options: list[str], text: str) -> None:
    code, _, err = run("schedule", "create", "x", "jobs", *options)
    assert code != 0
    assert text in err


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("x: {queue: jobs, cron: '0 0 30 2 *'}", "never be due"),
        ("x: {queue: jobs, interval: 5m}", "the time between two jobs is 'every'"),
        ("x: {queue: jobs, every: 5m, overlap: wait}", "one of skip, run_once, run_all"),
        ("x: {every: 5m}", "needs a queue"),
        ("a/b: {queue: jobs, every: 5m}", "without '/'"),
    ],
)
def test_errors_of_the_file_name_the_place(lines: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "sparrow.yml"
    file.write_text(f"queues: [jobs]\nschedules:\n  {lines}\n")
    with pytest.raises(sparrow.InvalidConfig) as refused:
        load({"config": str(file)}, {})
    assert text in refused.value.text
    assert "sparrow.yml:3" in refused.value.text
