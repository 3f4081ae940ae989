"""`sparrow worker --reload`: replaces the worker processes when a Python file changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.tasks.errors import TaskError

if TYPE_CHECKING:
    from sparrow.tasks.supervisor.supervisor import Supervisor


def check_installed() -> None:
    """Raise TaskError if watchfiles is not installed."""
    try:
        import watchfiles  # noqa: F401 - only looked for
    except ImportError:
        raise TaskError(
            "--reload needs the package watchfiles: pip install 'sparrow-broker[reload]'"
        ) from None


async def watch(supervisor: Supervisor, paths: list[str]) -> None:
    """Replace the processes after each change of a Python file below the paths."""
    import watchfiles

    async for changes in watchfiles.awatch(*paths, watch_filter=watchfiles.PythonFilter()):
        names = sorted({path for _, path in changes})
        supervisor.reload(
            f"{names[0]} has changed" + (f", and {len(names) - 1} more" if len(names) > 1 else "")
        )
