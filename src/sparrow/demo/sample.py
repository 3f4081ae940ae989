"""A made-up history that comes with the package, for use where there is no repository.
`scripts/make_sample_history.py` writes it.

One JSON object per line with the fields of a commit, parents before their children.
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from sparrow.demo.commit import GitCommit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.demo.message import CommitMessage

FILE = "sample.ndjson.gz"


class Sample:
    """The commits of the sample. `reason`: why it is used."""

    title = "commits of the sample"

    def __init__(self, reason: str) -> None:
        self.note = f"the sample is used, a made-up history: {reason}"

    def count(self) -> int:
        """Return the number of commits."""
        return sum(1 for _ in _commits())

    def messages(self) -> Iterator[CommitMessage]:
        """Yield all commits, children before their parents."""
        for commit in reversed(list(_commits())):
            yield commit.message()

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every hash with its parents; parents first."""
        for commit in _commits():
            yield commit.hash, commit.parents


def _commits() -> Iterator[GitCommit]:
    packed = files("sparrow.demo").joinpath(FILE).read_bytes()
    for line in gzip.decompress(packed).splitlines():
        yield msgspec.json.decode(line, type=GitCommit)
