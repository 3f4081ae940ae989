"""The chart of `docs/benchmarks.md`: one SVG of small charts, Sparrow beside its peers. The same
results give the same bytes; text stays text.

What was synced before it was acknowledged is filled, what was acknowledged before it was synced is
hatched: only bars of one kind may be compared. Thin lines go from the lowest run to the highest.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator

from bench.contents import PANELS, Panel
from bench.results import OURS, RATIO, UNSYNCED, Measurement
from bench.table import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 2
_OURS, _THEIRS, _LINE = "#c2410c", "#64748b", "#1e293b"
_HATCH = "////"
_WIDTH_IN, _ROW_IN, _BAR_IN = 12.0, 0.8, 0.26
_TITLE_X = 0.15
"""Share of the axes' width: the middle of bars and names together."""
_ROOM = 0.3
"""Share of a latency panel's width."""
_TICKS = 4
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sparrow",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "hatch.linewidth": 0.8,
}


def draw(measurements: Sequence[Measurement], path: Path) -> None:
    """Write the chart: a panel for each of `PANELS` that something was measured of."""
    panels = [(panel, found) for panel in PANELS if (found := _rows(panel, measurements))]
    pairs = [panels[first : first + COLUMNS] for first in range(0, len(panels), COLUMNS)]
    heights = [_ROW_IN + _BAR_IN * max(len(rows) for _, rows in pair) for pair in pairs]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 0.6), layout="constrained")
        FigureCanvasSVG(figure)
        if pairs:
            axes = figure.subplots(len(pairs), COLUMNS, squeeze=False, height_ratios=heights)
            for places, pair in zip(axes, pairs, strict=True):
                bars = max(len(rows) for _, rows in pair)
                for place, panel in zip(places, pair, strict=False):
                    _draw_panel(place, *panel, bars)
                for place in places[len(pair) :]:
                    place.set_axis_off()
        figure.legend(handles=_legend(), loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _rows(panel: Panel, measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """The contenders, each with its row of every figure of the panel; Sparrow's first."""
    columns = [_of_figure(beginning, measurements) for beginning in panel.figures]
    whole = [who for who in columns[0] if all(who in column for column in columns)]
    whole.sort(key=lambda who: who[0] != OURS)
    return [[column[who] for column in columns] for who in whole]


def _of_figure(beginning: str, measurements: Sequence[Measurement]) -> dict[tuple[str, str], Measurement]:
    """Contender → its row, of the figure whose name begins so: up to the end or a comma, as p99 is
    not p99.9.
    """
    return {
        (each.broker, each.client): each
        for each in measurements
        if each.figure.startswith(beginning)
        and each.figure[len(beginning) :][:1] != "."
        and each.runs
        and each.unit != RATIO
    }


def _draw_panel(axes: Axes, panel: Panel, rows: Sequence[Sequence[Measurement]], bars: int) -> None:
    """With room for this many bars, so that those of neighbours are of one height."""
    places = range(len(rows))
    axes.set_title(f"{panel.title} ({panel.unit})", x=_TITLE_X)
    axes.set_yticks(list(places), [_label(row[0]) for row in rows])
    axes.set_ylim(bars - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for place, row in zip(places, rows, strict=True):
        (_draw_latency if panel.is_latency else _draw_bar)(axes, place, row)
    if panel.is_latency:
        axes.set_xscale("log")
        _widen(axes)
    else:
        axes.margins(x=0.24)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
    axes.xaxis.set_major_formatter(lambda value, _: written(value))
    axes.grid(axis="x", color="#e2e8f0", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_bar(axes: Axes, place: int, row: Sequence[Measurement]) -> None:
    (m,) = row
    median = statistics.median(m.runs)
    axes.barh(place, median, height=0.66, **_look(m))
    axes.plot([min(m.runs), max(m.runs)], [place, place], color=_LINE, linewidth=0.9)
    _say(axes, max(m.runs), place, written(median))


def _draw_latency(axes: Axes, place: int, row: Sequence[Measurement]) -> None:
    """From the middle to the late ones."""
    middle, late = (statistics.median(each.runs) for each in row)
    look = _look(row[0])
    axes.plot([middle, late], [place, place], color=look["edgecolor"], linewidth=1.2)
    for value, marker in ((middle, "o"), (late, "|")):
        axes.plot(
            [value],
            [place],
            marker,
            markersize=8,
            markerfacecolor=look["facecolor"],
            markeredgecolor=look["edgecolor"],
        )
    _say(axes, late, place, f"{written(middle)} / {written(late)}")


def _widen(axes: Axes) -> None:
    """Room for the figures behind the last line, on a logarithmic axis."""
    axes.margins(x=0.05)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** _ROOM)
    axes.xaxis.set_major_locator(LogLocator(numticks=_TICKS + 1))


def _say(axes: Axes, x: float, place: int, text: str) -> None:
    axes.annotate(text, (x, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5)


def _look(m: Measurement) -> dict[str, Any]:
    color = _OURS if m.broker == OURS else _THEIRS
    if m.strength == UNSYNCED:
        return {"facecolor": "white", "edgecolor": color, "hatch": _HATCH}
    return {"facecolor": color, "edgecolor": color}


def _label(m: Measurement) -> str:
    name = m.broker.capitalize() if m.broker == OURS else m.broker
    return f"{name}, {m.client}" if m.client else name


def _legend() -> list[Patch]:
    return [
        Patch(facecolor=_OURS, edgecolor=_OURS, label="Sparrow"),
        Patch(facecolor=_THEIRS, edgecolor=_THEIRS, label="others"),
        Patch(
            facecolor="white",
            edgecolor=_LINE,
            hatch=_HATCH,
            label="acknowledged before it is synced (latency: hollow)",
        ),
        Patch(facecolor="none", edgecolor="none", label="latency: ● p50, | p99"),
    ]
