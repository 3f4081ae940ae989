"""The HTTP listener of a standby: health for supervisors, and the way to the owner for everybody
else.

    /healthz   200: the process is alive
    /readyz    503: clients are served elsewhere, so that load balancers send nobody here
    others     307 to the same path at the owner, or 503 while nobody is

One request for each connection, of which only the first line counts. The connection ends after the
response, and what the client still sends is read and dropped for a moment, so that it gets the
response.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidConfig

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
MAX_HEAD_BYTES: Final = 16 << 10
MAX_DROPPED_BYTES: Final = 1 << 20
MAX_CONNECTIONS: Final = 100
HEAD_TIMEOUT_S: Final = 5.0
LINGER_S: Final = 1.0
_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,8191}) HTTP/1\.[01]\r?\n")
_REASONS: Final = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 503: "Service Unavailable"}


class StandbyListener:
    """The listener, between `open` and `close`.

    Args:
        find_owner: returns the address of the owner's HTTP listener; "" if there is none.
    """

    def __init__(self, find_owner: Callable[[], str]) -> None:
        self._find_owner = find_owner
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen. Return the port.

        Raises:
            InvalidConfig: the server cannot listen on that address.
        """
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, ssl=tls, limit=MAX_HEAD_BYTES, backlog=MAX_CONNECTIONS
            )
        except OSError as error:
            raise InvalidConfig(
                f"the standby cannot listen on {host}:{port} for HTTP: {error.strerror or error}"
            ) from None
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening, and end all connections. Again: no effect."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self._respond(await _read_head(reader)))
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            await _drop(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _LOG.debug("a connection to the standby ended: %r", error)
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _respond(self, head: bytes) -> bytes:
        found = _LINE.match(head)
        if found is None:
            return response(400, '{"status":"bad request"}')
        path = found[2].decode()
        if path.partition("?")[0] == "/healthz":
            return response(200, '{"status":"alive"}')
        if path.partition("?")[0] == "/readyz":
            return response(503, '{"status":"not ready","reasons":["this broker stands by"]}')
        owner = self._find_owner()
        if not owner or path.startswith("/metrics"):
            return response(503, '{"code":"DRAINING","detail":"this broker stands by"}', "Retry-After: 1")
        return response(
            307,
            '{"code":"DRAINING","detail":"another broker serves"}',
            f"Location: {owner.rstrip('/')}{path}",
        )


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(HEAD_TIMEOUT_S):
        line = await reader.readuntil(b"\n")
        size = len(line)
        while size < MAX_HEAD_BYTES:
            header = await reader.readuntil(b"\n")
            if not header.strip():
                return line
            size += len(header)
    return b""


async def _drop(reader: asyncio.StreamReader) -> None:
    dropped = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while dropped < MAX_DROPPED_BYTES and (data := await reader.read(1 << 16)):
                dropped += len(data)


def response(status: int, body: str, *headers: str) -> bytes:
    """Return the bytes of a response with a JSON body, after which the connection ends."""
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *headers,
    ]
    return ("\r\n".join(lines) + f"\r\n\r\n{body}").encode()
