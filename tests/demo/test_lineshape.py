"""What lines look like: kind and time are found as a person would find them, and the pipeline's file says the same of the usual ones."""

from __future__ import annotations

from importlib import resources

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sparrow.demo.kinds import LEVELS, OTHER
from sparrow.demo.levels import WIDTHS_S, Levels, Stretches, stretches_of
from sparrow.demo.lines import LogFile
from sparrow.demo.lineshape import Shape, read_fields, shape_of
from sparrow.demo.sqltext import field_sql, quoted
from tests.demo.made_up_lines import JSON, TEXT, YEAR

GROUPS = [(group, False) for group in TEXT.values()] + [(group, True) for group in JSON.values()]


@pytest.mark.parametrize(("group", "is_json"), GROUPS, ids=[*TEXT, *JSON])
def test_kind_and_time_are_those_that_a_person_sees(group, is_json):
    shape = shape_of([line for line, _, _ in group], is_json=is_json, year=YEAR)
    for line, kind, time in group:
        found_kind, found_time = shape.read(line)
        assert (found_kind, found_time and f"{found_time:%Y-%m-%d %H:%M:%S}") == (kind, time), line


def test_a_field_with_few_values_is_what_objects_are_counted_by_where_none_has_a_known_name():
    lines = [f'{{"n": {number}, "zone": "{"ab"[number % 2]}", "v": 1}}' for number in range(20)]
    assert shape_of(lines, is_json=True, year=YEAR).kind.field == "zone"


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5), st.booleans())
def test_any_lines_have_a_shape_and_every_line_a_kind(lines, is_json):
    shape = shape_of(lines, is_json=is_json, year=YEAR)
    for line in lines:
        kind, _ = shape.read(line)
        assert kind
    assert LEVELS.read("nothing of the kind") == OTHER


@given(st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=5)))
def test_fields_are_texts(fields):
    import json

    found = read_fields(json.dumps(fields))
    assert found.keys() == fields.keys()
    for name, value in fields.items():
        assert found[name] == (value if isinstance(value, str) or value is None else json.dumps(value))


def test_what_is_no_object_has_no_fields():
    assert [read_fields(line) for line in ("", "7", "[1]", '{"a"', "{]}", '"{', "[" * 100_000)] == [{}] * 7


def test_texts_are_quoted_for_sql():
    assert quoted(r"it's \d") == r"'it\'s \\d'"
    assert field_sql("") == "value"
    assert field_sql("log.level") == r"get_json_object(value, '$[\'log.level\']')"


def test_the_pipeline_of_the_package_is_that_of_lines_with_levels_and_iso_times():
    document = yaml.safe_load(resources.files("sparrow.demo").joinpath("lines.yml").read_text())
    table, levels = (document["flows"][name]["steps"] for name in ("table", "levels"))
    assert [plain(step["sql"]) for step in table] == [Shape().word_step(), Shape().kind_step()]
    assert plain(levels[0]["sql"]) == Stretches().step()


@given(st.integers(0, 4_000_000_000), st.integers(1, 400_000_000))
def test_a_stretch_begins_at_or_before_its_lines_and_a_chart_has_few_of_them(first, span):
    width = next((each for each in WIDTHS_S if span < each * 60), WIDTHS_S[-1])
    stretches = Stretches(seconds=width)
    starts = {stretches.of("", first), stretches.of("", first + span)}
    assert min(starts) <= first < min(starts) + width
    assert (max(starts) - min(starts)) // width <= 60
    assert stretches.of("", None) is None


def test_lines_without_times_are_counted_by_their_numbers(tmp_path):
    path = tmp_path / "plain.log"
    path.write_text("\n".join(f"line {number} is INFO" for number in range(1, 301)))
    source = LogFile(str(path))
    stretches = stretches_of(source)
    assert (stretches.seconds, stretches.lines) == (0, 5)
    assert [stretches.of(f"plain.log:{number}", None) for number in (1, 5, 6, 300)] == [1, 1, 6, 296]
    assert stretches.of("an id of its own", None) is None
    sums = {}
    levels = Levels(source)
    for row in levels.rows(source):
        levels.add(sums, row)
    assert sums == {("INFO", start): [5] for start in range(1, 300, 5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "2026-05-01 12:00:00 INFO a\nno time\n",
        "no time at all\n",
        '{"id": "a"}\n{"id": "b", "parents": ["a"]}',
    ],
)
def test_sums_of_every_kind_of_file_can_be_drawn(content, tmp_path):
    path = tmp_path / "server.log"
    path.write_text(content)
    source = LogFile(str(path))
    levels, sums = Levels(source), {}
    for row in levels.rows(source):
        levels.add(sums, row)
    levels.draw(sums, str(tmp_path / "chart.png"))
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def plain(sql: str) -> str:
    return " ".join(sql.split())
