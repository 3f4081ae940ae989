"""Measurements: a figure measured several times, its subject, its durability, and its target."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

OURS = "sparrow"
SYNCED = "synced"
"""On stable storage before it is acknowledged."""
UNSYNCED = "unsynced"
"""Acknowledged from memory or the page cache, synced later."""
RATIO = "x"
"""The unit of a figure that compares two others."""


@dataclass(frozen=True)
class Target:
    """The target of a figure."""

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
    """Unlike that of any other row."""
    unit: str
    target: Target | None = None
    durability: str = ""
    """The durability that was measured; "" where nothing is written."""
    runs: list[float] = field(default_factory=list)
    note: str = ""
    figure: str = ""
    """Name of the figure without its subject; rows that may be compared have the same."""
    broker: str = OURS
    client: str = ""
    strength: str = ""
    """SYNCED or UNSYNCED; "" where nothing is acknowledged, or `durability` alone says it."""
    group: str = ""
    """The workload."""
    failed: bool = False
    """It could not be measured, and that is a fault; `note` says which."""
    date: str = ""
    commit: str = ""
    """Commit of Sparrow's source when it was measured."""

    def __post_init__(self) -> None:
        self.figure = self.figure or self.name

    @property
    def median(self) -> float | None:
        """None: not measured; `note` says why."""
        return statistics.median(self.runs) if self.runs else None

    @property
    def verdict(self) -> str:
        if self.target is None or self.median is None:
            return ""
        return "met" if self.target.met_by(self.median) else "MISSED"

    def to_json(self) -> dict[str, Any]:
        """Its fields, and what follows from them for those who read the file without this code."""
        spread = {
            "median": self.median,
            "min": min(self.runs, default=None),
            "max": max(self.runs, default=None),
        }
        return asdict(self) | spread | {"verdict": self.verdict}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """The other way."""
        known = {each.name: row[each.name] for each in fields(cls) if each.name in row}
        target = known.pop("target", None)
        return cls(**known, target=Target(**target) if target else None)
