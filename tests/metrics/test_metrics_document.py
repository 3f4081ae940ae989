"""docs/metrics.md shows all metrics, as they are."""

from __future__ import annotations

import re
from pathlib import Path

from sparrow.base.histogram import LATENCY_BOUNDS_S
from sparrow.broker.metrics import table

DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_the_document_has_a_row_for_each_metric_and_no_other() -> None:
    shown = re.findall(r"^\| `(sparrow_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", DOCUMENT, re.MULTILINE)
    expected = [
        (each.name, each.kind, ", ".join(f"`{label}`" for label in each.labels) or "—", each.text)
        for each in table.ALL
    ]
    assert shown == expected


def test_the_document_names_the_bounds_of_histograms() -> None:
    sentence = re.search(r"Histograms have the bounds ([^m]+?) and 500 ms, (.+) s\.", DOCUMENT)
    assert sentence is not None
    milliseconds = [float(each) / 1000 for each in re.findall(r"[\d.]+", sentence[1])] + [0.5]
    seconds = [float(each) for each in re.findall(r"[\d.]+", sentence[2])]
    assert (*milliseconds, *seconds) == LATENCY_BOUNDS_S


def test_names_and_kinds_follow_the_conventions() -> None:
    for each in table.ALL:
        assert re.fullmatch(r"sparrow_[a-z]+(_[a-z]+)*", each.name)
        assert (each.kind == table.COUNTER) == each.name.endswith("_total")
        assert (each.kind == table.INFO) == each.name.endswith("_info")
        assert each.text.endswith(".")


def test_expressions_of_the_document_name_metrics_that_exist() -> None:
    names = {each.name for each in table.ALL}
    for name in re.findall(r"\b(sparrow_\w+)", DOCUMENT):
        assert name in names or name.removesuffix("_bucket") in names, name
