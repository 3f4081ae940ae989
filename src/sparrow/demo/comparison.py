"""Comparison of what the pipeline made with what plain Python makes of the same commits: the table
row by row, and the topic of sums (commits, files changed and merges by author and week) key by key.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sparrow.demo.report import Check, faulty
from sparrow.demo.verification import read_topic
from sparrow.pipelines.sparklist import committed_files, read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparrow.demo.history import History, Sample

Row = tuple[Any, ...]
Sums = dict[tuple[str, str], list[int]]
"""Commits, files and merges by author and week."""
COLUMNS: Final = ("hash", "author", "week", "files", "parents")
"""Columns of the table that are compared; the first is unique."""


def checks(source: History | Sample, table: str, found: Sums) -> list[Check]:
    """Return the checks of the table and the topic.

    Args:
        found: the sums in the topic, by `read_sums`.
    """
    expected: dict[str, Row] = {}
    sums: Sums = {}
    for row in expected_rows(source):
        expected[row[0]] = row
        count(sums, row)
    return [*_table_checks(expected, table), _sums_check(sums, found)]


def expected_rows(source: History | Sample) -> Iterator[Row]:
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


def read_sums(url: str, topic: str) -> Sums:
    """Return the last committed message of each key."""
    found: Sums = {}
    for record in read_topic(url, topic, markers=1):
        told = json.loads(record.value or b"")
        found[told["author"], told["week"]] = [told["commits"], told["files"], told["merges"]]
    return found


def _table_checks(expected: Mapping[str, Row], table: str) -> Iterator[Check]:
    times: Counter[str] = Counter()
    wrong = []
    for row in read_table(table, COLUMNS):
        times[row[0]] += 1
        if row != expected.get(row[0], row):
            wrong.append(row[0])
    faults = faulty(
        missing=[each for each in expected if each not in times],
        twice=[each for each, number in times.items() if number > 1],
        unknown=[each for each in times if each not in expected],
    )
    rows = f"{len(expected):,} rows in {len(committed_files(table))} files"
    yield Check("the table has each of the commits exactly once", not faults, faults or rows)
    yield Check("each row says what its message says", not wrong, faulty(wrong=wrong))


def _sums_check(expected: Sums, found: Sums) -> Check:
    faults = faulty(
        missing=expected.keys() - found.keys(),
        unknown=found.keys() - expected.keys(),
        wrong=[key for key in expected if key in found and found[key] != expected[key]],
    )
    name = "the topic of the sums has the figures that plain Python counts"
    return Check(name, not faults, faults or f"{len(found):,} keys")
