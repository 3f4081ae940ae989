"""A progress bar for each stage on stderr; where that is no terminal, a line when a stage begins,
and one when it has ended.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.progress import Progress


def bars() -> AbstractContextManager[Progress | None]:
    """Return the bars of all stages, one below the other; None without a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


class Bar:
    """Progress of one stage; `seconds` is its time, once it is over."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task(name, total=None)
        self.done = self.total = 0
        self.seconds = 0.0

    def advance(self, done: int, total: int) -> None:
        """Show that so many of so many are done; the total may grow."""
        self.done, self.total = done, max(done, total)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self.done, total=self.total)


@contextmanager
def stage(name: str, progress: Progress | None) -> Iterator[Bar]:
    """Show the bar of one stage, for as long as the stage takes."""
    began = time.monotonic()
    bar = Bar(name, progress)
    if progress is None:
        print(f"{name} …", file=sys.stderr, flush=True)
    yield bar
    bar.seconds = time.monotonic() - began
    if progress is None:
        of = f" {bar.done:,} of {bar.total:,}" if bar.total else ""
        print(f"{name}:{of} in {bar.seconds:.1f} s", file=sys.stderr, flush=True)
    else:
        bar.advance(bar.total or 1, bar.total or 1)
