"""The report of a demonstration: figures by stage, checks that passed or failed, and the paths of
the output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct, field, to_builtins

HELD, FAILED = "✓", "✗"
_SHOWN: Final = 3


class Check(Struct, frozen=True):
    """A promise, and whether it was kept."""

    name: str
    """A sentence that is true if the check passed."""
    held: bool
    detail: str = ""
    """Numbers; of a failed check also the first cases."""


def faulty(**faults: Collection[object]) -> str:
    """Return cases by their fault: "2 missing: a, b; 1 twice: c"; "" if there are none."""
    return "; ".join(
        f"{len(cases):,} {name}: {', '.join(list(map(str, cases))[:_SHOWN])}"
        f"{', …' if len(cases) > _SHOWN else ''}"
        for name, cases in faults.items()
        if cases
    )


class StageFigures(Struct, frozen=True):
    """Measurements of one stage; the figures' names have the units."""

    name: str
    seconds: float
    figures: Mapping[str, object]


class StageResult(NamedTuple):
    """The result of the pipeline's stage; `outputs` has paths by name."""

    checks: Sequence[Check]
    figures: Mapping[str, object]
    outputs: Mapping[str, str]


class DemoReport(Struct, frozen=True, kw_only=True):
    """The whole report."""

    title: str
    note: str = ""
    stages: Sequence[StageFigures] = ()
    checks: Sequence[Check] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Paths of the output by name."""
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Return True if every check passed, and there was one."""
        return bool(self.checks) and all(each.held for each in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"held": self.held, **to_builtins(self)}

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        yield self.title
        if self.note:
            yield f"  {self.note}"
        yield ""
        for stage in self.stages:
            figures = ", ".join(f"{name} {_number(value)}" for name, value in stage.figures.items())
            yield f"  {stage.name:<8}  {stage.seconds:6.1f} s  {figures}"
        yield ""
        for check in self.checks:
            detail = f" ({check.detail})" if check.detail else ""
            yield f"  {HELD if check.held else FAILED} {check.name}{detail}"
        yield ""
        for name, path in self.outputs.items():
            yield f"  {name:<6}  {path}"
        yield ""
        count, failed = len(self.checks), sum(not each.held for each in self.checks)
        result = "All {} checks held, in" if self.held else "{1} of {0} checks did not hold, after"
        yield f"{result.format(count, failed)} {self.seconds:.0f} s."


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"
