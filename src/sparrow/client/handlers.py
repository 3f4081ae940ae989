"""Checks of a worker's function when it is declared, not when the first job arrives."""

from __future__ import annotations

import functools
import inspect


def check_handler(handler: object) -> None:
    """Raise TypeError unless the handler can be called with one job; the error says what to
    write.
    """
    name = getattr(handler, "__qualname__", None) or repr(handler)
    if inspect.iscoroutine(handler):
        handler.close()
        raise TypeError(f"{name} was called; hand over the function itself, without brackets")
    if isinstance(handler, type):
        raise TypeError(
            f"{name} is a class; a worker calls a function with the job, or an object of a class "
            "with __call__"
        )
    if not callable(handler):
        raise TypeError(
            f"{name} is not a function; @client.worker(queue) decorates a function of one argument, the job"
        )
    function: object = handler
    while isinstance(function, functools.partial):
        function = function.func
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - its kind is asked for
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise TypeError(
                f"{name} has a yield, so calling it would run nothing of it; a worker's function returns"
            )
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some C functions have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"{name}{signature} cannot be called with one argument, the job: {error}; a worker's function "
            "takes the job alone, bind what else it needs by functools.partial"
        ) from None
