"""Requests that wait for their RESPONSE on one channel: a number for each, and the future that its
response completes.

There is one table per channel and connection; when the connection ends, all requests in it fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError, from_code

if TYPE_CHECKING:
    import asyncio

    from sparrow.protocol.native.messages import Failure, Response


def failure_error(failure: Failure) -> SparrowError:
    """Return the error that the broker named."""
    return from_code(failure.code, failure.text)


class PendingRequests:
    """The requests without a response. Loop thread only."""

    __slots__ = ("_loop", "_next_ref", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next_ref = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self) -> tuple[int, asyncio.Future[Any]]:
        """Return a new `ref`, and the future of its response. Cancel the future to stop waiting."""
        self._next_ref += 1
        ref = self._next_ref
        future = self._loop.create_future()
        self._waiting[ref] = future
        future.add_done_callback(lambda done: self._over(ref, done))
        return ref, future

    def _over(self, ref: int, future: asyncio.Future[Any]) -> None:
        self._waiting.pop(ref, None)
        if not future.cancelled():
            future.exception()  # the caller may be gone; mark the error as seen

    def complete(self, response: Response) -> None:
        """Complete a request; drop a response that is not waited for any more."""
        future = self._waiting.pop(response.ref, None)
        if future is None or future.done():
            return
        if response.failure is not None:
            future.set_exception(failure_error(response.failure))
        else:
            future.set_result(response.result)

    def fail(self, error: SparrowError) -> None:
        """Fail all requests."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
