"""Display of a pipeline's progress for people: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparrow.pipelines.engine.progress import ENDED, FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from sparrow.pipelines.engine.progress import Progress

LINES_S: Final = 5.0
"""Seconds between two lines of a flow that runs continuously, without a terminal."""
_HEADINGS: Final = ("flow", "state", "batch", "rows", "rows/s", "batch time", "lag", "refused")
_STYLES: Final = {"failed": "red", "running": "green", "done": "green"}


class Display:
    """Context manager that shows progress; `run` calls `show`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._written: dict[str, tuple[float, Progress]] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, flows: Sequence[Progress]) -> None:
        """Show the progress of all flows."""
        if self._live is not None:
            self._live.update(table_of(flows))
            return
        for progress in flows:
            if self._is_news(progress):
                self._written[progress.flow] = time.monotonic(), progress
                self._console.print(line_of(progress), soft_wrap=True, markup=False, highlight=False)

    def _is_news(self, progress: Progress) -> bool:
        written_at, before = self._written.get(progress.flow, (0.0, None))
        if before is None or before.state != progress.state:
            return True
        return before != progress and progress.state not in ENDED and time.monotonic() - written_at >= LINES_S


def table_of(flows: Sequence[Progress]) -> Table:
    """Return a table with a row for each flow, and the failures below."""
    table = Table(*_HEADINGS, box=None)
    for progress in flows:
        state = Text(progress.state, style=_STYLES.get(progress.state, ""))
        table.add_row(progress.flow, state, *_figures(progress))
    failed = [progress.error for progress in flows if progress.state == FAILED]
    if failed:
        table.caption = Text("\n".join(failed), style="red")
    return table


def line_of(progress: Progress) -> str:
    """Return the progress of one flow as a line."""
    batch, rows, rate, batch_time, lag, refused = _figures(progress)
    parts = [f"{progress.flow}: {progress.state}"]
    if progress.batch is not None:
        parts += [f"batch {batch}", f"{rows} rows", f"{rate} rows/s", f"{batch_time} a batch", f"lag {lag}"]
    if progress.refused:
        parts.append(f"refused {refused}")
    return ", ".join(parts)


def _figures(progress: Progress) -> tuple[str, str, str, str, str, str]:
    has_batch = progress.batch is not None
    return (
        str(progress.batch) if has_batch else "-",
        f"{progress.rows:,}",
        f"{progress.rows_per_second:,.0f}" if has_batch else "-",
        f"{progress.batch_ms:,} ms" if has_batch else "-",
        "-" if progress.lag is None else f"{progress.lag:,}",
        ", ".join(f"{name} {count:,}" for name, count in progress.refused.items()) or "-",
    )
