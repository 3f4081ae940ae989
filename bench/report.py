"""The file of results: machine, versions, settings and every run. It is written after each
workload, so that what was measured is kept whatever comes.

Schema 1: `{"schema", "quick", "date", "machine", "versions", "settings", "elapsed_s",
"measurements"}`; a measurement's fields are those of `bench.results.Measurement`. A change that old
readers misread raises the number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.results import Measurement

SCHEMA = 1
MISSING = "not installed"
_SAME = ("cpu", "cores", "memory_gb", "file_system")
"""The fields that identify a machine."""


class CannotMerge(Exception):
    """The file is of another machine or another kind of run; the text says what to do."""


@dataclass(frozen=True)
class Report:
    """The content of a file of results."""

    quick: bool
    date: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    """Peer → settings of its server."""
    elapsed_s: Mapping[str, float] = field(default_factory=dict)
    """Workload → how long it took, with all that it starts."""
    measurements: Sequence[Measurement] = ()

    def save(self, path: Path) -> None:
        """Write the file, or leave the old one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(self._text())
        partial.replace(path)

    def _text(self) -> str:
        """JSON; a line for each measurement, so that two files can be compared."""
        fields = asdict(replace(self, measurements=()))
        del fields["measurements"]
        head = json.dumps({"schema": SCHEMA, **fields}, indent=1, ensure_ascii=False).removesuffix("\n}")
        rows = ",\n".join("  " + json.dumps(each.to_json(), ensure_ascii=False) for each in self.measurements)
        return f'{head},\n "measurements": [\n{rows}\n ]\n}}\n'

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read one.

        Raises:
            ValueError: it is not such a file.
        """
        content = json.loads(path.read_text())
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} has no results of schema {SCHEMA}; measure again: make bench")
        rows = [Measurement.from_json(row) for row in content.pop("measurements")]
        return cls(**content, measurements=rows)


def check_mergeable(old: Report, new: Report) -> None:
    """Figures of different machines or kinds are not in one table.

    Raises:
        CannotMerge: they would.
    """
    for name in _SAME:
        if old.machine.get(name) != new.machine.get(name):
            raise CannotMerge(
                f"--merge: the results are of another machine ({name} was {old.machine.get(name)}, "
                f"is {new.machine.get(name)}); leave --merge out, or name another file with --json"
            )
    if old.quick != new.quick:
        kind, other = ("a quick run", "a full one") if old.quick else ("a full run", "a quick one")
        raise CannotMerge(
            f"--merge: the results are those of {kind}, this is {other}; name another file with --json"
        )


def merged(old: Report, new: Report, order: Sequence[str]) -> Report:
    """The old results with the workloads measured now in place of what they measured before, in the
    order of `order`.

    A workload that failed as a whole measured nothing: what it had stays.
    """
    check_mergeable(old, new)
    fresh = {each.group for each in new.measurements if each.runs}
    of_old = [each for each in old.measurements if each.group not in fresh]
    kept = {each.group for each in of_old}
    rows = of_old + [each for each in new.measurements if each.group in fresh or each.group not in kept]
    place = {name: number for number, name in enumerate(order)}
    rows.sort(key=lambda each: place.get(each.group, len(place)))
    return replace(
        new,
        versions={**old.versions, **_present(old.versions, new.versions)},
        settings={**old.settings, **new.settings},
        elapsed_s={**old.elapsed_s, **new.elapsed_s},
        measurements=rows,
    )


def _present(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of now; a peer that is missing now keeps that of its figures."""
    return {name: text for name, text in new.items() if name not in old or not text.startswith(MISSING)}
