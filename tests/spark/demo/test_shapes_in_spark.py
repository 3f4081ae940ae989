"""What the pipeline's SQL finds in lines is what Python finds in them, for every form of lines that is known."""

from __future__ import annotations

import pytest

from sparrow.demo.lineshape import shape_of
from tests.demo.made_up_lines import JSON, TEXT, YEAR

ODD = [
    "",
    "{",
    "[]",
    '{"a": {"b": 1}}',
    "\N{GRINNING FACE} ERROR \N{LINE SEPARATOR} x",
    "INFO\0",
    "ünINFO INFOü INFO",
]
"""Lines that no shape was made for."""
GROUPS = [(group, False) for group in TEXT.values()] + [(group, True) for group in JSON.values()]


@pytest.mark.parametrize(("group", "is_json"), GROUPS, ids=[*TEXT, *JSON])
def test_spark_finds_the_kind_and_the_time_that_python_finds(group, is_json, spark):
    lines = [line for line, _, _ in group] + ODD
    shape = shape_of([line for line, _, _ in group], is_json=is_json, year=YEAR)
    rows = spark.createDataFrame(list(enumerate(lines)), "_message_id int, value string")
    for step in (shape.word_step(), shape.kind_step()):
        rows = spark.sql(
            step.replace("{", "{{").replace("}", "}}").replace("FROM input", "FROM {rows}"), rows=rows
        )
    found = {
        row.id: (row.kind, row.at)
        for row in rows.selectExpr("id", "kind", "unix_seconds(time) AS at").collect()
    }
    for number, line in enumerate(lines):
        kind, time = shape.read(line)
        assert found[number] == (kind, time and int(time.timestamp())), line
