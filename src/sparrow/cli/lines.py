"""Lines of a file or of stdin, without blocking the event loop and without holding more than a few
chunks.

A daemon thread reads what is there (`os.read`), so a slow terminal or pipe gives its lines as they
come and Ctrl-C never waits for one more line. The thread stays at most `_CHUNKS_AHEAD` chunks ahead
of the consumer.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_CHUNK_BYTES = 256 << 10
_CHUNKS_AHEAD = 4
MAX_LINE_BYTES = 64 << 20


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of an open descriptor as they arrive, in lists, without their ends (\\n or
    \\r\\n).

    The last line needs no end. The number of bytes read is bounded by the longest line plus a few
    chunks.

    Raises:
        InvalidRecord: a line longer than MAX_LINE_BYTES.
        OSError: reading failed.
    """
    rest: list[bytes] = []
    rest_bytes = 0
    async for chunk in _chunks(descriptor):
        rest.append(chunk)
        rest_bytes += len(chunk)
        if b"\n" in chunk:
            *whole, tail = b"".join(rest).split(b"\n")
            rest, rest_bytes = [tail], len(tail)
            yield _without_returns(whole)
        elif rest_bytes > MAX_LINE_BYTES:
            raise InvalidRecord(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB; is this a text file?")
    if rest_bytes:
        yield _without_returns([b"".join(rest)])


def _without_returns(lines: list[bytes]) -> list[bytes]:
    if not any(line.endswith(b"\r") for line in lines):
        return lines
    return [line.removesuffix(b"\r") for line in lines]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)

    def give(item: bytes | OSError) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, item)

    stopped = threading.Event()
    # A duplicate of the descriptor: the caller may close his while the thread reads, and the number
    # would mean another file then.
    own = os.dup(descriptor)
    threading.Thread(
        target=_read_chunks, args=(own, room, stopped, give), name="sparrow-input", daemon=True
    ).start()
    try:
        while item := await queue.get():
            if isinstance(item, OSError):
                raise item
            room.release()
            yield item
    finally:
        stopped.set()
        room.release()


def _read_chunks(
    descriptor: int,
    room: threading.Semaphore,
    stopped: threading.Event,
    give: Callable[[bytes | OSError], None],
) -> None:
    try:
        while room.acquire() and not stopped.is_set():
            chunk = os.read(descriptor, _CHUNK_BYTES)
            give(chunk)
            if not chunk:
                return
    except OSError as error:
        give(error)
    finally:
        os.close(descriptor)
