"""The charts: what they show, and that they are pictures."""

from __future__ import annotations

import struct
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.demo import chart

AUTHORS = ["Ada", "Bob $1 and $2", "_Cleo", "Dän", "Eve", "Fay", "Gus", "Hal", "Ivo", "Jan", chart.OTHERS]
WEEKS = [date(2025, 12, 8) + timedelta(weeks=number) for number in range(13)]
days = st.dates(date(1970, 1, 5), date(2100, 1, 1))
counts = st.dictionaries(
    st.tuples(st.sampled_from(AUTHORS), st.sampled_from(WEEKS)), st.integers(1, 1000), max_size=60
)


@given(counts)
def test_no_more_names_than_colours_and_nothing_is_lost(given_counts):
    names, shown = chart.named(given_counts)
    assert len(names) == len(set(names)) <= chart.NAMED + 1
    assert {name for name, _ in shown} == set(names)
    assert sum(shown.values()) == sum(given_counts.values())
    for week in WEEKS:
        assert sum(n for (_, at), n in shown.items() if at == week) == sum(
            n for (_, at), n in given_counts.items() if at == week
        )


@given(days)
def test_a_week_is_of_the_month_that_most_of_its_days_are_in(day):
    monday = day.toordinal() - day.weekday()
    months = [date.fromordinal(monday + number).replace(day=1) for number in range(7)]
    long_before = {("Ada", "1960-W01"): 1}
    unit, found = chart.by_week_or_month({("Ada", week_of(day)): 1, **long_before})
    assert unit == "month"
    assert max(at for _, at in found) == max(months, key=months.count)


def test_a_long_history_is_shown_by_months_and_a_short_one_by_weeks():
    by_week = {("Ada", "2020-W10"): 3, ("Ada", "2022-W24"): 1}
    unit, weeks = chart.by_week_or_month(by_week)
    assert (unit, weeks["Ada", date(2020, 3, 2)]) == ("week", 3)
    later = {("Ada", "2022-W25"): 1, ("Bob", "2022-W26"): 1, ("Bob", "2022-W25"): 1}
    unit, found = chart.by_week_or_month(by_week | later)
    assert unit == "month"
    june = date(2022, 6, 1)
    assert found == {("Ada", date(2020, 3, 1)): 3, ("Ada", june): 2, ("Bob", june): 2}


@pytest.mark.slow
def test_a_chart_has_a_title_labels_at_its_axes_and_a_name_for_each_colour():
    many = {(author, week): 1 + len(author) for author in AUTHORS[:-1] for week in WEEKS}
    figure = chart.columns("week", many, title="commits of /home/_x/$a")
    (axes,) = figure.axes
    assert axes.get_title() == r"commits of /home/_x/\$a"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("week", "commits")
    told = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(told) == chart.NAMED + 1
    assert told[-1] == chart.OTHERS
    assert r"Bob \$1 and \$2" in told
    heights = [0.0] * len(WEEKS)
    for bars in axes.containers:
        heights = [low + bar.get_height() for low, bar in zip(heights, bars, strict=True)]
    assert heights == [sum(many[author, week] for author in AUTHORS[:-1]) for week in WEEKS]
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert 1 < len(ticks) <= 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "given_counts", [{}, {("Ada", "2026-W18"): 1}, {("", "2026-W18"): 1, ("_\0\n", "2026-W19"): 2}]
)
def test_a_chart_is_a_png_however_little_there_is_to_show(given_counts, tmp_path):
    path = tmp_path / "chart.png"
    chart.draw_weeks(given_counts, str(path), title="a\nb")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1000
    assert height > 500


def week_of(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"
