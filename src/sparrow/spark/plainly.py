"""Errors for people, out of Spark's Python workers.

Spark shows the user whatever text a worker sends when it fails, which is a traceback through Spark and Sparrow. For an error that Sparrow raises on
purpose, the sentence is all there is to know: before it leaves, the worker is told to send no traceback. The worker ends with the error, so that
nothing else is hidden.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from sparrow.base.errors import SparrowError

P = ParamSpec("P")
T = TypeVar("T")

_HIDE = "SPARK_HIDE_TRACEBACK"
_WORKERS = "PYTHON_WORKER_FACTORY_"
"""What Spark sets in the environment of its workers begins so."""


def told_plainly(function: Callable[P, T]) -> Callable[P, T]:
    """A function that Spark calls in a worker."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        with _plainly():
            return function(*args, **kwargs)

    return told


def each_plainly(rows: Iterable[T]) -> Iterator[T]:
    """The same rows; Spark takes them in a worker."""
    with _plainly():
        yield from rows


@contextmanager
def _plainly() -> Iterator[None]:
    try:
        yield
    except SparrowError:
        if is_in_worker():
            os.environ[_HIDE] = "1"
        raise


def is_in_worker() -> bool:
    """Whether this process is one of Spark's."""
    return any(name.startswith(_WORKERS) for name in os.environ)
