"""The plan of a demonstration, and the context of each of its stages. Both are frozen: no stage
changes what the next one sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WORKERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """The options of `sparrow demo`."""

    repo: str | None = None
    """A git repository; None: that of the current directory, else the sample."""
    workers: int = 4
    keep: bool = False
    """Keep the broker's data and the stages' files."""
    broker: str | None = None
    """URL of a running broker; None: one is started."""
    out_dir: str = "sparrow-demo"
    """Directory of the table, the chart and report.json."""

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MAX_WORKERS:
            raise InvalidArgument(f"--workers is {self.workers}; it must be a number from 1 to {MAX_WORKERS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context of a stage."""

    url: str
    """URL of the broker; it may have a secret: do not print it, nor show it in a process's
    arguments.
    """
    topic: str
    """The topic with the input, and the queue of that name; "commits", or with a suffix where that
    existed.
    """
    work_dir: str
    """Directory for files of the stages; removed at the end unless `--keep`."""
    out_dir: str
    """Directory of the table and the chart, which stays."""
    progress: Callable[[int, int], None]
    """Called with (done, total); the total may grow."""
