"""Limits for bodies of requests before they are read: by size, by shared memory, and (in
`connection`) by time.

A body above a small size reserves its whole length; one of unknown length that grows above it
reserves the largest allowed length. A client that waits for memory is not read from. The holder of
a reservation waits only for its own client, whose time is limited, so the memory is released.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import Overloaded
from sparrow.frontends.http.problems import BodyTooLarge

if TYPE_CHECKING:
    from sparrow.frontends.http.asgi import Message, Receive
    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.transport.receive_budget import ReceiveBudget


class ClientGone(Exception):
    """The client disconnected before it had sent the whole body; no response is possible."""


class BoundedBody:
    """The `receive` of a request, within the limits. Call `release` after the request.

    Raises (when called):
        BodyTooLarge, Overloaded
    """

    __slots__ = ("_budget", "_limits", "_receive", "_reserved_bytes", "_size_bytes")

    def __init__(self, receive: Receive, limits: HttpLimits, budget: ReceiveBudget) -> None:
        self._receive = receive
        self._limits = limits
        self._budget = budget
        self._size_bytes = 0
        self._reserved_bytes = 0

    async def announce(self, size_bytes: int) -> None:
        """Reserve memory for the length that the head of the request declares."""
        if size_bytes > self._limits.max_body_bytes:
            raise self._too_large()
        if size_bytes > self._limits.small_body_bytes:
            await self._reserve(size_bytes)

    async def __call__(self) -> Message:
        message = await self._receive()
        body = message.get("body")
        if body:
            self._size_bytes += len(body)
            if self._size_bytes > self._limits.max_body_bytes:
                raise self._too_large()
            if self._size_bytes > self._limits.small_body_bytes and not self._reserved_bytes:
                await self._reserve(self._limits.max_body_bytes)
        return message

    def release(self) -> None:
        """Release the memory after the request."""
        reserved, self._reserved_bytes = self._reserved_bytes, 0
        if reserved:
            self._budget.release(reserved)

    async def _reserve(self, size_bytes: int) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def grant() -> None:
            if not granted.done():
                granted.set_result(None)

        if not self._budget.reserve(size_bytes, grant):
            await self._wait(granted, grant, size_bytes)
        self._reserved_bytes = size_bytes

    async def _wait(self, granted: asyncio.Future[None], grant: Any, size_bytes: int) -> None:
        try:
            async with asyncio.timeout(self._limits.body_timeout_ms / 1000):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self._budget.release(size_bytes)
            else:
                self._budget.withdraw(grant)
            if isinstance(error, TimeoutError):
                raise Overloaded("the memory for bodies (receive_budget) is full; try again later") from None
            raise

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(
            f"the body is larger than {self._limits.max_body_bytes} bytes (http.max_body); send "
            "several smaller ones"
        )
