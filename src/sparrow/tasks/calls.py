"""Calls of async functions in a context of their own, without a task of asyncio for each.

A worker's slot runs one job after the other in one asyncio task. Values that a job sets in context
variables must not be seen by the next. So each job's coroutine is driven step by step within a copy
of the context; a new asyncio task for each job would cost several times as much.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator


class InOwnContext:
    """Await it: runs the coroutine that `make` returns in a copy of the current context."""

    __slots__ = ("_args", "_make")

    def __init__(self, make: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        self._make = make
        self._args = args

    def __await__(self) -> Generator[Any, Any, Any]:
        run = copy_context().run
        coroutine = run(self._make, *self._args)
        try:
            yielded = run(coroutine.send, None)
            while True:
                try:
                    sent = yield yielded
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - it belongs to the coroutine
                    yielded = run(coroutine.throw, error)
                else:
                    yielded = run(coroutine.send, sent)
        except StopIteration as end:
            return end.value
