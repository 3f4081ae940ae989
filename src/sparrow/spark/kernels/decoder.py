"""Decoder of fetched batches into Arrow record batches.

A `Decoder` reads one partition. It gets the chunks of bytes from the fetches, in order, and yields
blocks of some ten thousand rows:

    headers   of all batches of a chunk, as columns (`headers`): checks, CRC, filters
    group     batches whose records are decoded by one call of a kernel;
              compressed ones are decompressed and joined
    block     buffers that groups are decoded into, until they have enough rows (`block`)

Left out are control batches, records outside the offsets [low, high), records that came before, and
records of aborted transactions. The content of a block equals the result of `records.record.decode`
for the same batches.

**Corrupt data** is named with topic, partition and offset. It is an error, unless it is to be
skipped, batch by batch, and counted. It is also an error if it cannot be skipped: a wrong length
hides the start of the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparrow.base.errors import BadInput, CorruptBatch, InvalidArgument
from sparrow.records.batch import HEADER_BYTES, check, parse_header
from sparrow.records.compression import DEFAULT_MAX_BYTES
from sparrow.records.layout import plain_records
from sparrow.records.record import decode
from sparrow.spark.kernels.block import TYPES, Block
from sparrow.spark.kernels.contract import FULL, OK, TABLE_COLUMNS, Wanted
from sparrow.spark.kernels.headers import Headers, find_batches
from sparrow.spark.kernels.selection import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparrow.spark.kernels.contract import Bytes, Int64s
    from sparrow.spark.kernels.selection import Implementation

    AbortedTransaction = tuple[int, int]
    """Producer id and first offset, as in a fetch response."""

MAX_OFFSET: Final = (1 << 63) - 1
_MAX_CONTENT_BYTES: Final = (1 << 31) - 1
"""The limit of Arrow's 32-bit offsets."""


@dataclass(frozen=True)
class DecodeOptions:
    """Options for decoding a partition."""

    columns: Sequence[str] = ("key", "value", "offset", "timestamp", "timestampType")
    """Columns in this order; also "headers". Others are not decoded, and headers that are not named
    are not checked either.
    """
    min_rows: int = 32_768
    """A block is handed over as soon as it has this many rows …"""
    max_block_bytes: int = 16 << 20
    """… or this many bytes. A batch is never split, so one larger batch is a larger block."""
    max_batch_bytes: int = DEFAULT_MAX_BYTES
    """Largest size of one batch after decompression."""
    check_crc: bool = True
    skip_corrupt: bool = False
    """Skip and count corrupt batches instead of raising."""
    implementation: Implementation = "auto"

    def __post_init__(self) -> None:
        unknown = [column for column in self.columns if column not in TYPES]
        if unknown or len(set(self.columns)) != len(self.columns):
            raise InvalidArgument(
                f"columns must be different ones of {', '.join(TYPES)}, not {', '.join(self.columns)}"
            )
        if self.min_rows < 1:
            raise InvalidArgument(f"a block has at least one row, not {self.min_rows}")
        for name in ("max_block_bytes", "max_batch_bytes"):
            if not 1 <= getattr(self, name) <= _MAX_CONTENT_BYTES:
                raise InvalidArgument(
                    f"{name} must be between 1 and {_MAX_CONTENT_BYTES}, not {getattr(self, name)}"
                )


@dataclass
class _Chunk:
    """The data of one fetch."""

    data: Bytes
    view: memoryview
    headers: Headers
    faults: dict[int, BadInput] = field(default_factory=dict)
    """Faults by the number of the batch."""

    def batch(self, number: int) -> memoryview:
        return self.view[self.headers.starts[number] : self.headers.ends[number]]


@dataclass
class _Group:
    """Batches that are decoded together: all as they are in the chunk, or all of them
    decompressed.
    """

    numbers: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """Empty if the batches are not compressed."""
    rows: int = 0
    size_bytes: int = 0

    def add(self, number: int, rows: int, size_bytes: int, body: bytes | None) -> None:
        self.numbers.append(number)
        self.rows += rows
        self.size_bytes += size_bytes
        if body is not None:
            self.bodies.append(body)

    def takes(self, body: bytes | None) -> bool:
        """Return True if the batch is compressed or not as those of the group are."""
        return not self.numbers or bool(self.bodies) == (body is not None)


