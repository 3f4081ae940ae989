"""Options of `sparrow worker`, and reports of worker processes."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from sparrow.base.errors import InvalidArgument

REPORT_INTERVAL_S: Final = 0.5


class WorkerProcessOptions(Struct, frozen=True, kw_only=True):
    """Options of a worker process, which it gets as a line of JSON: arguments of processes are for
    everyone to read.
    """

    app: str
    """MODULE:NAME of the app."""
    concurrency: int = 8
    queues: list[str] | None = None
    prefetch: int | None = None
    shutdown_timeout_s: float = 30.0
    log_format: Literal["text", "json"] = "text"
    log_level: str = "INFO"
    environment: dict[str, str] = {}
    """Variables that it sets first: the broker and the login."""


class SupervisorOptions(Struct, frozen=True, kw_only=True):
    """Options of a supervisor."""

    worker: WorkerProcessOptions
    processes: int = 1
    max_jobs: int | None = None
    """A process that has done so many jobs is replaced."""
    max_memory_bytes: int | None = None
    """A process with a larger resident set is replaced."""
    stuck_timeout_s: float = 60.0
    """A process that reports nothing for so long is killed and replaced."""
    health: tuple[str, int] | None = None
    """Host and port of the listener for health and metrics; None: none."""
    reload: bool = False
    reload_paths: list[str] = []
    restart_initial_s: float = 0.5
    restart_max_s: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= 1000:
            raise InvalidArgument(f"processes is {self.processes}; it must be from 1 to 1000")
        if self.max_jobs is not None and self.max_jobs < 1:
            raise InvalidArgument(f"max_jobs is {self.max_jobs}; it must be 1 or more")
        if self.max_memory_bytes is not None and self.max_memory_bytes < 1 << 20:
            raise InvalidArgument(f"max_memory is {self.max_memory_bytes} bytes; it must be 1 MiB or more")
        if not self.stuck_timeout_s >= 1:
            raise InvalidArgument(f"stuck_timeout is {self.stuck_timeout_s} s; it must be 1 s or more")


class ProcessReport(Struct, omit_defaults=True):
    """A line that a worker process writes to its supervisor."""

    state: Literal["starting", "working", "failed"] = "starting"
    error: str = ""
    """Why it cannot work."""
    is_permanent: bool = False
    """True if another attempt with the same program would fail as well."""
    done: int = 0
    failed: int = 0
    rejected: int = 0
    running: int = 0
    rss_bytes: int = 0
