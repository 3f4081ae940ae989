"""CONTRIBUTING.md and docs/architecture.md name files, classes and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "sparrow"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"
MAX_LINES: Final = 250

_PATH: Final = re.compile(r"`([a-z_]+(?:/[\w.*-]+)*/?)`")
_STEP: Final = re.compile(r"^ +([\w.]+) +([a-z_/]+\.py)\b", re.MULTILINE)


def is_there(path: str) -> bool:
    """Return True if the path is one of the repository, of the package, or the end of one of it."""
    wanted = path.rstrip("/")
    if (ROOT / wanted).exists():
        return True
    return any(each == wanted or each.endswith(f"/{wanted}") for each in source_paths())


@cache
def source_paths() -> list[str]:
    """Return the paths of all files and folders of the package."""
    return [each.relative_to(SOURCE).as_posix() for each in SOURCE.rglob("*") if each.suffix != ".pyc"]


@pytest.mark.parametrize("document", [ARCHITECTURE, CONTRIBUTING], ids=lambda path: path.name)
def test_paths_are_those_of_the_source(document: Path) -> None:
    paths = {
        path for path in _PATH.findall(document.read_text("utf-8")) if "/" in path or path.endswith(".py")
    }
    assert paths
    assert [path for path in sorted(paths) if not is_there(path)] == []


def defined(path: Path) -> set[str]:
    """Return the names of all functions, classes and methods ("Class.method") of a module."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")} | {node.name}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def test_the_walks_are_true() -> None:
    steps = _STEP.findall(ARCHITECTURE.read_text("utf-8"))
    assert len(steps) > 10
    wrong = [
        f"{name} in {path}"
        for name, path in steps
        if not (SOURCE / path).exists() or name not in defined(SOURCE / path)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_architecture_is_short() -> None:
    assert len(ARCHITECTURE.read_text("utf-8").splitlines()) <= MAX_LINES
