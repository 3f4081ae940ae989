"""Tasks: functions that workers call, with retries, limits, results and compositions.

`app.py` is the place to begin reading: an app has tasks (`task.py`), whose arguments are encoded by
`signature.py`; `connection.py` sends them. `runtime.py` is a worker process: it runs a `TaskWorker`
(`worker.py`) for each queue, which calls tasks in place, in threads, or in processes
(`process_pool.py`). `sparrow worker` supervises such processes (`supervisor/`).
"""

from __future__ import annotations

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
