"""Name resolution in threads of its own.

The system's resolver may block for many seconds if the servers of a name are silent, and it cannot
be interrupted. So it does not use the threads for other work of the broker, and a stop does not
wait for it. Concurrent requests for the same name share one lookup.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_LOOKUPS: Final = 32
"""Concurrent lookups."""
_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_Key = tuple[str, socket.AddressFamily]


class ThreadedResolver(AbstractResolver):
    """An aiohttp resolver whose lookups block nothing else. Loop thread only."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(MAX_LOOKUPS)
        self._lookups: dict[_Key, asyncio.Task[list[Any]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name.

        Raises:
            OSError, UnicodeError: the name has no address.
        """
        key = (host, family)
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.create_task(self._look_up(host, family))
            lookup.add_done_callback(lambda task: self._looked_up(key, task))
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=port,
                family=found,
                proto=protocol,
                flags=_NUMERIC,
            )
            for found, _, protocol, _, address in await asyncio.shield(lookup)
        ]

    async def close(self) -> None:
        """Cancel all lookups; their threads end by themselves."""
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)

    async def _look_up(self, host: str, family: socket.AddressFamily) -> list[Any]:
        async with self._semaphore:
            return await _resolve_in_thread(host, family)

    def _looked_up(self, key: _Key, lookup: asyncio.Task[list[Any]]) -> None:
        self._lookups.pop(key, None)
        if not lookup.cancelled():
            lookup.exception()  # the callers may be gone: mark the error as seen


def _resolve_in_thread(host: str, family: socket.AddressFamily) -> asyncio.Future[list[Any]]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Any]] = loop.create_future()

    def resolve(found: list[Any] | BaseException) -> None:
        if future.done():
            return
        if isinstance(found, BaseException):
            future.set_exception(found)
        else:
            future.set_result(found)

    def look_up() -> None:
        found: list[Any] | BaseException
        try:
            found = socket.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, UnicodeError) as error:
            found = error
        try:
            loop.call_soon_threadsafe(resolve, found)
        except RuntimeError:  # the loop has ended meanwhile
            return

    threading.Thread(target=look_up, name="sparrow-names", daemon=True).start()
    return future
