"""Workload after workload: one that fails is a row that says so, and the others go on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench.kept import keeping
from bench.peers.daemon import NotInstalled
from bench.results import Measurement

if TYPE_CHECKING:
    from bench.budget import Budget

Workload = Callable[[int, float], list[Measurement]]
"""(rounds, share of the messages of a full run) → its rows."""


class Unknown(Exception):
    """No workload has such a word in its name."""


def chosen(
    names: Sequence[str], only: str, along: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[str]:
    """Those that `only` (words with commas between) asks for: the workload of that very name, or
    all that have the word in theirs, and those that go along with the word; all without words.

    Raises:
        Unknown: a word asks for none.
    """
    words = [word.strip() for word in only.split(",") if word.strip()]
    wanted: set[str] = set()
    for word in words:
        found = {word} if word in names else {name for name in names if word in name}
        if not found:
            raise Unknown(f"no workload has {word!r} in its name; there are {', '.join(names)}")
        wanted |= found | set(along.get(word, ()))
    return [name for name in names if name in wanted or not words]


def measure(
    workloads: Mapping[str, Workload],
    names: Sequence[str],
    budget: Budget,
    begins: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[str, float, list[Measurement]]]:
    """Name, seconds and rows of each, as soon as they are there; `begins` gets the name
    before.
    """
    for _, family in groupby(names, lambda name: name.partition("-")[0]):
        with ExitStack() as shared:
            if budget.is_quick:
                shared.enter_context(keeping())
            for name in family:
                begins(name)
                began = time.monotonic()
                rows = _rows(name, workloads[name], budget)
                for row in rows:
                    row.group = name
                yield name, time.monotonic() - began, rows


def _rows(name: str, workload: Workload, budget: Budget) -> list[Measurement]:
    reason = budget.left_out(name)
    if reason:
        return [Measurement(name, "", note=f"full run only: {reason}")]
    try:
        return workload(budget.runs, budget.scale(name))
    except NotInstalled as error:
        return [Measurement(name, "", note=str(error))]
    except Exception as error:  # noqa: BLE001 - whatever a workload meets, the next one is measured
        traceback.print_exc()
        return [failure(name, error)]


def failure(name: str, error: Exception) -> Measurement:
    """The row of what could not be measured."""
    said = str(error).strip().splitlines()
    return Measurement(name, "", note=f"failed: {said[0] if said else type(error).__name__}", failed=True)
