"""Every route responds, byte for byte, as it was recorded (see `recording.py`).

A difference is a change that clients see. If it is meant, record again (`record.py`), and say so in
CHANGELOG.md.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.http_answers.recording import file_of, joined, read, recorded
from tests.http_answers.scenarios import SCENARIOS, UNRECORDED
from tests.http_frontend.conftest import http, make_http

__all__ = ["http", "make_http"]
MAX_DIFFERENT = 8


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_all_responses_are_those_that_were_recorded(name: str, tmp_path: Path) -> None:
    expected = read(name)
    entries = joined(await recorded(SCENARIOS[name], tmp_path))

    assert len(entries) == len(expected)
    different = [(old, new) for old, new in zip(expected, entries, strict=True) if old != new]
    shown = "\n\n".join(f"recorded: {{{old}\nnow: {{{new}" for old, new in different[:MAX_DIFFERENT])
    assert not different, f"{len(different)} of {len(entries)} responses are different:\n{shown}"


async def test_every_status_of_every_route_of_the_document_is_recorded(http: Any) -> None:
    paths = (await http.get("/openapi.json")).json["paths"]
    routes = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths}
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for name in SCENARIOS:
        for each in json.loads(file_of(name).read_text()):
            method, target = each["ask"].split(" ", 1)
            for path, pattern in routes.items():
                if pattern.fullmatch(target.partition("?")[0]):
                    seen[f"{method.replace('HEAD', 'GET')} {path}"].add(str(each["status"]))

    missing = {
        f"{route}: {status}"
        for path, operations in paths.items()
        for method, operation in operations.items()
        for status in set(operation["responses"]) - UNRECORDED.keys()
        if status not in seen[route := f"{method.upper()} {path}"]
    }
    assert sorted(missing) == sorted(each for each in UNRECORDED if not each.isdigit())


def test_no_recording_is_left_over() -> None:
    assert {each.stem for each in file_of("").parent.glob("*.json")} == set(SCENARIOS)
