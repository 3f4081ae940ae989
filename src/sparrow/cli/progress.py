"""Progress bars on stderr, while a long input is read or the broker works; none where stderr is no
terminal.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Advance = Callable[[int, int], None]

_LONG_BYTES = 1 << 20
"""Size below which a file is done before a bar could be read."""


@contextmanager
def reading_progress(descriptor: int) -> Iterator[Advance]:
    """Yield `advance(bytes_read, lines_read)`."""
    if not sys.stderr.isatty() or os.isatty(descriptor):
        yield _ignore
        return
    total_bytes = _file_bytes(descriptor)
    if total_bytes is not None and total_bytes < _LONG_BYTES:
        yield _ignore
        return
    with _bar(total_bytes) as advance:
        yield advance


@contextmanager
def counting_progress(noun: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many of about `total` are done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TextColumn(noun), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(noun, total=total)
        yield lambda done: progress.update(task, completed=done, total=max(total, done))


def _ignore(size_bytes: int, lines: int) -> None:
    """Do nothing, for a bar that is not shown."""


def _file_bytes(descriptor: int) -> int | None:
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _bar(total_bytes: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.fields[lines]:,} messages"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("publish", total=total_bytes, lines=0)
        lines_read = 0

        def advance(size_bytes: int, lines: int) -> None:
            nonlocal lines_read
            lines_read += lines
            progress.update(task, advance=size_bytes, lines=lines_read)

        yield advance
