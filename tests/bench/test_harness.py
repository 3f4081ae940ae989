"""The choice of workloads, and the handling of those that fail."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager

import pytest

import bench.__main__ as command
import bench.workloads
from bench import budget, harness
from bench.budget import Budget
from bench.kept import keeping, kept
from bench.peers.daemon import NotInstalled
from bench.results import Measurement

NAMES = ["latency", "queue-latency", "queue-batches", "spark-write"]


def good(runs, scale):
    return [Measurement(f"good at {scale:g}", "ms", runs=[1.0] * runs)]


def bad(runs, scale):
    raise RuntimeError("the disk is gone\nand more")


def missing(runs, scale):
    raise NotInstalled("java is not installed")


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("", NAMES),
        ("queue", ["queue-latency", "queue-batches"]),
        ("latency", ["latency"]),
        ("write, batches", ["queue-batches", "spark-write"]),
    ],
)
def test_words_choose_workloads_by_name_or_part_of_it(only, expected):
    assert harness.chosen(NAMES, only) == expected


def test_some_workloads_go_along_with_a_word():
    along = {"queue": ("spark-write",)}
    assert harness.chosen(NAMES, "queue", along) == ["queue-latency", "queue-batches", "spark-write"]
    assert harness.chosen(NAMES, "queue-batches", along) == ["queue-batches"]


def test_word_that_no_workload_has_is_refused():
    with pytest.raises(harness.Unknown, match="no workload has 'kafak'"):
        harness.chosen(NAMES, "queue,kafak")


def test_workload_that_fails_is_a_row_and_the_next_one_runs(capsys):
    workloads = {"bad": bad, "missing": missing, "good": good}
    rows = [row for *_, rows in harness.measure(workloads, list(workloads), Budget(2)) for row in rows]
    assert [(row.group, row.note, row.failed) for row in rows] == [
        ("bad", "failed: the disk is gone", True),
        ("missing", "java is not installed", False),
        ("good", "", False),
    ]
    assert rows[2].runs == [1.0, 1.0]
    assert "and more" in capsys.readouterr().err


def test_quick_run_scales_down_and_says_what_it_leaves_out(monkeypatch):
    monkeypatch.setattr(budget, "_QUICK", {"good": 0.5})
    monkeypatch.setattr(budget, "_FULL_ONLY", {"long": "ten gigabytes"})
    workloads = {"good": good, "other": good, "long": bad}
    found = list(harness.measure(workloads, list(workloads), Budget(1, is_quick=True)))
    assert [row.name for *_, rows in found for row in rows] == ["good at 0.5", "good at 0.1", "long"]
    assert found[2][2][0].note == "full run only: ten gigabytes"


def test_budget_names_workloads_that_exist():
    assert set(bench.workloads.WORKLOADS) >= {*budget._QUICK, *budget._FULL_ONLY}


@pytest.fixture
def few(monkeypatch):
    """Choose two workloads, without questions to the machine and the peers."""
    workloads = {"good": good, "bad": bad}
    monkeypatch.setattr(bench.workloads, "WORKLOADS", workloads)
    monkeypatch.setattr(command, "machine", lambda: {"cores": 2})
    monkeypatch.setattr(command, "versions", dict)
    return workloads


def bench_command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    return command.main()


def test_failure_gives_exit_code_1_and_keeps_measured_rows_in_the_file(few, monkeypatch, tmp_path, capsys):
    path = tmp_path / "results.json"
    assert bench_command(monkeypatch, "--runs", "2", "--json", str(path)) == 1
    rows = json.loads(path.read_text())["measurements"]
    assert [(row["name"], row["runs"], row["failed"]) for row in rows] == [
        ("good at 1", [1.0, 1.0], False),
        ("bad", [], True),
    ]
    printed = capsys.readouterr().out
    assert re.search(r"0 s  good … 1 row in 0\.0 s", printed)
    assert "FAILED" in printed


def test_interrupted_run_keeps_measured_rows(few, monkeypatch, tmp_path, capsys):
    def interrupted(runs, scale):
        raise KeyboardInterrupt

    few["bad"] = interrupted
    path = tmp_path / "results.json"
    assert bench_command(monkeypatch, "--json", str(path)) == 130
    assert [row["group"] for row in json.loads(path.read_text())["measurements"]] == ["good"]
    assert "good at 1" in capsys.readouterr().out


def test_a_file_system_in_memory_is_warned_of(few, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "machine", lambda: {"cores": 2, "file_system": "tmpfs"})
    bench_command(monkeypatch, "--only", "good", "--json", str(tmp_path / "results.json"))
    assert "nothing is synced; name a directory on a disk: TMPDIR=" in capsys.readouterr().err


def test_missing_peers_are_told_before_anything_is_measured(few, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        command,
        "versions",
        lambda: {"Redis": "not installed (apt-get install redis-server)", "NATS": "2.9.10"},
    )
    bench_command(monkeypatch, "--only", "good", "--json", str(tmp_path / "results.json"))
    told = capsys.readouterr().err
    assert "bench: without Redis: not installed (apt-get install redis-server); its rows stay empty" in told
    assert "nats-server 2.9.10 cannot sync before it acknowledges" in told
    monkeypatch.setattr(command, "versions", lambda: {"Redis": "7.0.15", "NATS": "2.10.29"})
    bench_command(monkeypatch, "--only", "good", "--json", str(tmp_path / "results.json"))
    assert "without" not in capsys.readouterr().err


def test_merged_run_leaves_other_workloads_in_the_file(few, monkeypatch, tmp_path, capsys):
    path = tmp_path / "results.json"
    assert bench_command(monkeypatch, "--only", "good", "--json", str(path)) == 0
    few["bad"] = lambda runs, scale: [Measurement("repaired", "ms", runs=[3.0])]
    assert bench_command(monkeypatch, "--only", "bad", "--merge", "--json", str(path)) == 0
    names = [row["name"] for row in json.loads(path.read_text())["measurements"]]
    assert names == ["good at 1", "repaired"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "kafak"], "no workload has 'kafak'"),
        (["--quick", "--merge"], "a full run, this is a quick one"),
    ],
)
def test_misuse_is_told_and_measures_nothing(few, monkeypatch, tmp_path, capsys, words, said):
    path = tmp_path / "results.json"
    bench_command(monkeypatch, "--only", "good", "--json", str(path))
    before = path.read_text()
    assert bench_command(monkeypatch, *words, "--json", str(path)) == 2
    assert said in capsys.readouterr().err
    assert path.read_text() == before


# ── what is kept between workloads ────────────────────────────────────────────────────────────────


@pytest.fixture
def started():
    """Return the log of starts and ends, and a function that starts a peer."""
    events = []

    @contextmanager
    def start():
        number = len(events)
        events.append(f"start {number}")
        yield number
        events.append(f"end {number}")

    return events, start


def test_thing_is_fresh_for_each_unless_it_is_kept(started):
    events, start = started
    for _ in range(2):
        with kept("thing", start):
            pass
    assert events == ["start 0", "end 0", "start 2", "end 2"]


def test_thing_is_kept_until_the_block_ends(started):
    events, start = started
    with keeping():
        for _ in range(3):
            with kept("thing", start) as number:
                assert number == 0
        assert events == ["start 0"]
    assert events == ["start 0", "end 0"]


def test_thing_in_whose_block_something_failed_is_ended():
    ended = []

    @contextmanager
    def start():
        try:
            yield len(ended)
        finally:
            ended.append("end")

    with keeping():
        with pytest.raises(RuntimeError), kept("thing", start):
            raise RuntimeError
        assert ended == ["end"]
        with kept("thing", start) as number:
            assert number == 1
    assert ended == ["end", "end"]
