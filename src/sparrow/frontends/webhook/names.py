"""Addresses of names, asked for in threads of their own.

The system's resolver takes the time that it takes, many seconds for a name whose servers are silent, and cannot be interrupted. So it has neither the threads that the
broker does other work in, nor does a stop wait for it. A name is asked for once at a time, however many want to know.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_ASKED: Final = 32
"""Names at a time."""
_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_Key = tuple[str, socket.AddressFamily]


class Names(AbstractResolver):
    """Loop thread only."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MAX_ASKED)
        self._asked: dict[_Key, asyncio.Task[list[Any]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name.

        Raises:
            OSError, UnicodeError: it has none.
        """
        key = (host, family)
        asking = self._asked.get(key)
        if asking is None:
            asking = self._asked[key] = asyncio.create_task(self._ask(host, family))
            asking.add_done_callback(lambda task: self._answered(key, task))
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=port,
                family=found,
                proto=protocol,
                flags=_NUMERIC,
            )
            for found, _, protocol, _, address in await asyncio.shield(asking)
        ]

    async def close(self) -> None:
        """Wait for no answer any more."""
        asked = list(self._asked.values())
        for asking in asked:
            asking.cancel()
        if asked:
            await asyncio.wait(asked)

    async def _ask(self, host: str, family: socket.AddressFamily) -> list[Any]:
        async with self._turns:
            return await _asked_in_a_thread(host, family)

    def _answered(self, key: _Key, asking: asyncio.Task[list[Any]]) -> None:
        self._asked.pop(key, None)
        if not asking.cancelled():
            asking.exception()  # whoever waited for it may be gone


def _asked_in_a_thread(host: str, family: socket.AddressFamily) -> asyncio.Future[list[Any]]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def tell(found: list[Any] | BaseException) -> None:
        if answer.done():
            return
        if isinstance(found, BaseException):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def ask() -> None:
        found: list[Any] | BaseException
        try:
            found = socket.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, UnicodeError) as error:
            found = error
        try:
            loop.call_soon_threadsafe(tell, found)
        except RuntimeError:  # the loop has ended meanwhile
            return

    threading.Thread(target=ask, name="sparrow-names", daemon=True).start()
    return answer
