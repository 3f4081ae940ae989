"""Tasks: functions that workers call, with retries, limits, results and compositions.

`app.py` is the place to begin reading: an app has tasks (`task.py`), whose arguments are encoded by
`signature.py`; `connection.py` sends them. `runtime.py` is a worker process: it runs a `TaskWorker`
(`worker.py`) for each queue, which calls tasks in place, in threads, or in processes
(`process_pool.py`). `sparrow worker` supervises such processes (`supervisor/`).

Names are loaded at their first use: the supervisor needs none of them, and starts in half the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrow.tasks.app import Tasks
    from sparrow.tasks.compositions import (
        Composition,
        GroupResult,
        Step,
        StepChain,
        StepGroup,
        chain,
        chord,
        group,
    )
    from sparrow.tasks.connection import TaskMessage
    from sparrow.tasks.errors import (
        ArgumentsMisfit,
        ParentFailed,
        TaskError,
        TaskFailed,
        TimeLimitExceeded,
        UnencodableResult,
        UnknownTask,
    )
    from sparrow.tasks.jobs import LocalJob, TaskJob, current_job
    from sparrow.tasks.results import Progress, Result
    from sparrow.tasks.task import BlockingResult, Task

__all__ = [
    "ArgumentsMisfit",
    "BlockingResult",
    "Composition",
    "GroupResult",
    "LocalJob",
    "ParentFailed",
    "Progress",
    "Result",
    "Step",
    "StepChain",
    "StepGroup",
    "Task",
    "TaskError",
    "TaskFailed",
    "TaskJob",
    "TaskMessage",
    "Tasks",
    "TimeLimitExceeded",
    "UnencodableResult",
    "UnknownTask",
    "chain",
    "chord",
    "current_job",
    "group",
]

_MODULES = {
    "app": ["Tasks"],
    "compositions": [
        "Composition",
        "GroupResult",
        "Step",
        "StepChain",
        "StepGroup",
        "chain",
        "chord",
        "group",
    ],
    "connection": ["TaskMessage"],
    "errors": [
        "ArgumentsMisfit",
        "ParentFailed",
        "TaskError",
        "TaskFailed",
        "TimeLimitExceeded",
        "UnencodableResult",
        "UnknownTask",
    ],
    "jobs": ["LocalJob", "TaskJob", "current_job"],
    "results": ["Progress", "Result"],
    "task": ["BlockingResult", "Task"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the module of a public name."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
