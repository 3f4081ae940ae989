"""A progress bar for each stage on stderr; where that is no terminal, a line when a stage begins,
and one when it has ended.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress


class Bars:
    """The bars of all stages, one below the other. Use it as a context."""

    def __init__(self) -> None:
        self._progress = _rich_progress() if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Bar]:
        """The bar of one stage, for as long as the stage takes."""
        bar = Bar(name, self._progress)
        yield bar
        bar.end()


class Bar:
    """Progress of one stage."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._name = name
        self._progress = progress
        self._began = time.monotonic()
        self._done = self._total = 0
        if progress is None:
            print(f"{name} …", file=sys.stderr, flush=True)
        else:
            self._task = progress.add_task(name, total=None)

    def advance(self, done: int, total: int) -> None:
        """Show that so many of so many are done; the total may grow."""
        self._done, self._total = done, max(done, total)
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done, total=self._total)

    def end(self) -> None:
        """Show that the stage is over."""
        if self._progress is not None:
            total = self._total or 1
            self._progress.update(self._task, completed=total, total=total)
            return
        of = f" {self._done:,} of {self._total:,}" if self._total else ""
        print(f"{self._name}:{of} in {time.monotonic() - self._began:.1f} s", file=sys.stderr, flush=True)


def _rich_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
