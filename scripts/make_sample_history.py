"""Writes the made-up history that `sparrow demo` falls back to: src/sparrow/demo/sample.ndjson.gz.
The same bytes (unpacked) every time.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "sparrow" / "demo" / "sample.ndjson.gz"
COMMITS = 600
WEEKS = 40
FIRST_S = 1_748_822_400
"""Monday, 2 June 2025, midnight UTC."""
BRANCHES = 6
"""About so many live at a time."""
WEEK_S = 7 * 24 * 3600
AUTHORS = {
    "Ada Quill": 9,
    "Bo Lindqvist": 7,
    "Carmen Ortega": 6,
    "Dov Adler": 4,
    "Esi Mensah": 4,
    "Farid Nouri": 3,
    "Greta Holm": 2,
    "Hiro Tanabe": 1,
}
"""With how much each writes."""
VERBS = ("Add", "Drop", "Fix", "Name", "Rewrite", "Simplify", "Speed up", "Split", "Test", "Document")
NOUNS = (
    "the parser",
    "the cache",
    "retries",
    "the index",
    "time-outs",
    "the start",
    "error texts",
    "the store",
    "paging",
    "the log",
)
REASONS = (
    "",
    "",
    "",
    " for empty input",
    " over lost connections",
    " on full disks",
    " where names clash",
    " in the tests",
)


def commits() -> Iterator[dict[str, object]]:
    """Two roots, branches that live for a while, merges of two, three and four parents; every
    commit is an ancestor of the last.
    """
    dice = random.Random(7)  # noqa: S311 - no secret
    heads: list[str] = []
    for number in range(COMMITS):
        is_last = number == COMMITS - 1
        parents = _parents(dice, heads, number, is_last)
        forks = 0.6 if len(heads) < BRANCHES else 0.1
        for parent in parents:
            if len(parents) > 1 or dice.random() >= forks:
                heads.remove(parent)
        commit = _commit(dice, number, parents)
        heads.append(str(commit["hash"]))
        yield commit


def _parents(dice: random.Random, heads: list[str], number: int, is_last: bool) -> list[str]:
    if number == 0 or number == COMMITS // 3:
        return []
    if is_last:
        return list(heads)
    wanted = dice.choices((1, 2, 3, 4), (85, 13, 1.5, 0.5))[0]
    return dice.sample(heads, min(wanted, len(heads)))


def _commit(dice: random.Random, number: int, parents: list[str]) -> dict[str, object]:
    author = dice.choices(list(AUTHORS), list(AUTHORS.values()))[0]
    subject = f"{dice.choice(VERBS)} {dice.choice(NOUNS)}{dice.choice(REASONS)}"
    is_merge = len(parents) > 1
    time_s = FIRST_S + number * WEEKS * WEEK_S // COMMITS + dice.randrange(-40_000, 40_000)
    time = datetime.fromtimestamp(max(time_s, FIRST_S), UTC)
    year, week, _ = time.isocalendar()
    return {
        "hash": hashlib.sha1(
            f"{number} {author} {subject} {parents}".encode(), usedforsecurity=False
        ).hexdigest(),
        "parents": parents,
        "author": author,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "week": f"{year:04}-W{week:02}",
        "files": 0 if is_merge else min(1 + int(dice.expovariate(0.35)), 40),
        "subject": f"Merge: {subject.lower()}" if is_merge else subject,
    }


def text() -> bytes:
    """The file, unpacked."""
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in commits())


if __name__ == "__main__":
    TARGET.write_bytes(gzip.compress(text(), 9, mtime=0))
    print(f"{TARGET}: {COMMITS} commits, {TARGET.stat().st_size} bytes")
