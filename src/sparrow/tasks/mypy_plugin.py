"""Plugin for mypy: what `ParamSpec` cannot say of `Task.send` and its like.

    [tool.mypy]
    plugins = ["sparrow.tasks.mypy_plugin"]

- A parameter that gets the job is not an argument of a send, also if it is keyword-only.
- `send`, `send_sync` and `message` take the options of a send beside the task's arguments. A
  parameter of the same name goes first.

Without the plugin mypy checks `task.options(…).send(…)`, if the task's job is its first
parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy.nodes import ARG_NAMED_OPT, ArgKind
from mypy.plugin import Plugin
from mypy.types import Instance, NoneType, UnionType, get_proper_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy.plugin import MethodSigContext
    from mypy.types import FunctionLike, Type

_JOBS: Final = frozenset(
    {
        "sparrow.client.job.Job",
        "sparrow.client.job.LeasedRecord",
        "sparrow.client.blocking_jobs.BlockingJob",
        "sparrow.tasks.jobs.TaskJob",
    }
)
_WITH_OPTIONS: Final = frozenset({"send", "send_sync", "message"})
_WITHOUT: Final = frozenset({"call"})
_TASK: Final = "sparrow.tasks.task.Task."
_PREPARED: Final = "sparrow.tasks.task.Prepared."
_OPTIONS: Final = {
    "delay": ("builtins.str", "builtins.int", "datetime.timedelta"),
    "at": ("datetime.datetime",),
    "priority": ("builtins.int",),
    "key": ("builtins.str",),
    "unique": ("builtins.str",),
    "ttl": ("builtins.str", "builtins.int", "datetime.timedelta"),
    "queue": ("builtins.str",),
}


class TaskPlugin(Plugin):
    """Signatures of the methods of tasks."""

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        """Return the hook for a method, or None."""
        if fullname.startswith(_TASK):
            method = fullname.removeprefix(_TASK)
            if method in _WITH_OPTIONS:
                return _with_options
            return _without_job if method in _WITHOUT else None
        if fullname.startswith(_PREPARED) and fullname.removeprefix(_PREPARED) in _WITH_OPTIONS:
            return _without_job
        return None


def _without_job(context: MethodSigContext) -> FunctionLike:
    signature = context.default_signature
    kept = [
        (kind, name, kind_of)
        for kind, name, kind_of in zip(
            signature.arg_types, signature.arg_names, signature.arg_kinds, strict=True
        )
        if not _is_job(kind)
    ]
    return signature.copy_modified(
        arg_types=[each[0] for each in kept],
        arg_names=[each[1] for each in kept],
        arg_kinds=[each[2] for each in kept],
    )


def _with_options(context: MethodSigContext) -> FunctionLike:
    bare = _without_job(context)
    signature = context.default_signature.copy_modified(
        arg_types=bare.items[0].arg_types,
        arg_names=bare.items[0].arg_names,
        arg_kinds=bare.items[0].arg_kinds,
    )
    types: list[Type] = list(signature.arg_types)
    names: list[str | None] = list(signature.arg_names)
    kinds: list[ArgKind] = list(signature.arg_kinds)
    for name, classes in _OPTIONS.items():
        if name not in names:
            allowed: list[Type] = [context.api.named_generic_type(each, []) for each in classes]
            types.append(UnionType([*allowed, NoneType()]))
            names.append(name)
            kinds.append(ARG_NAMED_OPT)
    return signature.copy_modified(arg_types=types, arg_names=names, arg_kinds=kinds)


def _is_job(kind: Type) -> bool:
    proper = get_proper_type(kind)
    return isinstance(proper, Instance) and proper.type.fullname in _JOBS


def plugin(version: str) -> type[TaskPlugin]:  # noqa: ARG001 - mypy's protocol
    """Return the plugin's class."""
    return TaskPlugin
