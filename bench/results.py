"""What a measurement is, and how results are shown and kept."""

from __future__ import annotations

import json
import platform
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Target:
    """What the figure should reach."""

    value: float
    at_least: bool = True

    def met_by(self, figure: float) -> bool:
        return figure >= self.value if self.at_least else figure <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:,g}"


@dataclass
class Measurement:
    """One row: a figure measured several times."""

    name: str
    unit: str
    target: Target | None = None
    durability: str = ""
    """What was on stable storage when; "" where nothing is written."""
    runs: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float | None:
        """None: not measured; `note` says why."""
        return statistics.median(self.runs) if self.runs else None

    @property
    def verdict(self) -> str:
        if self.target is None or self.median is None:
            return ""
        return "met" if self.target.met_by(self.median) else "MISSED"


def show(measurements: list[Measurement]) -> None:
    """Print the table."""
    table = Table(title="Sparrow, medians; broker and client share the machine")
    for column, justify in (
        ("measurement", "left"),
        ("median", "right"),
        ("lowest", "right"),
        ("highest", "right"),
        ("unit", "left"),
        ("target", "right"),
        ("verdict", "left"),
        ("durability", "left"),
        ("note", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for m in measurements:
        table.add_row(
            m.name,
            _figure(m.median),
            _figure(min(m.runs, default=None)),
            _figure(max(m.runs, default=None)),
            m.unit,
            str(m.target or ""),
            m.verdict,
            m.durability,
            m.note,
        )
    Console(width=None if sys.stdout.isatty() else 220).print(table)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def save(measurements: list[Measurement], path: Path) -> None:
    """Write JSON: machine, versions and every run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        asdict(m) | {"median": m.median, "verdict": m.verdict, "target": str(m.target or "")}
        for m in measurements
    ]
    machine = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": len(psutil_affinity()),
    }
    path.write_text(json.dumps({"machine": machine, "measurements": rows}, indent=2) + "\n")


def psutil_affinity() -> list[int]:
    import psutil

    return list(psutil.Process().cpu_affinity() or [])
