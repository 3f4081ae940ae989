"""What `commits.yml` makes of a history, in plain Python: a row for each commit, and for each author and week the commits, the files changed and the merges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sparrow.demo import chart

if TYPE_CHECKING:
    from sparrow.demo.comparing import Key, Row, Sums
    from sparrow.demo.message import Source


class Weekly:
    """The commits, see `comparing.Subject`."""

    file = "commits.yml"
    what = "commits"
    sums_flow = "weekly"
    columns: tuple[str, ...] = ("hash", "author", "week", "files", "parents")

    def __init__(self, source: Source) -> None:
        self._title = source.title

    def adapt(self, flows: Mapping[str, Any]) -> None:
        """The file is right for every history."""

    def row(self, columns: Mapping[str, Any]) -> Row:
        return tuple(columns[name] for name in self.columns)

    def rows(self, source: Source) -> Iterator[Row]:
        for message in source.messages():
            commit = json.loads(message.value)
            yield (
                commit["hash"],
                commit["author"],
                commit["week"],
                commit["files"],
                len(commit["parents"]),
            )

    def add(self, sums: Sums, row: Row) -> None:
        _, author, week, files, parents = row
        found = sums.setdefault((author, week), [0, 0, 0])
        found[0] += 1
        found[1] += files
        found[2] += parents > 1

    def read(self, value: bytes) -> tuple[Key, list[int]]:
        found = json.loads(value)
        return (found["author"], found["week"]), [found["commits"], found["files"], found["merges"]]

    def draw(self, sums: Sums, path: str) -> None:
        counts = {(author, week): found[0] for (author, week), found in sums.items()}
        chart.draw_weeks(counts, path, title=self._title)
