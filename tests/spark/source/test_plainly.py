"""Errors that leave a worker: one sentence if Sparrow raised it deliberately, the whole traceback
if it is a bug.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.spark.plain_errors import rows_with_plain_errors, with_plain_errors

_HIDE = "SPARK_HIDE_TRACEBACK"


def rows(error: Exception) -> Iterator[int]:
    yield 1
    raise error


@with_plain_errors
def called(error: Exception) -> None:
    raise error


def read(error: Exception) -> None:
    found = rows_with_plain_errors(rows(error))
    assert next(found) == 1
    next(found)


@pytest.mark.parametrize("fail", [called, read])
@pytest.mark.parametrize(
    ("error", "is_worker", "is_hidden"),
    [
        (InvalidArgument("no"), True, True),
        (InvalidArgument("no"), False, False),
        (ValueError("a fault"), True, False),
    ],
)
def test_worker_sends_no_traceback_of_a_deliberate_error(
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[Exception], None],
    error: Exception,
    is_worker: bool,
    is_hidden: bool,
) -> None:
    monkeypatch.delenv(_HIDE, raising=False)
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_SECRET", raising=False)
    if is_worker:
        monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    with pytest.raises(type(error)):
        fail(error)
    assert (_HIDE in os.environ) == is_hidden
    os.environ.pop(_HIDE, None)
