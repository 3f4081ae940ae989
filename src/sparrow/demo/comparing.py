"""What a pipeline made, compared with what plain Python makes of the same messages: the table row by row, and the topic of sums key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import sparrow.sync
from sparrow.demo.report import Check
from sparrow.demo.tables import committed_files, read_table

if TYPE_CHECKING:
    from sparrow.demo.message import Source

Row = tuple[Any, ...]
Key = tuple[Any, ...]
Sums = dict[Key, list[int]]
_SHOWN: Final = 3
_PULLED: Final = 10_000
_PULL_WAIT_S: Final = 5.0
"""A busy machine must not look like the end of a topic."""
_EMPTY_PULLS: Final = 3
"""So many pulls without a message are the end of a topic whose last offsets no reader gets."""


class Subject(Protocol):
    """What differs between a history and a file of lines."""

    file: str
    """The pipeline's, in the package."""
    what: str
    """A row, for people."""
    sums_flow: str
    """The flow behind the table; also how the topic's name ends."""
    columns: tuple[str, ...]
    """Of the table; the first is unique."""

    def adapt(self, flows: Mapping[str, Any]) -> None:
        """Change in a copy of the file what depends on the input."""

    def row(self, columns: Mapping[str, Any]) -> Row:
        """A row of the table, of values as pyarrow gives them, so that it equals one of `rows`."""

    def rows(self, source: Source) -> Iterator[Row]:
        """The rows that the table has to have, in no order."""

    def add(self, sums: Sums, row: Row) -> None:
        """Count a row."""

    def read(self, value: bytes) -> tuple[Key, list[int]]:
        """A message of the topic of sums."""

    def draw(self, sums: Sums, path: str) -> None:
        """The chart."""


def checks(subject: Subject, source: Source, table: str, found: Sums) -> list[Check]:
    """Whether the table and the topic are what they have to be.

    Args:
        found: what the topic says, by `read_sums`.
    """
    expected: dict[Any, Row] = {}
    sums: Sums = {}
    for row in subject.rows(source):
        expected[row[0]] = row
        subject.add(sums, row)
    return [*_table_checks(subject, expected, table), _sums_check(sums, found)]


def read_sums(url: str, topic: str, subject: Subject) -> Sums:
    """The last committed message of each key."""
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
                    key, sums = subject.read(message.value or b"")
                    found[key] = sums
    return found


def _table_checks(subject: Subject, expected: Mapping[Any, Row], table: str) -> Iterator[Check]:
    seen: set[Any] = set()
    twice, unknown, wrong = [], [], []
    for row in _rows(subject, table):
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
        f"the table has each of the {subject.what} exactly once",
        not any(faults.values()),
        _told(faults) or f"{len(expected):,} rows in {len(committed_files(table))} files",
    )
    yield Check("each row says what its message says", not wrong, _told({"wrong": wrong}))


def _rows(subject: Subject, table: str) -> Iterator[Row]:
    for batch in read_table(table, subject.columns):
        for row in batch.to_pylist():
            yield subject.row(row)


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
    """ "2 missing: a, b; 1 twice: c"; "" if there are none."""
    return "; ".join(
        f"{len(cases):,} {name}: {', '.join(map(str, cases[:_SHOWN]))}{', …' if len(cases) > _SHOWN else ''}"
        for name, cases in ((name, list(each)) for name, each in faults.items())
        if cases
    )
