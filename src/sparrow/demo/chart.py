"""The chart: stacked columns over time, drawn by matplotlib without a screen, as PNG.

Colours are for a white background, and can be distinguished without seeing red and green.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Counts = dict[tuple[str, date], int]
"""Commits by author and by the first day of a week or month."""
MAX_WEEKS: Final = 120
"""Number of weeks beyond which a column is a month."""
NAMED: Final = 8
"""Number of names with a colour of their own; the others share one."""
OTHERS: Final = "others"
_COLOURS: Final = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00 #F0E442 #332288 #BBBBBB"
_DAYS: Final = {"week": 6.3, "month": 27.0}
"""Width of a column."""
_MAX_NAME: Final = 28


def draw_weeks(counts: Mapping[tuple[str, str], int], path: str, *, title: str) -> None:
    """Draw commits per week, or per month where there are too many weeks, as PNG.

    Args:
        counts: commits by author and week ("2026-W18").
    """
    columns(*by_week_or_month(counts), title=title).savefig(path, format="png", facecolor="white")


def by_week_or_month(counts: Mapping[tuple[str, str], int]) -> tuple[str, Counts]:
    """Return the unit, and the counts by its first days. A week is of the month with most of its
    days: that of its Thursday, as for its year.
    """
    mondays = {week: _day(week, 1) for _, week in counts}
    first, last = min(mondays.values(), default=date.min), max(mondays.values(), default=date.min)
    if (last - first).days < 7 * MAX_WEEKS:
        return "week", {(author, mondays[week]): count for (author, week), count in counts.items()}
    by_month: Counter[tuple[str, date]] = Counter()
    for (author, week), count in counts.items():
        by_month[author, _day(week, 4).replace(day=1)] += count
    return "month", dict(by_month)


def _day(week: str, weekday: int) -> date:
    year, _, number = week.partition("-W")
    return date.fromisocalendar(int(year), int(number), weekday)


def named(counts: Counts) -> tuple[list[str], Counts]:
    """Return the names with the largest sums, largest first, and the counts with all other names as
    one.
    """
    sums: Counter[str] = Counter()
    for (name, _), count in counts.items():
        sums[name] += count
    names = sorted(sums, key=lambda name: (-sums[name], name))
    # An author called like the others is one of them.
    kept = names if len(names) <= NAMED + 1 else [name for name in names[:NAMED] if name != OTHERS]
    found: Counter[tuple[str, date]] = Counter()
    for (name, day), count in counts.items():
        found[name if name in kept else OTHERS, day] += count
    return ([*kept, OTHERS] if len(kept) < len(names) else kept), dict(found)


def columns(unit: str, counts: Counts, *, title: str) -> Figure:
    """Return columns, stacked by name, the name with the most at the bottom."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names, shown = named(counts)
    days = sorted({day for _, day in shown})
    figure = Figure(figsize=(11.0, 5.5), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    bottoms = [0] * len(days)
    for name, colour in zip(names, _COLOURS.split(), strict=False):
        heights = [shown.get((name, day), 0) for day in days]
        axes.bar(days, heights, _DAYS[unit], bottoms, color=colour, label=plain(name))  # type: ignore[arg-type]
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set(title=plain(title, 90), xlabel=unit, ylabel="commits")
    if days:
        locator: Any = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def plain(text: str, most: int = _MAX_NAME) -> str:
    """Return text for matplotlib, cut to what fits: a dollar would begin a formula, an underscore
    at the beginning would hide a name.
    """
    shown = "".join(each if each.isprintable() else "?" for each in text)
    shown = shown if len(shown) <= most else f"{shown[: most - 1]}…"
    return ("\N{THIN SPACE}" if shown.startswith("_") else "") + shown.replace("$", r"\$")
