"""What a demonstration is asked to do, and what each of its stages is given. Both are frozen: no stage changes what the next one sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WORKERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `sparrow demo` was told."""

    repo: str | None = None
    """A git repository; None: that of the current directory, else the sample."""
    file: str | None = None
    """A log or NDJSON file instead of a history."""
    workers: int = 4
    keep: bool = False
    """Whether the broker's data and the stages' files stay."""
    broker: str | None = None
    """URL of a running broker; None: one is started."""
    out_dir: str = "sparrow-demo"
    """Where the table, the chart and report.json go."""

    def __post_init__(self) -> None:
        if self.repo is not None and self.file is not None:
            raise InvalidArgument("--repo and --file are two kinds of input; give one of them")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise InvalidArgument(f"--workers is {self.workers}; it must be a number from 1 to {MAX_WORKERS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stage is given."""

    url: str
    """Of the broker; it may hold a secret: do not print it, nor show it in a process's arguments."""
    topic: str
    """The topic with the input, and the queue of that name; "commits", or with a suffix where that existed."""
    work_dir: str
    """For files of the stages; removed at the end unless `--keep`."""
    out_dir: str
    """For the table and the chart: stays."""
    progress: Callable[[int, int], None]
    """Called with (done, total); the total may grow."""
