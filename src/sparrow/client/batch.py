"""Messages on their way to the broker: the batch that contains them, its encoding, and the cheap
handle that the program holds.

Strategy: confirmation is per batch, so the handle of a message (`Delivery`) is its number within a
batch and has no future. A future is made for each caller that really waits, so that cancelling one
of them does not affect the others.

A batch is settled once: confirmed, failed, or moved. Moved means that its messages went into other
batches (it was too large and was split, or was collected before the topic's partitions were known);
its deliveries follow them.

The producer's fields are at fixed offsets of a record batch's header (`records/batch.py` draws it)
and under its CRC; they change when the sequence of an encoded batch does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import google_crc32c
import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.records.batch import CRC_START
from sparrow.records.builder import build_batch
from sparrow.records.record import decode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from sparrow.records.compression import Compression

Headers = tuple[tuple[str, bytes | None], ...]

Columns = tuple[list[bytes | None], list[bytes | None], list[Headers], list[int]]
"""Values, keys, headers, timestamps."""

RECORD_OVERHEAD_BYTES = 24
"""Bytes that a record needs besides key, value and headers: length, attributes, deltas, and the
lengths of key, value and headers.
"""
ROOM_OVERHEAD_BYTES = 96
"""Memory that a message takes in the producer besides its bytes in the batch."""

_PRODUCER_OFFSET = 43
_PRODUCER = struct.Struct(">qhi")
_CRC_OFFSET = 17
_CRC = struct.Struct(">I")


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """The position of a published message. `offset` is -1 where it is not known (acks=0);
    `timestamp` is in ms.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerBatch:
    """Messages for one partition, as columns, and their outcome. `keys` and `headers` are None
    while no message has any.
    """

    __slots__ = (
        "base_offset",
        "data",
        "deadline",
        "due_at",
        "error",
        "first",
        "headers",
        "is_due",
        "is_open",
        "is_seen",
        "is_settled",
        "keys",
        "loop",
        "may_be_written",
        "moved",
        "partition",
        "ref",
        "sends",
        "sequence",
        "serial",
        "size_bytes",
        "timestamp",
        "timestamps",
        "topic",
        "values",
        "waiters",
        "was_unsure",
    )

    def __init__(
        self, topic: str, partition: int, serial: int, deadline: float, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.loop = loop
        self.serial = serial
        """Grows with each batch of the producer; parts of a split batch share it."""
        self.first = 0
        """Number of the first message within the batch that was split."""
        self.deadline = deadline
        """Monotonic time after which the batch is given up."""
        self.due_at = 0.0
        """Monotonic time at which it has lingered long enough."""
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int] = []
        self.size_bytes = 0
        """Upper bound of the records' size before compression."""
        self.is_open = True
        """True while it accepts messages."""
        self.is_due = False
        """True once it has lingered long enough."""
        self.data: bytes | None = None
        self.sequence = -1
        self.ref = -1
        self.sends = 0
        self.may_be_written = False
        """True if the broker may have it: it was sent, and the response is missing or leaves it
        open.
        """
        self.was_unsure = False
        """`may_be_written` before the current sending."""
        self.is_settled = False
        self.is_seen = False
        """True once the outcome was read."""
        self.base_offset = -1
        self.timestamp = -1
        self.error: SparrowError | None = None
        self.moved: list[Delivery] | None = None
        self.waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def room_bytes(self) -> int:
        """The bytes that the batch takes of the producer's room."""
        return self.size_bytes + ROOM_OVERHEAD_BYTES * len(self.timestamps)

    def append(self, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int) -> int:
        """Append a message and return its number; the caller adds to `size_bytes`."""
        index = len(self.timestamps)
        self.timestamps.append(timestamp_ms)
        self.values.append(value)
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = [None] * index
            self.keys.append(key)
        if self.headers is not None:
            self.headers.append(headers)
        elif headers:
            self.headers = [()] * index
            self.headers.append(headers)
        return index

    def rows(self) -> list[tuple[bytes | None, bytes | None, Headers, int]]:
        """Return value, key, headers and timestamp of each message of a batch that is not
        encoded.
        """
        count = len(self.timestamps)
        keys = self.keys or [None] * count
        headers = self.headers or [()] * count
        return list(zip(self.values, keys, headers, self.timestamps, strict=True))

    def part(self, columns: Columns, start: int, end: int) -> ProducerBatch:
        """Return the messages `start` to `end` as a batch with its share of the sequences;
        `columns` are those of this batch.
        """
        part = ProducerBatch(self.topic, self.partition, self.serial, self.deadline, loop=self.loop)
        part.values, part.keys, part.headers, part.timestamps = (column[start:end] for column in columns)  # type: ignore[assignment]
        part.first = self.first + start
        part.is_open = False
        if self.sequence >= 0:
            part.sequence = (self.sequence + start) & 0x7FFFFFFF
        return part

    def confirm(self, base_offset: int, timestamp: int) -> None:
        """Settle the batch as written. `timestamp` is the append time, or -1: the messages keep
        their own.
        """
        self.base_offset = base_offset
        self.timestamp = timestamp
        self._settle()

    def fail(self, error: SparrowError) -> None:
        """Settle the batch as failed."""
        self.error = error
        self._settle()

    def move(self, deliveries: list[Delivery]) -> None:
        """Settle the batch as moved to other batches, with one delivery for each message."""
        self.moved = deliveries
        self.is_seen = True
        self._settle()

    def _settle(self) -> None:
        self.is_settled = True
        self.is_open = False
        self.values = []
        self.keys = self.headers = self.data = None
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Return a new future that is done when the batch is settled; the caller then reads the
        outcome.
        """
        self.is_seen = True
        return self._waiter()

    async def wait_quietly(self) -> None:
        """Wait until the batch, and those that its messages moved to, are settled, without reading
        the outcome.
        """
        if not self.is_settled:
            await self._waiter()
        for batch in {delivery.batch for delivery in self.moved or ()}:
            await batch.wait_quietly()

    def _waiter(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.loop.create_future()
        self.waiters.append(future)
        return future

    def outcome(self, index: int) -> RecordMetadata:
        """Return the position of message `index`, or raise its error. The batch must be settled."""
        self.is_seen = True
        if self.moved is not None:
            return self.moved[index].result()
        if self.error is not None:
            raise copy_of(self.error)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.timestamp if self.timestamp >= 0 else self.timestamps[index]
        return RecordMetadata(self.topic, self.partition, offset, timestamp)


class Delivery(msgspec.Struct, eq=False, gc=False):
    """The result of `send`: await it for the message's `RecordMetadata`, or for the error that kept
    it from being written.

    Awaiting is optional, and several tasks may do it. Failures that were never read are raised by
    the producer's `flush`.
    """

    batch: ProducerBatch
    index: int

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self.batch
        if not batch.is_settled:
            yield from batch.wait()
        if batch.moved is not None:
            return (yield from batch.moved[self.index].__await__())
        return batch.outcome(self.index)

    @property
    def done(self) -> bool:
        """True once the outcome of the message is known."""
        batch = self.batch
        return batch.moved[self.index].done if batch.moved is not None else batch.is_settled

    def result(self) -> RecordMetadata:
        """Return what awaiting gives, once `done` is True.

        Raises:
            InvalidArgument: the outcome is not known yet.
            SparrowError: the error of the message.
        """
        if not self.done:
            raise InvalidArgument("the delivery has no result yet; await it")
        return self.batch.outcome(self.index)


def encode(
    batch: ProducerBatch, compression: Compression, producer_id: int, epoch: int, sequence: int
) -> bytes:
    """Return the batch's bytes with these producer fields. The columns are dropped, so that memory
    is not used twice.
    """
    if batch.data is None:
        data = build_batch(
            batch.values,
            batch.keys,
            batch.headers,
            batch.timestamps,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        batch.values = []
        batch.keys = batch.headers = None
        batch.data = data
    else:
        batch.data = renumber(batch.data, producer_id, epoch, sequence)
    batch.sequence = sequence
    return batch.data


def renumber(data: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """Return the same records with other producer fields."""
    changed = bytearray(data)
    _PRODUCER.pack_into(changed, _PRODUCER_OFFSET, producer_id, epoch, sequence)
    _CRC.pack_into(changed, _CRC_OFFSET, google_crc32c.value(bytes(changed[CRC_START:])))
    return bytes(changed)


def decode_columns(data: bytes) -> Columns:
    """Return values, keys, headers and timestamps of an encoded batch."""
    records = decode(data, check_crc=False)
    return (
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        [record.timestamp for record in records],
    )


def copy_of(error: SparrowError) -> SparrowError:
    """Return a copy of the error: raising one instance again and again grows its traceback."""
    again = type(error)(*error.args)
    again.__dict__.update(error.__dict__)
    return again
