"""Comparison of what the pipeline made with what plain Python makes of the same commits: the table
row by row, and the topic of sums (commits, files changed and merges by author and week) key by key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import sparrow.sync
from sparrow.demo import chart
from sparrow.demo.report import Check
from sparrow.demo.tables import committed_files, read_table

if TYPE_CHECKING:
    from sparrow.demo.message import CommitSource

Row = tuple[Any, ...]
Key = tuple[Any, ...]
Sums = dict[Key, list[int]]
_SHOWN: Final = 3
_PULLED: Final = 10_000
_PULL_WAIT_S: Final = 5.0
"""Long, as a busy machine must not look like the end of a topic."""
_EMPTY_PULLS: Final = 3
"""Pulls without a message that mean the end of a topic whose last offsets no reader gets."""


COLUMNS: Final = ("hash", "author", "week", "files", "parents")
"""Columns of the table that are compared; the first is unique."""


def checks(source: CommitSource, table: str, found: Sums) -> list[Check]:
    """Return the checks of the table and the topic.

    Args:
        found: the sums in the topic, by `read_sums`.
    """
    expected: dict[Any, Row] = {}
    sums: Sums = {}
    for row in expected_rows(source):
        expected[row[0]] = row
        count(sums, row)
    return [*_table_checks(expected, table), _sums_check(sums, found)]


def expected_rows(source: CommitSource) -> Iterator[Row]:
    """Yield the row that the table must have for each commit of the source."""
    for message in source.messages():
        commit = json.loads(message.value)
        yield commit["hash"], commit["author"], commit["week"], commit["files"], len(commit["parents"])


def count(sums: Sums, row: Row) -> None:
    """Add a row to the commits, files and merges of its author and week."""
    _, author, week, files, parents = row
    found = sums.setdefault((author, week), [0, 0, 0])
    found[0] += 1
    found[1] += files
    found[2] += parents > 1


def read_sum(value: bytes) -> tuple[Key, list[int]]:
    """Decode a message of the topic of sums."""
    found = json.loads(value)
    return (found["author"], found["week"]), [found["commits"], found["files"], found["merges"]]


def draw(sums: Sums, path: str, *, title: str) -> None:
    """Draw the chart of commits by author and week."""
    counts = {(author, week): found[0] for (author, week), found in sums.items()}
    chart.draw_weeks(counts, path, title=title)


def read_sums(url: str, topic: str) -> Sums:
    """Return the last committed message of each key."""
    found: Sums = {}
    with sparrow.sync.connect(url) as client:
        (end,) = client.admin.offsets(topic)
        empty, last = 0, -1
        with client.subscribe(topic, start="beginning", mode="pull", isolation="read_committed") as messages:
            # The last offset is that of the end of a transaction.
            while last < end.offset - 2 and empty < _EMPTY_PULLS:
                pulled = messages.pull(_PULLED, wait_s=_PULL_WAIT_S)
                empty = 0 if pulled else empty + 1
                for message in pulled:
                    last = message.offset
                    key, sums = read_sum(message.value or b"")
                    found[key] = sums
    return found


def _table_checks(expected: Mapping[Any, Row], table: str) -> Iterator[Check]:
    seen: set[Any] = set()
    twice, unknown, wrong = [], [], []
    for row in _rows(table):
        if row[0] not in expected:
            unknown.append(row[0])
        elif row[0] in seen:
            twice.append(row[0])
        elif row != expected[row[0]]:
            wrong.append(row[0])
        seen.add(row[0])
    missing = [each for each in expected if each not in seen]
    faults = {"missing": missing, "twice": twice, "unknown": unknown}
    yield Check(
        "the table has each of the commits exactly once",
        not any(faults.values()),
        _told(faults) or f"{len(expected):,} rows in {len(committed_files(table))} files",
    )
    yield Check("each row says what its message says", not wrong, _told({"wrong": wrong}))


def _rows(table: str) -> Iterator[Row]:
    for batch in read_table(table, COLUMNS):
        for row in batch.to_pylist():
            yield tuple(row[name] for name in COLUMNS)


def _sums_check(expected: Sums, found: Sums) -> Check:
    faults = {
        "missing": [key for key in expected if key not in found],
        "unknown": [key for key in found if key not in expected],
        "wrong": [key for key in expected if key in found and found[key] != expected[key]],
    }
    return Check(
        "the topic of the sums has the figures that plain Python counts",
        not any(faults.values()),
        _told(faults) or f"{len(found):,} keys",
    )


def _told(faults: Mapping[str, Iterable[Any]]) -> str:
    """Return "2 missing: a, b; 1 twice: c"; "" if there are none."""
    return "; ".join(
        f"{len(cases):,} {name}: {', '.join(map(str, cases[:_SHOWN]))}{', …' if len(cases) > _SHOWN else ''}"
        for name, cases in ((name, list(each)) for name, each in faults.items())
        if cases
    )
