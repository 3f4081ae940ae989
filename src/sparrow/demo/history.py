"""A repository's history, read from `git log`: one process, read as it writes, so that a history of
any length takes the same memory.

An incomplete history (none at all, a shallow or a treeless clone) is replaced by the sample, and
`note` says why; a repository that was named and cannot be read is an error. Git's output depends on
the user's settings and environment; what would change it is switched off.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.demo.commit import GitCommit
from sparrow.demo.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.demo.message import CommitMessage, CommitSource

_FIELDS = b"\0"
_HEAD_FORMAT = "%x00%H%x00%P%x00%at%x00%aN%x00%s"
"""A line that begins with NUL begins a commit; the lines behind it are its files. Git quotes names
with a line end, and none has a NUL.
"""
_LOG = (
    "log",
    "--date-order",
    "--no-renames",
    "--name-only",
    "--no-notes",
    "--no-color",
    "--no-ext-diff",
    "--ignore-submodules=none",
    "--encoding=UTF-8",
    f"--format=format:{_HEAD_FORMAT}",
)
_SETTINGS = tuple(
    part
    for setting in (
        "core.quotePath=true",
        "diff.relative=false",
        "log.showRoot=true",
        "log.showSignature=false",
    )
    for part in ("-c", setting)
)
"""Settings that the user may have set otherwise."""
_REDIRECTIONS = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_EXTERNAL_DIFF",
    "GIT_TRACE",
)
"""Variables that a hook or a wrapper sets; they would override the path."""
_QUESTION_TIMEOUT_S = 60.0


def find(repo: str | None) -> CommitSource:
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
            return (
                f"{self._path} is a shallow clone: commits miss their parents "
                "(git fetch --unshallow gets them)"
            )
        head = self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.returncode:
            return f"{self._path} has no commit yet"
        self._head = head.stdout.strip()
        if self._lacks_trees():
            return f"{self._path} is a clone without trees: files changed cannot be counted"
        return ""

    def count(self) -> int:
        """Return the number of commits."""
        return int(self._asked("rev-list", "--count", self._head, "--"))

    def messages(self) -> Iterator[CommitMessage]:
        """Yield all commits, children before their parents."""
        with self._lines(*_LOG, self._head, "--") as lines:
            for commit in _commits(lines):
                yield commit.message()

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every hash with its parents; parents first."""
        with self._lines("rev-list", "--topo-order", "--reverse", "--parents", self._head, "--") as lines:
            for line in lines:
                hash_, *parents = line.decode("ascii").split()
                yield hash_, tuple(parents)

    def _lacks_trees(self) -> bool:
        """Return True if the clone lacks objects other than the contents of files."""
        found = self._run("config", "--get-regexp", r"^remote\..*\.partialclonefilter$")
        filters = [line.split()[-1] for line in found.stdout.splitlines() if line.split()]
        return any(not each.startswith("blob:") for each in filters)

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
        return ["git", "--no-pager", *_SETTINGS, "-C", self._path, *arguments]

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
    head: bytes | None = None
    files = 0
    for line in lines:
        if not line.startswith(_FIELDS):
            files += line != b"\n"
            continue
        if head is not None:
            yield _commit(head, files)
        head, files = line, 0
    if head is not None:
        yield _commit(head, files)


def _commit(head: bytes, files: int) -> GitCommit:
    """Parse a commit. Git does not check that texts have the encoding that they claim."""
    _, hash_, parents, time, author, subject = head.rstrip(b"\n").split(_FIELDS, 5)
    return GitCommit(
        hash_.decode("ascii"),
        tuple(parents.decode("ascii").split()),
        author.decode(errors="replace").strip() or "unknown",
        int(time or b"0"),
        files,
        subject.decode(errors="replace"),
    )


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _REDIRECTIONS}
    return {
        **kept,
        "LC_ALL": "C",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }
