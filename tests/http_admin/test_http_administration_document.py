"""The tables of docs/http.md about queues and administration have every route that exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.http_frontend.conftest import Http

DOCUMENT = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
ROUTE = re.compile(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^ `?]*)[^`]*`")


def section(title: str) -> str:
    found = DOCUMENT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def first_cells(text: str) -> set[str]:
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return {match.group(1) for row in rows if (match := ROUTE.match(row.removeprefix("| ")))}


async def test_the_tables_have_every_route_of_queues_and_administration(http: Http) -> None:
    paths = (await http.get("/openapi.json")).json["paths"]
    elsewhere = {"messages", "health", "metrics"}

    served = {
        f"{method.upper()} {path}"
        for path, operations in paths.items()
        for method, operation in operations.items()
        if operation["tags"][0] not in elsewhere
    }
    assert first_cells(section("Queues") + section("Administration")) == served
