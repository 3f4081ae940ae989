"""Errors for people, out of Spark's Python workers.

Spark shows the user the text that a worker sends when it fails, which is a traceback through Spark
and Sparrow. For an error that Sparrow raises on purpose, the sentence says everything: before it
leaves, the worker is set to send no traceback. The worker ends with the error, so nothing else is
hidden.
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
"""Prefix of the variables that Spark sets in the environment of its workers."""


def with_plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that Spark calls in a worker, so that its errors come without a
    traceback.
    """

    @functools.wraps(function)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        with _plainly():
            return function(*args, **kwargs)

    return plain


def rows_with_plain_errors(rows: Iterable[T]) -> Iterator[T]:
    """Yield the same rows, which Spark takes in a worker, with errors as `with_plain_errors`."""
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
    """Return True if this process is one of Spark's."""
    return any(name.startswith(_WORKERS) for name in os.environ)
