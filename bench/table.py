"""The table on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from bench.results import Measurement

PIPED_WIDTH = 220
_COLUMNS = (
    ("measurement", "left"),
    ("median", "right"),
    ("lowest", "right"),
    ("highest", "right"),
    ("unit", "left"),
    ("target", "right"),
    ("verdict", "left"),
    ("durability", "left"),
    ("note", "left"),
)


def written(value: float | None) -> str:
    """A figure with three digits, or whole from a hundred on."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:,.3g}"


def show(measurements: Sequence[Measurement], title: str) -> None:
    """Print a row for each, workload by workload."""
    table = Table(title=title)
    for column, justify in _COLUMNS:
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for _, group in groupby(measurements, lambda each: each.group):
        by_figure: dict[str, list[Measurement]] = {}
        for m in group:
            by_figure.setdefault(m.figure, []).append(m)
        for figure, rows in by_figure.items():
            _add(table, figure, rows)
        table.add_section()
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)


def _add(table: Table, figure: str, rows: Sequence[Measurement]) -> None:
    """A line for each; a figure of several contenders is above them."""
    if len(rows) == 1:
        table.add_row(rows[0].name, *_cells(rows[0]))
        return
    table.add_row(f"[bold]{figure}[/]")
    for m in rows:
        table.add_row(f"  {m.name.removeprefix(figure).lstrip(' :,')}", *_cells(m))


def _cells(m: Measurement) -> list[str]:
    """All but the name."""
    median, lowest, highest = m.median, min(m.runs, default=None), max(m.runs, default=None)
    figures = [written(each) for each in (median, lowest, highest)]
    verdict = "FAILED" if m.failed else m.verdict
    return [*figures, m.unit, str(m.target or ""), verdict, m.durability, m.note]
