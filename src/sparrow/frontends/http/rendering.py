"""Records as the bytes that streams send, rendered once for all who read the same batch.

Hundreds of clients that follow one topic get the same records at nearly the same time. So what a batch was rendered to is kept for a while, by the place and the checksum of
the batch (a topic that was deleted and made again has other batches at the same offsets). What is kept is bounded by its size; the longest unused goes first.

A small batch is rendered on the loop. A large one, or one that is compressed and may become large, is rendered in a thread; who asks for it meanwhile waits for the same
result.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.frontends.record_json import encode, members_of_record
from sparrow.records.batch import parse_header
from sparrow.records.record import decode
from sparrow.records.wellknown import priority_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from sparrow.records.batch import BatchHeader
    from sparrow.records.record import Record

MAX_KEPT_BYTES: Final = 16 << 20
KEPT_S: Final = 30.0
"""How long it is kept when nobody asks."""
MAX_PLAIN_BYTES: Final = 64 << 20
"""What the records of one batch may become when decompressed."""
_LARGE_BYTES: Final = 64 << 10
"""Larger batches are rendered in a thread."""
_ENTRY_BYTES: Final = 400
"""What an entry takes beside its pieces."""
_PIECE_BYTES: Final = 100
"""What a piece takes beside its content: the object, the offset, their places in lists."""


class Form(Enum):
    """What a record becomes."""

    OBJECT = "object"
    """A JSON object."""
    LEASED = "leased"
    """The same with its priority, but for the closing brace, so that what only the holder of the lease gets can be added."""
    EVENT = "event"
    """An event of a stream, up to and with the first position of its id; see `positions`."""


class Rendered(NamedTuple):
    """The records of a batch, by offset, and what each became."""

    offsets: list[int]
    pieces: list[bytes]

    def since(self, offset: int) -> Rendered:
        """Those from an offset on."""
        if not self.offsets or self.offsets[0] >= offset:
            return self
        start = bisect_left(self.offsets, offset)
        return Rendered(self.offsets[start:], self.pieces[start:])

    @property
    def size_bytes(self) -> int:
        """About the memory that it takes."""
        return _ENTRY_BYTES + sum(map(len, self.pieces)) + _PIECE_BYTES * len(self.pieces)


_NOTHING: Final = Rendered([], [])


class Batch(NamedTuple):
    """A batch, and where it is from."""

    topic: str
    partition: int
    header: BatchHeader
    data: memoryview


def batches(topic: str, partition: int, data: bytes | memoryview) -> Iterator[Batch]:
    """Whole batches, back to back, as the log gave them; their checksums are checked when they are read."""
    view, position = memoryview(data), 0
    while position < len(view):
        header = parse_header(view, position)
        end = position + header.size_bytes
        yield Batch(topic, partition, header, view[position:end])
        position = end


class _Key(NamedTuple):
    topic: str
    partition: int
    base_offset: int
    crc: int
    form: Form
    as_base64: bool


class Renderings:
    """One for the door. Loop thread only."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[_Key, tuple[Rendered, int]] = OrderedDict()
        """With the size of each, the longest unused first."""
        self._under_way: dict[_Key, asyncio.Future[Rendered]] = {}
        self.kept_bytes = 0
        self._is_used = False
        self._used_at_s = 0.0

    async def of(
        self, topic: str, partition: int, data: bytes | memoryview, *, form: Form, as_base64: bool = False
    ) -> AsyncIterator[Rendered]:
        """Batch by batch what the records of whole batches become; see `batch`."""
        for batch in batches(topic, partition, data):
            yield await self.batch(batch, form=form, as_base64=as_base64)

    async def batch(self, batch: Batch, *, form: Form, as_base64: bool = False) -> Rendered:
        """What the records of a batch become; nothing for a control batch.

        Raises:
            CorruptBatch, UnsupportedCompression, RecordTooLarge: it cannot be read.
        """
        if batch.header.is_control:
            return _NOTHING
        key = _Key(batch.topic, batch.partition, batch.header.base_offset, batch.header.crc, form, as_base64)
        return self._maybe_kept(key) or await self._render(key, batch)

    def sweep(self, now_s: float) -> None:
        """Keep nothing when nobody has asked for a while. Called from time to time."""
        if self._is_used:
            self._is_used, self._used_at_s = False, now_s
        elif self._kept and now_s - self._used_at_s > KEPT_S:
            self._kept.clear()
            self.kept_bytes = 0

    def _maybe_kept(self, key: _Key) -> Rendered | None:
        self._is_used = True
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    async def _render(self, key: _Key, batch: Batch) -> Rendered:
        if len(batch.data) <= _LARGE_BYTES and not batch.header.compression:
            return self._keep(key, _rendered(key, batch))
        under_way = self._under_way.get(key)
        if under_way is None:
            work = asyncio.get_running_loop().run_in_executor(None, _rendered, key, batch)
            under_way = self._under_way[key] = work
            work.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(under_way)

    def _finished(self, key: _Key, done: asyncio.Future[Rendered]) -> None:
        del self._under_way[key]
        if not done.cancelled() and done.exception() is None:
            self._keep(key, done.result())

    def _keep(self, key: _Key, rendered: Rendered) -> Rendered:
        size_bytes = rendered.size_bytes
        if size_bytes <= self._max_bytes // 4:
            self._kept[key] = (rendered, size_bytes)
            self.kept_bytes += size_bytes
            while self.kept_bytes > self._max_bytes:
                _, (_, freed_bytes) = self._kept.popitem(last=False)
                self.kept_bytes -= freed_bytes
        return rendered


def _rendered(key: _Key, batch: Batch) -> Rendered:
    records = decode(batch.data, batch.topic, batch.partition, max_bytes=MAX_PLAIN_BYTES)
    make = _MAKERS[key.form]
    return Rendered([r.offset for r in records], [make(r, key.as_base64) for r in records])


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
