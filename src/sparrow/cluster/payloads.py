"""The payloads of commits: where they are, and the cache through which all of them are read.

A payload is in the ledger's row or in an object. Recent payloads are in the cache as a
whole, so that readers that keep up cost nothing; old ones are fetched whole, or by blocks if they
are large. Readers of one block share one fetch.

Reads on the event loop await. Blocking readers (`PartitionLog.headers`, in threads) use a loop of
their own in a thread of the cache, with a connection of its own to the ledger.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparrow.cluster.errors import LedgerUnavailable, ObjectMissing, ObjectsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.cluster.ledger import Ledger
    from sparrow.cluster.objects import Objects

BLOCK_BYTES: Final = 4 << 20
MAX_WHOLE_BYTES: Final = 8 << 20
"""Size of the largest payload that is fetched as a whole."""
RETRY_DELAYS_S: Final = (0.02, 0.1, 0.5)
"""Delays after which a read that failed is repeated."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class CommitPayload:
    """The payload of one commit.

    Attributes:
        object_key: None: it is in the ledger's row.
        live: number of uses: runs that are part of a log, and journal records.
    """

    seq: int
    at_ms: int
    object_key: str | None
    size_bytes: int
    live: int = 0

    @property
    def block_bytes(self) -> int:
        return self.size_bytes if self.size_bytes <= MAX_WHOLE_BYTES else BLOCK_BYTES


class PayloadCache:
    """Payloads by blocks, up to a number of bytes; the least recently used go first. Thread-safe,
    where it does not say otherwise.

    Args:
        connect: opens one more connection to the ledger.
    """

    def __init__(
        self, shard: int, ledger: Ledger, objects: Objects, connect: Callable[[], Ledger], max_bytes: int
    ) -> None:
        self._shard = shard
        self._ledger = ledger
        self._objects = objects
        self._connect = connect
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[tuple[int, int], bytes | bytearray] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._fetches: dict[tuple[int, int], asyncio.Task[bytes]] = {}
        self._blocking: _Thread | None = None
        self._is_closed = False
        self.fetched = 0
        """Number of blocks that were fetched."""

    @property
    def size_bytes(self) -> int:
        return self._size

    def add(self, payload: CommitPayload, data: bytes | bytearray) -> None:
        """Keep the bytes of a payload that was just committed."""
        size = max(payload.block_bytes, 1)
        for number, start in enumerate(range(0, max(len(data), 1), size)):
            self._keep((payload.seq, number), data if size >= len(data) else data[start : start + size])

    def forget(self, payload: CommitPayload) -> None:
        """Forget a payload that is not used any more."""
        with self._lock:
            for number, _, _ in _blocks_of(payload, 0, payload.size_bytes):
                self._size -= len(self._blocks.pop((payload.seq, number), b""))

    def maybe_read(self, payload: CommitPayload, position: int, length: int) -> memoryview | None:
        """Return bytes of a payload, or None if not all are in memory."""
        parts = []
        for number, start, stop in _blocks_of(payload, position, length):
            with self._lock:
                block = self._blocks.get((payload.seq, number))
                if block is None:
                    return None
                self._blocks.move_to_end((payload.seq, number))
            parts.append(memoryview(block)[start:stop])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    async def read(self, payload: CommitPayload, position: int, length: int) -> memoryview:
        """Return bytes of a payload. Loop thread only.

        Raises:
            ObjectMissing, ObjectsUnavailable, LedgerUnavailable
        """
        parts = []
        for number, start, stop in _blocks_of(payload, position, length):
            key = (payload.seq, number)
            with self._lock:
                block = self._blocks.get(key)
            if block is None:
                block = await asyncio.shield(self._begin(payload, number))
            parts.append(memoryview(block)[start:stop])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _begin(self, payload: CommitPayload, number: int) -> asyncio.Task[bytes]:
        key = (payload.seq, number)
        task = self._fetches.get(key)
        if task is None:
            fetch = self._fetch(payload, number, self._ledger)
            task = self._fetches[key] = asyncio.get_running_loop().create_task(fetch)
            task.add_done_callback(lambda done: self._fetched(key, done))
        return task

    def _fetched(self, key: tuple[int, int], task: asyncio.Task[bytes]) -> None:
        self._fetches.pop(key, None)
        if not task.cancelled():
            task.exception()  # its readers get it; without one it is of no interest

    def read_blocking(self, payload: CommitPayload, position: int, length: int) -> memoryview:
        """Read as `read`, but block the calling thread."""
        parts = []
        for number, start, stop in _blocks_of(payload, position, length):
            with self._lock:
                block = self._blocks.get((payload.seq, number))
            if block is None:
                thread = self._thread()
                block = thread.run(self._fetch(payload, number, thread.ledger))
            parts.append(memoryview(block)[start:stop])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _thread(self) -> _Thread:
        with self._lock:
            if self._blocking is None:
                self._blocking = _Thread(self._connect())
            return self._blocking

    async def _fetch(self, payload: CommitPayload, number: int, ledger: Ledger) -> bytes:
        for delay_s in RETRY_DELAYS_S:
            try:
                return await self._fetch_once(payload, number, ledger)
            except (ObjectsUnavailable, LedgerUnavailable):
                await asyncio.sleep(delay_s)
        return await self._fetch_once(payload, number, ledger)

    async def _fetch_once(self, payload: CommitPayload, number: int, ledger: Ledger) -> bytes:
        if payload.object_key is None:
            data = await ledger.payload(self._shard, payload.seq)
            if data is None:
                raise ObjectMissing(f"the ledger has no payload of commit {payload.seq} any more")
        else:
            start = number * payload.block_bytes
            length = min(payload.block_bytes, payload.size_bytes - start)
            data = await self._objects.get(payload.object_key, start, length)
            if len(data) != length:
                raise ObjectMissing(
                    f"the object {payload.object_key} ends at byte {start + len(data)} of "
                    f"{payload.size_bytes}; restore it from a backup"
                )
        self.fetched += 1
        self._keep((payload.seq, number), data)
        return data

    def _keep(self, key: tuple[int, int], data: bytes | bytearray) -> None:
        with self._lock:
            before = self._blocks.pop(key, b"")
            self._blocks[key] = data
            self._size += len(data) - len(before)
            while self._size > self._max_bytes and len(self._blocks) > 1:
                _, oldest = self._blocks.popitem(last=False)
                self._size -= len(oldest)

    async def close(self) -> None:
        """End the fetches and the thread. Loop thread only."""
        for task in self._fetches.values():
            task.cancel()
        with self._lock:
            thread, self._blocking = self._blocking, None
            self._blocks.clear()
            self._size = 0
        if thread is not None:
            await asyncio.to_thread(thread.close)


class _Thread:
    """A thread with an event loop, for readers that block, and a connection to the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="sparrow-cold-reads", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self.ledger.close())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _blocks_of(payload: CommitPayload, position: int, length: int) -> list[tuple[int, int, int]]:
    """Return (block, first byte in it, end in it) of all blocks that hold a range."""
    size = max(payload.block_bytes, 1)
    first, last = position // size, max(position + length - 1, position) // size
    if first == last:
        return [(first, position - first * size, position + length - first * size)]
    found = []
    for number in range(first, last + 1):
        begin = number * size
        found.append((number, max(position - begin, 0), min(position + length - begin, size)))
    return found
