"""A commit of a history, as it is published. E-mail addresses are not read, so they go nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from sparrow.demo.message import CommitMessage

_LAST_S = 253_402_300_799
"""The end of the year 9999; git takes any number for a time."""


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit as git reports it. `time_s`: author time, seconds since 1970."""

    hash: str
    parents: tuple[str, ...]
    author: str
    time_s: int
    files: int
    subject: str

    def message(self) -> CommitMessage:
        """Return the commit as a message, keyed by its author, so that one author's commits are in
        one partition.
        """
        time = datetime.fromtimestamp(min(max(self.time_s, 0), _LAST_S), UTC)
        year, week, _ = time.isocalendar()
        value = {
            "hash": self.hash,
            "parents": self.parents,
            "author": self.author,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "week": f"{year:04}-W{week:02}",
            "files": self.files,
            "subject": self.subject,
        }
        return CommitMessage(self.hash, msgspec.json.encode(value), self.author.encode(), self.parents)
