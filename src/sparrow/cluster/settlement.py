"""Futures that follow the outcome of a commit, and work that ends with one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sparrow.base.errors import SparrowError

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


async def run_to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which goes on to its end even when the caller is cancelled."""
    task = asyncio.create_task(work)
    # A caller that is cancelled does not learn of a failure, and needs not.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
