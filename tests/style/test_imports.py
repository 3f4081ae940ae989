"""Modules import each other in one direction: cycles are few and small, and frontends have none.

Imports for type checkers count, too: a reader follows them like any other.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from|import) (sparrow[\w.]*)(?: import (\([^)]*\)|[^\n(]*))?", re.MULTILINE
)
SOURCE: Final = Path(__file__).parents[2] / "src"
MAX_FILES: Final = 4
MAX_CYCLES: Final = 6


@cache
def imports() -> dict[str, set[str]]:
    """Return the modules that each module imports, by name."""
    texts = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path.read_text(
            "utf-8"
        )
        for path in (SOURCE / "sparrow").rglob("*.py")
    }
    return {name: _imported(text, texts.keys()) - {name} for name, text in texts.items()}


def _imported(text: str, known: Container[str]) -> set[str]:
    found = set()
    for module, names in _IMPORT.findall(text):
        wanted = [f"{module}.{name.split()[0]}" for name in names.strip("()").split(",") if name.strip()]
        found |= {name if name in known else module for name in wanted or [module]}
    return {name for name in found if name in known}


@cache
def cycles() -> list[set[str]]:
    """Return the groups of modules that import each other, directly or not (Kosaraju)."""
    graph = imports()
    importers: dict[str, set[str]] = {name: set() for name in graph}
    for name, imported in graph.items():
        for each in imported:
            importers[each].add(name)
    finished: list[str] = []
    _walk(graph, graph, finished.append)
    groups: list[set[str]] = []
    seen: set[str] = set()
    for name in reversed(finished):
        group: set[str] = set()
        _walk([name], importers, group.add, seen)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _walk(
    starts: Iterable[str],
    graph: Mapping[str, set[str]],
    finish: Callable[[str], None],
    seen: set[str] | None = None,
) -> None:
    """Call `finish` for each module that can be reached and was not seen, the last one first."""
    seen = set() if seen is None else seen
    waiting = [(start, False) for start in starts]
    while waiting:
        name, is_finished = waiting.pop()
        if is_finished:
            finish(name)
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            waiting += [(each, False) for each in graph[name]]


def test_frontends_have_no_import_cycle() -> None:
    found = [group for group in cycles() if any(name.startswith("sparrow.frontends") for name in group)]
    assert not found, found


def test_import_cycles_are_few_and_small() -> None:
    found = cycles()
    assert len(found) <= MAX_CYCLES, found
    assert all(len(group) <= MAX_FILES for group in found), found
