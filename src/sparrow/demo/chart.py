"""The chart: stacked columns over time, drawn by matplotlib without a screen, as PNG.

Colours are for a white background, and can be told apart without seeing red and green.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_WEEKS: Final = 120
"""Number of weeks beyond which a column is a month."""
NAMED: Final = 8
"""Number of names with a colour of their own; the others share one."""
OTHERS: Final = "others"
_COLOURS: Final = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#332288",
    "#BBBBBB",
)
_SIZE: Final = (11.0, 5.5)
_DPI: Final = 130
_MAX_NAME: Final = 28
_TICKS: Final = 12

T = TypeVar("T")


def draw_weeks(counts: Mapping[tuple[str, str], int], path: str, *, title: str) -> None:
    """Draw commits per week, or per month where there are too many weeks.

    Args:
        counts: commits by author and week ("2026-W18").
    """
    unit, places, found = by_week_or_month(counts)
    draw_columns(found, places, path, title=title, x_label=unit, y_label="commits")


def by_week_or_month(
    counts: Mapping[tuple[str, str], int],
) -> tuple[str, list[str], Mapping[tuple[str, str], int]]:
    """Return the unit, all its values from the first to the last, and the counts by it."""
    weeks = sorted({week for _, week in counts})
    if not weeks:
        return "week", [], {}
    span = weeks_between(weeks[0], weeks[-1])
    if len(span) <= MAX_WEEKS:
        return "week", span, counts
    by_month: Counter[tuple[str, str]] = Counter()
    for (author, week), count in counts.items():
        by_month[author, month_of(week)] += count
    return "month", months_between(month_of(weeks[0]), month_of(weeks[-1])), by_month


def month_of(week: str) -> str:
    """Return the month with most of a week's days: that of its Thursday, as for its year."""
    return _day(week, 4).isoformat()[:7]


def named(counts: Mapping[tuple[str, T], int]) -> tuple[list[str], dict[tuple[str, T], int]]:
    """Return the names with the largest sums, largest first, and the counts with all other names as
    one.
    """
    sums: Counter[str] = Counter()
    for (name, _), count in counts.items():
        sums[name] += count
    names = [name for name, _ in sorted(sums.items(), key=lambda each: (-each[1], each[0]))]
    # An author called like the others is one of them.
    kept = names if len(names) <= NAMED + 1 else [name for name in names[:NAMED] if name != OTHERS]
    found: Counter[tuple[str, T]] = Counter()
    for (name, place), count in counts.items():
        found[name if name in kept else OTHERS, place] += count
    return ([*kept, OTHERS] if len(kept) < len(names) else kept), dict(found)


def draw_columns(
    counts: Mapping[tuple[str, str], int],
    places: Sequence[str],
    path: str,
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> None:
    """Write the chart as PNG."""
    figure = columns(counts, places, title=title, x_label=x_label, y_label=y_label)
    figure.savefig(path, format="png", facecolor="white")


def columns(
    counts: Mapping[tuple[str, str], int], places: Sequence[str], *, title: str, x_label: str, y_label: str
) -> Figure:
    """Return columns, stacked by name, the name with the most at the bottom.

    Args:
        counts: by name and column.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names, shown = named(counts)
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bottoms = [0] * len(places)
    for name, colour in zip(names, _COLOURS, strict=False):
        heights = [shown.get((name, place), 0) for place in places]
        axes.bar(range(len(places)), heights, 0.9, bottoms, color=colour, label=plain(name))
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    _label(axes, places, title=title, x_label=x_label, y_label=y_label)
    return figure


def _label(axes: Any, places: Sequence[str], *, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(plain(title, 90))
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    step = max(1, -(-len(places) // _TICKS))
    ticks = range(0, len(places), step)
    axes.set_xticks(ticks, [places[at] for at in ticks], rotation=30, ha="right")
    axes.set_xlim(-0.7, max(len(places), 1) - 0.3)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.containers:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def plain(text: str, most: int = _MAX_NAME) -> str:
    """Return text for matplotlib, cut to what fits: a dollar would begin a formula, an underscore
    at the beginning would hide a name.
    """
    shown = "".join(each if each.isprintable() else "?" for each in text)
    shown = shown if len(shown) <= most else f"{shown[: most - 1]}…"
    return ("\N{THIN SPACE}" if shown.startswith("_") else "") + shown.replace("$", r"\$")


# ── weeks and months ──────────────────────────────────────────────────────────────────────────────


def weeks_between(first: str, last: str) -> list[str]:
    """Return both weeks and all between, including those without a commit."""
    days = range(_day(first).toordinal(), _day(last).toordinal() + 1, 7)
    return [_week(date.fromordinal(day)) for day in days]


def months_between(first: str, last: str) -> list[str]:
    """Return both months and all between."""
    return [
        f"{at // 12:04d}-{at % 12 + 1:02d}" for at in range(_month_number(first), _month_number(last) + 1)
    ]


def _month_number(month: str) -> int:
    year, _, number = month.partition("-")
    return int(year) * 12 + int(number) - 1


def _day(week: str, weekday: int = 1) -> date:
    year, _, number = week.partition("-W")
    return date.fromisocalendar(int(year), int(number), weekday)


def _week(day: date) -> str:
    year, number, _ = day.isocalendar()
    return f"{year:04d}-W{number:02d}"
