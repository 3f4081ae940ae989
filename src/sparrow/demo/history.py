"""The history that is published: a repository's, read from `git log`, or the sample of the package.

One process is read as it writes, so that a history of any length takes the same memory. An
incomplete history (none at all, a shallow or a treeless clone) is replaced by the sample, and
`note` says why; a repository that was named and cannot be read is an error. Git's output depends on
the user's settings and environment; what would change it is switched off. E-mail addresses are not
read.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from itertools import chain
from typing import IO

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError

SAMPLE_FILE = "sample.ndjson.gz"
"""A made-up history, by `scripts/make_sample_history.py`: one JSON object per line with the fields
of a commit, parents before their children.
"""
_LAST_S = 253_402_300_799
"""The end of the year 9999; git takes any number for a time."""
_FIELDS = b"\0"
_LOG = (
    "log --date-order --no-renames --name-only --no-notes --no-color --no-ext-diff "
    "--ignore-submodules=none --encoding=UTF-8 --format=format:%x00%H%x00%P%x00%at%x00%aN%x00%s"
)
"""A line that begins with NUL begins a commit; the lines behind it are its files. Git quotes names
with a line end, and none has a NUL.
"""
_SETTINGS = "core.quotePath=true diff.relative=false log.showRoot=true log.showSignature=false"
"""Settings that the user may have set otherwise."""
_REDIRECTIONS = (
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR GIT_NAMESPACE "
    "GIT_EXTERNAL_DIFF GIT_TRACE"
)
"""Variables that a hook or a wrapper sets; they would override the path."""
_ENVIRONMENT = "LC_ALL=C GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0"
_QUESTION_TIMEOUT_S = 60.0


class CommitMessage(msgspec.Struct, frozen=True):
    """One commit as it is published: `value` is a JSON object; the messages of `parents` must be
    handled before this one.
    """

    id: str
    value: bytes
    key: bytes | None = None
    parents: tuple[str, ...] = ()


class GitCommit(msgspec.Struct, frozen=True):
    """A commit, as it is in the message: author time in UTC, and its week of the ISO calendar."""

    hash: str
    parents: tuple[str, ...]
    author: str
    time: str
    week: str
    files: int
    subject: str

    def message(self) -> CommitMessage:
        """Return the commit as a message, keyed by its author, so that one author's commits are in
        one partition.
        """
        return CommitMessage(self.hash, msgspec.json.encode(self), self.author.encode(), self.parents)


def find(repo: str | None) -> History | Sample:
    """Return the history of a repository; None: of the current directory's.

    Raises:
        InvalidArgument: `repo` cannot be read as a repository.
    """
    history = History(repo or ".")
    try:
        reason = history.flaw()
    except InvalidArgument as error:
        if repo is not None:
            raise
        reason = error.text
    return Sample(reason) if reason else history


class History:
    """The commit of HEAD at the time of `flaw`, and all before it. Later commits have no effect."""

    note = ""

    def __init__(self, path: str) -> None:
        self._path = path
        self._head = "HEAD"
        self.title = f"commits of {os.path.abspath(path)}"

    def flaw(self) -> str:
        """Return why the history cannot be used, or "".

        Raises:
            InvalidArgument: git cannot read the repository.
        """
        if shutil.which("git") is None:
            raise InvalidArgument("git is not installed; on Debian and Ubuntu: apt install git")
        if not os.path.isdir(self._path):
            raise InvalidArgument(f"{self._path}: no such directory")
        if self._asked("rev-parse", "--is-shallow-repository") == "true":
            return f"{self._path} is a shallow clone: commits miss parents; git fetch --unshallow gets them"
        head = self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.returncode:
            return f"{self._path} has no commit yet"
        self._head = head.stdout.strip()
        found = self._run("config", "--get-regexp", r"^remote\..*\.partialclonefilter$")
        if any(not line.split()[-1].startswith("blob:") for line in found.stdout.splitlines()):
            return f"{self._path} is a clone without trees: files changed cannot be counted"
        return ""

    def count(self) -> int:
        """Return the number of commits."""
        return int(self._asked("rev-list", "--count", self._head, "--"))

    def messages(self) -> Iterator[CommitMessage]:
        """Yield all commits, children before their parents."""
        with self._lines(*_LOG.split(), self._head, "--") as lines:
            yield from (commit.message() for commit in _commits(lines))

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every hash with its parents; parents first."""
        with self._lines("rev-list", "--topo-order", "--reverse", "--parents", self._head, "--") as lines:
            for line in lines:
                hash_, *parents = line.decode("ascii").split()
                yield hash_, tuple(parents)

    def _asked(self, *arguments: str) -> str:
        """Return git's output; raises InvalidArgument with git's words if it fails."""
        found = self._run(*arguments)
        if found.returncode:
            words = " ".join(found.stderr.split()) or f"git ended with code {found.returncode}"
            raise InvalidArgument(f"{self._path} cannot be read as a git repository: {words}")
        return found.stdout.strip()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - no shell; what the user gives is a directory
                self._command(*arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=_environment(),
                timeout=_QUESTION_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InvalidArgument(
                f"{self._path} cannot be read as a git repository: git did not answer within "
                f"{_QUESTION_TIMEOUT_S:g} s"
            ) from None

    def _command(self, *arguments: str) -> list[str]:
        settings = [part for each in _SETTINGS.split() for part in ("-c", each)]
        return ["git", "--no-pager", *settings, "-C", self._path, *arguments]

    @contextmanager
    def _lines(self, *arguments: str) -> Iterator[IO[bytes]]:
        """Yield git's output line by line.

        Raises:
            SparrowError: git ended with an error.
        """
        with subprocess.Popen(  # noqa: S603 - as above
            self._command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise SparrowError(
                f"git could not read the whole history of {self._path} (code "
                f"{process.returncode}); `git fsck` says what is wrong"
            )


def _commits(lines: IO[bytes]) -> Iterator[GitCommit]:
    head, files = b"", 0
    for line in chain(lines, [_FIELDS]):
        if not line.startswith(_FIELDS):
            files += line != b"\n"
            continue
        if head:
            yield _commit(head, files)
        head, files = line, 0


def _commit(head: bytes, files: int) -> GitCommit:
    """Parse a commit. Git does not check that texts have the encoding that they claim."""
    _, hash_, parents, time_s, author, subject = head.rstrip(b"\n").split(_FIELDS, 5)
    time = datetime.fromtimestamp(min(max(int(time_s or b"0"), 0), _LAST_S), UTC)
    year, week, _ = time.isocalendar()
    return GitCommit(
        hash_.decode("ascii"),
        tuple(parents.decode("ascii").split()),
        author.decode(errors="replace").strip() or "unknown",
        time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        f"{year:04}-W{week:02}",
        files,
        subject.decode(errors="replace"),
    )


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _REDIRECTIONS.split()}
    return kept | dict(each.split("=") for each in _ENVIRONMENT.split())


class Sample:
    """The commits of the sample. `reason`: why it is used."""

    title = "commits of the sample"

    def __init__(self, reason: str) -> None:
        self.note = f"the sample is used, a made-up history: {reason}"
        packed = files("sparrow.demo").joinpath(SAMPLE_FILE).read_bytes()
        lines = gzip.decompress(packed).splitlines()
        self._commits = [msgspec.json.decode(line, type=GitCommit) for line in lines]

    def count(self) -> int:
        """Return the number of commits."""
        return len(self._commits)

    def messages(self) -> Iterator[CommitMessage]:
        """Yield all commits, children before their parents."""
        return (each.message() for each in reversed(self._commits))

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every hash with its parents; parents first."""
        return ((each.hash, each.parents) for each in self._commits)
