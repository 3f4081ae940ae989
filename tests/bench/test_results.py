"""Rows, the file of them, and putting new ones into an old file."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.repetitions import repetitions

from bench.report import SCHEMA, CannotMerge, Report, merged
from bench.results import Measurement, Target
from bench.table import written

FIGURES = st.lists(st.floats(-1e9, 1e9), max_size=5)
TARGETS = st.none() | st.builds(Target, st.floats(0, 1e9), st.booleans())


@settings(max_examples=repetitions(50))
@given(FIGURES, TARGETS)
def test_row_is_the_same_after_it_was_written_and_read(runs, target):
    row = Measurement("a: b", "ms", target, "synced", runs, "note", figure="a", client="b", group="w")
    assert Measurement.from_json(json.loads(json.dumps(row.to_json()))) == row


@settings(max_examples=repetitions(50))
@given(FIGURES.filter(bool), TARGETS)
def test_verdict_is_that_of_the_median(runs, target):
    row = Measurement("a", "ms", target, runs=runs)
    assert row.median == statistics.median(runs)
    if target is None:
        assert row.verdict == ""
    else:
        is_met = row.median >= target.value if target.at_least else row.median <= target.value
        assert row.verdict == ("met" if is_met else "MISSED")


def test_unmeasured_rows_have_no_verdict():
    row = Measurement("a", "ms", Target(1))
    assert (row.median, row.verdict) == (None, "")


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (None, "-"),
        (0.0123, "0.0123"),
        (5.126, "5.13"),
        (99.96, "100"),
        (554_321.9, "554,322"),
        (-1.34, "-1.34"),
    ],
)
def test_figures_have_three_digits_or_are_whole(figure, text):
    assert written(figure) == text


def test_file_is_the_same_after_it_was_written_and_read(report, tmp_path):
    path = tmp_path / "below" / "results.json"
    report.save(path)
    assert Report.load(path) == report
    content = json.loads(path.read_text())
    assert content["schema"] == SCHEMA
    row = content["measurements"][0]
    assert (row["median"], row["min"], row["max"]) == (246_912, 123_456, 370_368)
    assert (row["target"], row["verdict"]) == ({"value": 100_000, "at_least": True}, "met")
    assert [each.name for each in path.parent.iterdir()] == ["results.json"]


def test_file_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"machine": {}, "measurements": []}')
    with pytest.raises(ValueError, match="measure again"):
        Report.load(path)


def test_merging_replaces_the_workloads_measured_now_and_leaves_the_others(report):
    fresh = Measurement("topic: publish 100 B: sparrow", "msg/s", runs=[1.0], group="topic-publish")
    early = Measurement("latency", "ms", runs=[2.0], group="latency")
    now = replace(report, date="later", elapsed_s={"topic-publish": 1.0}, measurements=[early, fresh])
    found = merged(report, now, ["latency", "topic-publish", "topic-latency"])
    kept = [each for each in report.measurements if each.group != "topic-publish"]
    assert found.measurements == [early, fresh, *kept]
    assert (found.date, found.elapsed_s) == ("later", {"topic-publish": 1.0})


def test_merging_keeps_the_version_of_a_peer_that_is_missing_now(report):
    before = replace(report, versions={"NATS": "2.10.29", "Redis": "7.0.1"})
    now = replace(report, versions={"NATS": "not installed (no)", "Redis": "7.0.2", "Kafka": "not installed"})
    assert merged(before, now, []).versions == {
        "NATS": "2.10.29", "Redis": "7.0.2", "Kafka": "not installed",
    }  # fmt: skip


def test_merging_keeps_old_rows_without_a_new_measurement(report):
    failed = Measurement("topic-publish", "", note="failed: no", failed=True, group="topic-publish")
    unknown = Measurement("webhooks", "", note="failed: no", failed=True, group="webhooks")
    found = merged(report, replace(report, measurements=[failed, unknown]), ["topic-publish"])
    assert found.measurements == [*report.measurements, unknown]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quick": True}, "full run"),
        ({"machine": {"cpu": "another"}}, "another machine"),
    ],
)
def test_merging_refuses_incomparable_results(report, change, said):
    now = replace(report, **change)
    with pytest.raises(CannotMerge, match=said):
        merged(report, now, [])
