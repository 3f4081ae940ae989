"""TCP links that can be frozen, slowed down, lose responses, or answer with errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

CHUNK_BYTES = 256 << 10
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
READING_S = 0.05
"""Time in which a client reads an error before its connection ends."""


class Link:
    """A port that leads to another one. Start and use it on one loop.

    Args:
        target: returns the port behind it, for each new connection; 0: nothing is there.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self.port = 0
        self.delay_s = 0.0
        """Delay of each piece, in both directions."""
        self.loses_responses = False
        """While True, what the other side sends is dropped, and the connection ends."""

        self.response = b""
        """If it is set, the other side's responses become this one, and the connection ends."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def freeze(self) -> None:
        """Let nothing pass: no byte, no end, no new connection."""
        self._may_pass.clear()

    def thaw(self) -> None:
        self._may_pass.set()

    def reset(self) -> None:
        """End all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        self.thaw()
        self.reset()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._may_pass.wait()
            with suppress(OSError):
                there, away = await asyncio.open_connection("127.0.0.1", self._target())
                self._writers.add(away)
                try:
                    ways = [
                        asyncio.ensure_future(self._pass(reader, away, is_response=False)),
                        asyncio.ensure_future(self._pass(there, writer, is_response=True)),
                    ]
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
                finally:
                    self._writers.discard(away)
                    away.transport.abort()
        except asyncio.CancelledError:
            pass  # by `close`
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_response: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._may_pass.wait()
                if is_response and self.loses_responses:
                    return
                if is_response and self.response:
                    writer.write(self.response)
                    await writer.drain()
                    await asyncio.sleep(READING_S)
                    return
                writer.write(data)
                await writer.drain()
