"""Cache of rendered records: each batch is rendered once for all streams that read it.

Hundreds of clients that follow one topic get the same records at nearly the same time. So the
rendering of a batch is kept for a while, keyed by position and checksum (a topic that was deleted
and created again has other batches at the same offsets). The cache is bounded by size; the least
recently used entry goes first.

A small batch is rendered on the loop. A large or compressed one, which may become large, is
rendered in a thread; concurrent callers wait for the same result.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.frontends.batches import PartitionBatch, split_batches
from sparrow.frontends.record_json import encode, members_of_record
from sparrow.records.readable import decode_readable
from sparrow.records.wellknown import priority_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sparrow.records.record import Record

MAX_CACHED_BYTES: Final = 16 << 20
MAX_UNUSED_S: Final = 30.0
"""Time after which an unused cache is cleared."""
MAX_PLAIN_BYTES: Final = 64 << 20
"""Limit for the records of one batch when decompressed."""
_LARGE_BYTES: Final = 64 << 10
"""Larger batches are rendered in a thread."""
_ENTRY_BYTES: Final = 400
"""Size of an entry beside its pieces."""
_PIECE_BYTES: Final = 100
"""Size of a piece beside its content: the object, the offset, the slots in lists."""


class Form(Enum):
    """The rendered form of a record."""

    OBJECT = "object"
    """A JSON object."""
    LEASED = "leased"
    """A JSON object with the priority and without the closing brace, so that the members for the
    holder of the lease can be appended.
    """
    EVENT = "event"
    """An event of a stream, up to and including the first position of its id; see `positions`."""


class RenderedBatch(NamedTuple):
    """The offsets of the records of a batch, and the rendered pieces."""

    offsets: list[int]
    pieces: list[bytes]

    def since(self, offset: int) -> RenderedBatch:
        """Return the part from an offset on."""
        if not self.offsets or self.offsets[0] >= offset:
            return self
        start = bisect_left(self.offsets, offset)
        return RenderedBatch(self.offsets[start:], self.pieces[start:])

    @property
    def size_bytes(self) -> int:
        """Return roughly the memory of this object."""
        return _ENTRY_BYTES + sum(map(len, self.pieces)) + _PIECE_BYTES * len(self.pieces)


_NOTHING: Final = RenderedBatch([], [])


class _Key(NamedTuple):
    topic: str
    partition: int
    base_offset: int
    crc: int
    form: Form
    as_base64: bool


class RenderCache:
    """Rendered batches of all topics; one for the frontend. Loop thread only."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._cached: OrderedDict[_Key, tuple[RenderedBatch, int]] = OrderedDict()
        """Renderings with their sizes, least recently used first."""
        self._under_way: dict[_Key, asyncio.Future[RenderedBatch]] = {}
        self.cached_bytes = 0
        self._is_used = False
        self._used_at_s = 0.0

    async def of(
        self, topic: str, partition: int, data: bytes | memoryview, *, form: Form, as_base64: bool = False
    ) -> AsyncIterator[RenderedBatch]:
        """Yield the rendering of each of several whole batches; see `batch`."""
        for batch in split_batches(topic, partition, data):
            yield await self.batch(batch, form=form, as_base64=as_base64)

    async def batch(self, batch: PartitionBatch, *, form: Form, as_base64: bool = False) -> RenderedBatch:
        """Return the rendered records of a batch, none for a control batch.

        Raises:
            CorruptBatch: the batch cannot be read; has its position and the next offset.
        """
        if batch.header.is_control:
            return _NOTHING
        key = _Key(batch.topic, batch.partition, batch.header.base_offset, batch.header.crc, form, as_base64)
        return self._maybe_cached(key) or await self._render(key, batch)

    def sweep(self, now_s: float) -> None:
        """Clear the cache if it has not been used for `MAX_UNUSED_S`. Called from time to time."""
        if self._is_used:
            self._is_used, self._used_at_s = False, now_s
        elif self._cached and now_s - self._used_at_s > MAX_UNUSED_S:
            self._cached.clear()
            self.cached_bytes = 0

    def _maybe_cached(self, key: _Key) -> RenderedBatch | None:
        self._is_used = True
        if key not in self._cached:
            return None
        self._cached.move_to_end(key)
        return self._cached[key][0]

    async def _render(self, key: _Key, batch: PartitionBatch) -> RenderedBatch:
        if len(batch.data) <= _LARGE_BYTES and not batch.header.compression:
            return self._store(key, _rendered(key, batch))
        under_way = self._under_way.get(key)
        if under_way is None:
            work = asyncio.get_running_loop().run_in_executor(None, _rendered, key, batch)
            under_way = self._under_way[key] = work
            work.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(under_way)

    def _finished(self, key: _Key, done: asyncio.Future[RenderedBatch]) -> None:
        del self._under_way[key]
        if not done.cancelled() and done.exception() is None:
            self._store(key, done.result())

    def _store(self, key: _Key, rendered: RenderedBatch) -> RenderedBatch:
        size_bytes = rendered.size_bytes
        if size_bytes <= self._max_bytes // 4:
            self._cached[key] = (rendered, size_bytes)
            self.cached_bytes += size_bytes
            while self.cached_bytes > self._max_bytes:
                _, (_, freed_bytes) = self._cached.popitem(last=False)
                self.cached_bytes -= freed_bytes
        return rendered


def _rendered(key: _Key, batch: PartitionBatch) -> RenderedBatch:
    records = decode_readable(batch.data, batch.topic, batch.partition, max_bytes=MAX_PLAIN_BYTES)
    make = _MAKERS[key.form]
    return RenderedBatch([r.offset for r in records], [make(r, key.as_base64) for r in records])


def _object(record: Record, as_base64: bool) -> bytes:
    return encode(members_of_record(record, as_base64=as_base64))


def _event(record: Record, as_base64: bool) -> bytes:
    return b"data: %b\nid: %d:%d" % (_object(record, as_base64), record.partition, record.offset + 1)


def _leased(record: Record, as_base64: bool) -> bytes:
    members = members_of_record(record, as_base64=as_base64)
    members["priority"] = priority_of(record.headers)
    return encode(members)[:-1]


_MAKERS: Final[dict[Form, Callable[[Record, bool], bytes]]] = {
    Form.OBJECT: _object,
    Form.LEASED: _leased,
    Form.EVENT: _event,
}
