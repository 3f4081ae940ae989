"""The tables and the chart of docs/benchmarks.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import document
from bench.chart import draw
from bench.contents import PANELS, SECTIONS
from bench.report import Report
from bench.results import Measurement
from bench.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
RESULTS = DOCUMENT.with_suffix(".json")


def marked(name):
    return f"before\n<!-- figures: begin {name} -->\nold\n<!-- figures: end -->\nafter\n"


def test_contenders_are_lines_and_figures_are_columns(report):
    text = document.filled(marked("topics"), report)
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    latency = text.partition("**topic: publish to consumer at 5,000 msg/s**")[2]
    assert latency.strip().splitlines()[:5] == [
        "|  | p50, ms | p99, ms | p99.9, ms | durability |",
        "| --- | ---: | ---: | ---: | --- |",
        "| **Sparrow** | 2 (1 to 3) | 2 (1 to 3) | 2 (1 to 3) | synced as sparrow does |",
        "| Kafka, confluent-kafka | 3 (2 to 4) | 3 (2 to 4) | 3 (2 to 4) | unsynced as Kafka does |",
        "| Redis, bytes only | 4 (3 to 5) | 4 (3 to 5) | 4 (3 to 5) | synced as Redis does |",
    ]


def test_ratios_stand_behind_their_figures(report):
    text = document.filled(marked("topics"), report)
    assert "| **Sparrow** | 246,912 (123,456 to 370,368); **0.5 x** |" in text
    assert "fastest peer" not in text


def test_figures_without_a_common_beginning_have_no_title_above_them():
    assert document._shortened(["idle memory", "start to first answer"]) == (
        "",
        ["idle memory", "start to first answer"],
    )


def test_failed_and_skipped_rows_say_why(report):
    assert "failed: a client \\| left" in document.filled(marked("kafka"), report)
    assert "full run only: it takes long" in document.filled(marked("spark"), report)
    assert "Not measured." in document.filled(marked("http"), report)


def test_targets_have_verdicts_missed_ones_too(report):
    text = document.filled(marked("targets"), report)
    assert "1 of 2 met." in text
    assert "| topic: publish 100 B: sparrow,  | ≥ 100,000 | 246,912 | msg/s | met |" in text
    assert "rate | ≥ 1 | 0.5 | x | MISSED |" in text


def test_machine_versions_and_settings_are_told(report):
    text = document.filled(marked("machine"), report)
    for told in ("a processor, 2 cores, 8 GB of memory", "0.25 ms", "| Redis | 7 |", "appendfsync always"):
        assert told in text


def test_filling_twice_changes_nothing(report):
    once = document.filled(marked("topics") + marked("targets"), report)
    assert document.filled(once, report) == once


def test_marker_of_no_section_is_refused(report):
    with pytest.raises(document.UnknownSection, match="'topcis'"):
        document.filled(marked("topcis"), report)


@pytest.mark.slow
def test_command_writes_document_results_and_chart(report, tmp_path, monkeypatch, capsys):
    results, text = tmp_path / "results.json", tmp_path / "figures.md"
    report.save(results)
    text.write_text(marked("topics"))
    monkeypatch.setattr(sys, "argv", ["document", str(results), "--document", str(text)])
    assert document.main() == 0
    assert text.read_text() == document.filled(marked("topics"), report)
    assert Report.load(tmp_path / "figures.json") == report
    assert (tmp_path / "figures.svg").exists()


def test_command_says_what_is_wrong_with_results(tmp_path, monkeypatch, capsys):
    (tmp_path / "results.json").write_text("[]")
    monkeypatch.setattr(sys, "argv", ["document", str(tmp_path / "results.json")])
    assert document.main() == 1
    assert "measure again" in capsys.readouterr().err


# ── the chart ─────────────────────────────────────────────────────────────────────────────────────


def texts(path):
    return ["".join(each.itertext()).strip() for each in ET.parse(path).iter() if each.tag.endswith("}text")]


@pytest.mark.slow
def test_chart_has_a_panel_with_figures_for_each_measured_row(measurements, tmp_path):
    draw(measurements, tmp_path / "chart.svg")
    found = texts(tmp_path / "chart.svg")
    assert [text for text in found if text.endswith(("(msg/s)", "(ms)", "(s)"))] == [
        "Publish to a topic, 100 B (msg/s)",
        "Topic: publish to consumer at 5,000 msg/s (ms)",
    ]
    for text in ("Sparrow", "Kafka, confluent-kafka", "246,912", "370,368", "2 / 2", "3 / 3"):
        assert text in found


@pytest.mark.slow
def test_chart_of_the_same_results_has_the_same_bytes(measurements, tmp_path):
    for name in ("a", "b"):
        draw(measurements, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_chart_of_nothing_is_empty(tmp_path):
    draw([Measurement("kafka-crowd", "", note="failed")], tmp_path / "chart.svg")
    assert "Sparrow" in texts(tmp_path / "chart.svg")


# ── the document as it is ─────────────────────────────────────────────────────────────────────────


def test_every_workload_stands_in_one_section():
    groups = [group for section in SECTIONS.values() for group in section]
    assert sorted(groups) == sorted(WORKLOADS)


def test_every_section_stands_in_the_document_once():
    names = re.findall(r"<!-- figures: begin ([\w-]+) -->", DOCUMENT.read_text())
    assert sorted(names) == sorted([*SECTIONS, *document._WHOLE])


def test_document_shows_the_results_beside_it():
    text = DOCUMENT.read_text()
    assert document.filled(text, Report.load(RESULTS)) == text


def test_rows_of_the_results_have_names_of_their_own():
    names = [each.name for each in Report.load(RESULTS).measurements]
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_chart_beside_the_document_shows_the_results():
    rows = Report.load(RESULTS).measurements
    found = " ".join(texts(DOCUMENT.with_suffix(".svg")))
    titles = [
        panel.title
        for panel in PANELS
        if any(each.runs and each.figure.startswith(panel.figures[0]) for each in rows)
    ]
    assert titles
    assert [title for title in titles if title not in found] == []


def test_commands_of_the_document_exist():
    blocks = re.findall(r"^```\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in (line.removeprefix("make ") for line in lines if line.startswith("make ")):
        assert target in targets
    assert {line.split()[2] for line in lines if line.startswith("sparrow ")} == {
        "publish",
        "consume",
        "queue",
    }
