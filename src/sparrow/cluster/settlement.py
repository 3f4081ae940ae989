"""Futures that follow the outcome of a commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sparrow.base.errors import SparrowError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Settle = Callable[[SparrowError | None], None]
"""Called when a group is committed (None), or failed."""


def settle_future(future: asyncio.Future[T], result: T) -> Settle:
    """Return a function that ends `future` with `result`, or with the error of the commit; one that
    is cancelled stays so.
    """

    def settle(error: SparrowError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    return settle
