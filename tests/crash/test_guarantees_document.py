"""The table of docs/guarantees.md names tests that exist, and every load."""

from __future__ import annotations

import re
from pathlib import Path

from tests.crash.faults import FAULTS
from tests.crash.test_every_frontend import every_load

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/guarantees.md").read_text().partition("## Tests")[2].partition("\n## ")[0]
NAMES = set(re.findall(r"`([^`\n]+)`", SECTION))


def test_tests_named_in_the_document_exist() -> None:
    paths = {name for name in NAMES if name.endswith(".py") or name.startswith("tests/")}
    missing = {
        name for name in paths if not any((base / name).exists() for base in (ROOT, ROOT / "tests/crash"))
    }
    assert len(paths) > 10
    assert missing == set()


def test_every_load_stands_beside_a_promise() -> None:
    assert {load.name for load in every_load(1)} - NAMES == set()


def test_faults_have_a_sentence_that_says_what_they_do() -> None:
    assert all(fault.__doc__ for fault in FAULTS)
