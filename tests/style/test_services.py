"""Frontends call services of the broker; the services decide on rights.

The import contracts in pyproject.toml keep modules of registries and coordinators out of the
frontends. These tests keep out what needs no import.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "sparrow"
FRONTENDS: Final = SOURCE / "frontends"

_INSIDE: Final = re.compile(r"\bbroker\.(?:parts|_\w+)|\.(?:authorizer|coordinator|_registry)\b")
_DECISION: Final = re.compile(r"\baccess\.(?:allows|allowed|refusal|refusals|maybe_refusal)\b")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(FRONTENDS)}:{number}: {line.strip()}"
        for path in sorted(FRONTENDS.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_frontends_reach_into_no_service() -> None:
    assert lines_with(_INSIDE) == []


def test_frontends_decide_on_no_rights() -> None:
    assert lines_with(_DECISION) == []


def test_rights_are_decided_behind_access_alone() -> None:
    makers = {"broker/broker.py", "broker/composition.py"}
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"import [^\n]*Authorizer|\bauthorizer\.\w+\(", path.read_text("utf-8"))
    }
    assert {path for path in users if not path.startswith("broker/access/")} - makers == set()
