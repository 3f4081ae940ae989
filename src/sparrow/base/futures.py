"""Calls that report the end of work: without a future, and without an iteration of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sparrow.base.errors import SparrowError

    Then = Callable[[SparrowError | None], None]
    """A function that is called on the loop, once, when work has ended: with None, or with the
    error. It does not raise.
    """


def end_future(future: asyncio.Future[None], error: SparrowError | None) -> None:
    """End a future with None, or with the error. One whose caller has gone away stays as it is."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
