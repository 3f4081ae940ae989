"""Errors of tasks."""

from __future__ import annotations

from sparrow.base.errors import BadInput, SparrowError


class TaskError(SparrowError):
    """A task cannot be declared, sent or run as asked."""

    code = "TASK_ERROR"


class ArgumentsMisfit(TaskError, BadInput):
    """Arguments that do not fit the task's parameters."""

    code = "ARGUMENTS_MISFIT"


class UnknownTask(TaskError):
    """No task of this name is declared in the app."""

    code = "UNKNOWN_TASK"


class UnencodableResult(TaskError):
    """A task returned a value that JSON cannot carry."""

    code = "UNENCODABLE_RESULT"


class TaskFailed(TaskError):
    """The job whose result was asked for has failed for good.

    `error` is the text of its last failure, "ValueError: no such customer".
    """

    code = "TASK_FAILED"

    def __init__(self, text: str, *, error: str = "") -> None:
        super().__init__(text)
        self.error = error or text


class ParentFailed(TaskError):
    """A step of a composition is not run, because a step before it has failed."""

    code = "PARENT_FAILED"


class TimeLimitExceeded(TimeoutError):
    """A task took longer than its `timeout` or `hard_timeout`."""