class Decoder:
    """Decodes one partition, chunk after chunk.

    Args:
        topic: for errors.
        partition: for errors.
        low: first offset to decode.
        high: end of the offsets to decode (exclusive).
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        options: DecodeOptions | None = None,
        *,
        low: int = 0,
        high: int = MAX_OFFSET,
    ) -> None:
        self.options = options or DecodeOptions()
        self.topic = topic
        self.partition = partition
        self.high = high
        self.next_offset = low
        """The offset to fetch next, after the blocks of `feed` have been taken."""
        self.skipped_batches = 0
        self.last_skipped = ""
        """Fault of the last skipped batch."""
        self.schema: Any = pa.schema([(column, TYPES[column]) for column in self.options.columns])
        columns = self.options.columns
        self._wanted = Wanted("key" in columns, "value" in columns, "headers" in columns)
        self._kernels = select(self.options.implementation)
        self._block = Block(self._wanted)

    @property
    def is_done(self) -> bool:
        """Return True if no later record can be in the range."""
        return self.next_offset >= self.high

    def feed(
        self, data: bytes | bytearray | memoryview, aborted: Iterable[AbortedTransaction] = ()
    ) -> Iterator[Any]:
        """Decode the data of a fetch: whole batches, of which the last one may be cut (fetch it
        again). Exhaust the iterator before the next call.

        Args:
            aborted: the aborted transactions in the same response; none: records of aborted
                transactions are yielded like others.

        Yields: Arrow record batches of at least `min_rows` rows or `max_block_bytes`; the rest
        waits for the next call, or for `finish`.

        Raises:
            CorruptBatch: names the batch and its fault.
            UnsupportedCompression: the batch has an unknown codec.
            RecordTooLarge: the batch is larger than `max_batch_bytes` after decompression.
        """
        view = memoryview(data).cast("B")
        found = find_batches(view)
        if found.places:
            array = np.frombuffer(view, np.uint8)
            yield from self._decode_chunk(_Chunk(array, view, Headers(array, found.places)), aborted)
        if found.is_lost and not self.is_done:
            raise self._named(*self._lost(view[found.end :]))

    def finish(self) -> Iterator[Any]:
        """Yield the remaining rows, if any."""
        if self._block.rows:
            yield self._take_block()

    # ── a chunk ───────────────────────────────────────────────────────────────────────────────────

    def _decode_chunk(self, chunk: _Chunk, aborted: Iterable[AbortedTransaction]) -> Iterator[Any]:
        headers = chunk.headers
        is_wrong = headers.is_wrong()
        if self.options.check_crc:
            is_wrong |= headers.has_wrong_crc(chunk.data, self._kernels)
        is_wrong[headers.misplaced(is_wrong)] = True
        # Ignore the offsets of a corrupt header as long as another batch follows.
        reached = np.where(is_wrong, 0, headers.next_offset)
        lows = np.maximum.accumulate(np.concatenate(([self.next_offset], reached)))
        is_wrong &= lows[:-1] < self.high
        for number in np.flatnonzero(is_wrong).tolist():
            chunk.faults[number] = self._explain(chunk, number)
        is_dropped = headers.is_control | headers.is_empty() | _is_aborted(headers, aborted)
        is_dropped |= (headers.next_offset <= lows[:-1]) | (headers.base_offset >= self.high)
        wanted = np.flatnonzero(~is_dropped | is_wrong).tolist()
        yield from self._decode_batches(chunk, wanted, lows[:-1])
        if is_wrong[-1]:
            self.next_offset = max(
                int(lows[-1]), int(headers.next_offset[-1]), int(headers.base_offset[-1]) + 1
            )
        else:
            self.next_offset = int(lows[-1])

    def _decode_batches(self, chunk: _Chunk, wanted: list[int], lows: Int64s) -> Iterator[Any]:
        """Form groups, decode each, and yield blocks as they become full."""
        options, group = self.options, _Group()
        for number in wanted:
            found = self._maybe_body(chunk, number)
            if found is None:
                continue
            body, size_bytes = found
            content_bytes = self._block.content_bytes + group.size_bytes
            is_too_much = content_bytes > 0 and content_bytes + size_bytes > options.max_block_bytes
            if is_too_much or not group.takes(body):
                self._decode_group(chunk, group, lows)
                group = _Group()
            if is_too_much:
                yield from self._full_block(size_bytes)
            group.add(number, int(chunk.headers.count[number]), size_bytes, body)
            if self._block.rows + group.rows >= options.min_rows:
                self._decode_group(chunk, group, lows)
                group = _Group()
                yield from self._full_block(0)
        self._decode_group(chunk, group, lows)

    def _maybe_body(self, chunk: _Chunk, number: int) -> tuple[bytes | None, int] | None:
        """Return the records of a batch if they are compressed (otherwise None), and their size in
        bytes; or only None if the batch is refused.
        """
        headers = chunk.headers
        try:
            if number in chunk.faults:
                raise chunk.faults[number]
            if headers.codec[number]:
                batch = chunk.batch(number)
                body = plain_records(parse_header(batch), batch, self.options.max_batch_bytes)
                return body, len(body)
        except BadInput as error:
            self._refuse(chunk, number, error)
            return None
        return None, int(headers.ends[number] - headers.starts[number]) - HEADER_BYTES

    def _full_block(self, more_bytes: int) -> Iterator[Any]:
        """Yield the block if it has enough rows, or no room for this many more bytes."""
        block, options = self._block, self.options
        is_full = block.rows >= options.min_rows or block.content_bytes + more_bytes > options.max_block_bytes
        if block.rows and is_full:
            yield self._take_block()

    def _take_block(self) -> Any:
        # The next block likely has as many headers.
        block, self._block = self._block, Block(self._wanted, self._block.header_room)
        return block.finish(self.options.columns, self.schema)

    # ── a group ───────────────────────────────────────────────────────────────────────────────────

    def _decode_group(self, chunk: _Chunk, group: _Group, lows: Int64s) -> None:
        if not group.numbers:
            return
        data, table = self._table(chunk, group, lows)
        block = self._block
        block.reserve(group.rows, group.size_bytes)
        first = 0
        while True:
            status, batch = self._kernels.decode(data, table, first, self._wanted, block)
            if status == OK:
                return
            first = batch
            if status == FULL:
                block.headers.grow()
            else:
                number = group.numbers[batch]
                self._refuse(chunk, number, self._explain(chunk, number))
                first += 1

    def _table(self, chunk: _Chunk, group: _Group, lows: Int64s) -> tuple[Bytes, Int64s]:
        """Return the group as a kernel takes it; the columns are numbered in `contract`."""
        headers, numbers = chunk.headers, np.array(group.numbers, np.int64)
        base_offset = headers.base_offset[numbers]
        data = chunk.data
        starts, ends = headers.starts[numbers] + HEADER_BYTES, headers.ends[numbers]
        if group.bodies:
            data = np.frombuffer(
                group.bodies[0] if len(group.bodies) == 1 else b"".join(group.bodies), np.uint8
            )
            sizes = np.array([len(body) for body in group.bodies], np.int64)
            ends = np.cumsum(sizes)
            starts = ends - sizes
        table = np.empty((len(numbers), TABLE_COLUMNS), np.int64)
        columns = (
            starts,
            ends,
            headers.count[numbers],
            base_offset,
            headers.last_delta[numbers],
            headers.base_timestamp[numbers],
            headers.max_timestamp[numbers],
            headers.log_append[numbers],
            lows[numbers] - base_offset,
            self.high - base_offset,
        )
        for index, column in enumerate(columns):
            table[:, index] = column
        return data, table

    # ── what is wrong ─────────────────────────────────────────────────────────────────────────────

    def _explain(self, chunk: _Chunk, number: int) -> BadInput:
        """Return the fault of a batch as an error."""
        batch = chunk.batch(number)
        try:
            if self.options.check_crc or batch[16] != 2:
                check(batch)
            decode(batch, check_crc=False, max_bytes=self.options.max_batch_bytes)
        except BadInput as error:
            return error
        return CorruptBatch("its header cannot be right")

    def _refuse(self, chunk: _Chunk, number: int, error: BadInput) -> None:
        """Raise the error, or count it."""
        behind = int(chunk.headers.next_offset[number])
        named = self._named(
            int(chunk.headers.base_offset[number]), error, f". The next batch begins at offset {behind}"
        )
        if not self.options.skip_corrupt:
            raise named from None
        self.skipped_batches += 1
        self.last_skipped = named.text

    def _lost(self, rest: memoryview) -> tuple[int, BadInput]:
        """Return the offset and the fault of data that is not a batch at all."""
        try:
            check(rest)
            offset = parse_header(rest).base_offset
        except BadInput as error:
            return self.next_offset, CorruptBatch(
                f"{error.text}; what follows cannot be read, because nobody knows where it starts"
            )
        return offset, CorruptBatch("its length cannot be right")

    def _named(self, offset: int, error: BadInput, then: str = "") -> BadInput:
        return type(error)(
            f"topic {self.topic}, partition {self.partition}, batch at offset {offset}: {error.text}{then}"
        )


def _is_aborted(headers: Headers, aborted: Iterable[AbortedTransaction]) -> Any:
    """Return the mask of batches that belong to aborted transactions.

    These are all batches of the transaction's producer from its first offset to the producer's next
    marker, even if that marker says commit: it can only be the one that ended the transaction.
    """
    dropped = np.zeros(len(headers), np.bool_)
    pending = sorted(aborted, key=itemgetter(1), reverse=True)
    if not pending:
        return dropped
    producers: set[int] = set()
    for number in np.flatnonzero(headers.is_transactional).tolist():
        while pending and pending[-1][1] < headers.next_offset[number]:
            producers.add(pending.pop()[0])
        producer_id = int(headers.producer_id[number])
        if headers.is_control[number]:
            producers.discard(producer_id)
        else:
            dropped[number] = producer_id in producers
    return dropped
