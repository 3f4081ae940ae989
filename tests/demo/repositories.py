"""Small git repositories, made by one `git fast-import`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

QUIET = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
FIRST_S = 1_777_636_800
"""2026-05-01T12:00:00Z."""


def git(path: Path, *arguments: str, data: bytes = b"") -> str:
    """Run git and return its output."""
    found = subprocess.run(
        ["git", "-C", str(path), *arguments],
        input=data,
        capture_output=True,
        env=QUIET,
        check=True,
    )
    return found.stdout.decode(errors="replace").strip()


def repository(
    path: Path,
    parents: Sequence[Sequence[int]],
    *,
    author: bytes = b"Ada Quill",
    subject: bytes = b"Change",
    files: Sequence[bytes] = (b"a.txt",),
) -> Path:
    """A repository with a commit for each entry, whose parents are given by their numbers; HEAD is
    at the last.
    """
    git(path.parent, "init", "-q", "-b", "main", str(path))
    written = []
    for number, numbers in enumerate(parents):
        if not numbers:
            written.append(b"reset refs/heads/main")
        written.append(b"commit refs/heads/main\nmark :%d" % (number + 1))
        written += [
            b"%s %s <ada@example.org> %d +0000" % (role, author, FIRST_S + number * 3600)
            for role in (b"author", b"committer")
        ]
        text = b"%s %d" % (subject, number)
        written.append(b"data %d\n%s" % (len(text), text))
        written += [
            b"%s :%d" % (b"merge" if position else b"from", parent + 1)
            for position, parent in enumerate(numbers)
        ]
        for name in files:
            content = b"%d" % number
            written.append(b"M 100644 inline %s\ndata %d\n%s" % (name, len(content), content))
    if parents:
        git(path, "fast-import", "--quiet", "--force", data=b"\n".join(written) + b"\n")
    return path
