"""A message on its way: the batch it travels in, and the cheap handle that its sender holds.

Strategy: confirmation is per batch, so what a sender gets for each message is a number within a batch (`Delivery`) and no future of its own.
A future is made only for who really waits, one for each, so that cancelling one waiter touches nobody else.

A batch is settled once: confirmed, failed, or moved. Moved means that its messages went on in other batches (it was too large and
was split, or was collected before the topic's partitions were known); deliveries follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from sparrow.client.line import Line

Headers = tuple[tuple[str, bytes | None], ...]

Columns = tuple[list[bytes | None], list[bytes | None], list[Headers], list[int]]
"""Values, keys, headers, timestamps."""

RECORD_OVERHEAD_BYTES = 24
"""What a record needs besides key, value and headers: length, attributes, deltas, and the lengths of key, value and headers."""
ROOM_OVERHEAD_BYTES = 96
"""What a message costs the producer's memory besides its bytes in the batch."""


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a message went. `offset` is -1 where it is not known (acks=0); `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Batch:
    """Messages for one partition, as columns, and what became of them. `keys` and `headers` are None while no message has any."""

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
        "line",
        "may_be_written",
        "moved",
        "ref",
        "sends",
        "sequence",
        "serial",
        "size_bytes",
        "timestamp",
        "timestamps",
        "values",
        "waiters",
        "was_unsure",
    )

    def __init__(self, line: Line, serial: int, deadline: float) -> None:
        self.line = line
        self.serial = serial
        """Grows with each batch of the producer; parts of a split batch share it."""
        self.first = 0
        """Number of the first message within the batch that was split."""
        self.deadline = deadline
        """Monotonic time after which it is not tried any more."""
        self.due_at = 0.0
        """Monotonic time at which it has lingered long enough."""
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int] = []
        self.size_bytes = 0
        """Upper bound of the records' size before compression."""
        self.is_open = True
        """Whether it takes more messages."""
        self.is_due = False
        """Whether it lingered long enough."""
        self.data: bytes | None = None
        self.sequence = -1
        self.ref = -1
        self.sends = 0
        self.may_be_written = False
        """Whether the broker may have it: it was sent, and the answer is missing or leaves it open."""
        self.was_unsure = False
        """`may_be_written` as it was before the sending that is under way."""
        self.is_settled = False
        self.is_seen = False
        """Whether somebody looked at the outcome."""
        self.base_offset = -1
        self.timestamp = -1
        self.error: SparrowError | None = None
        self.moved: list[Delivery] | None = None
        self.waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def room_bytes(self) -> int:
        """What the batch takes of the producer's room."""
        return self.size_bytes + ROOM_OVERHEAD_BYTES * len(self.timestamps)

    def append(self, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int) -> int:
        """Take a message in; the caller adds to `size_bytes`. Returns its number."""
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
        """Value, key, headers and timestamp of each message of a batch that is not sealed."""
        count = len(self.timestamps)
        keys = self.keys or [None] * count
        headers = self.headers or [()] * count
        return list(zip(self.values, keys, headers, self.timestamps, strict=True))

    def part(self, columns: Columns, start: int, end: int) -> Batch:
        """The messages `start` to `end` of this batch, whose columns these are, as a batch of their own with their share of the sequences."""
        part = Batch(self.line, self.serial, self.deadline)
        part.values, part.keys, part.headers, part.timestamps = (column[start:end] for column in columns)  # type: ignore[assignment]
        part.first = self.first + start
        part.is_open = False
        if self.sequence >= 0:
            part.sequence = (self.sequence + start) & 0x7FFFFFFF
        return part

    def confirm(self, base_offset: int, timestamp: int) -> None:
        """The broker has it. `timestamp` is the append time, or -1: the messages keep their own."""
        self.base_offset = base_offset
        self.timestamp = timestamp
        self._settle()

    def fail(self, error: SparrowError) -> None:
        """It is given up."""
        self.error = error
        self._settle()

    def move(self, deliveries: list[Delivery]) -> None:
        """Its messages go on in other batches, one delivery for each."""
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
        """A future of its own for who waits until the batch is settled, and looks at the outcome then."""
        self.is_seen = True
        return self._waiter()

    async def wait_quietly(self) -> None:
        """Wait until the batch is settled, and those that its messages moved to, without looking at the outcome."""
        if not self.is_settled:
            await self._waiter()
        for batch in {delivery.batch for delivery in self.moved or ()}:
            await batch.wait_quietly()

    def _waiter(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.line.loop.create_future()
        self.waiters.append(future)
        return future

    def outcome(self, index: int) -> RecordMetadata:
        """Where message `index` went; raises why it went nowhere. Only when settled."""
        self.is_seen = True
        if self.moved is not None:
            return self.moved[index].result()
        if self.error is not None:
            raise repeated(self.error)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.timestamp if self.timestamp >= 0 else self.timestamps[index]
        return RecordMetadata(self.line.topic, self.line.partition, offset, timestamp)


class Delivery(msgspec.Struct, eq=False, gc=False):
    """What `send` returns: await it for the message's `RecordMetadata`, or for the error that kept it from arriving.

    Awaiting is optional and may be done by several tasks. Failures that nobody looked at are raised by the producer's `flush`.
    """

    batch: Batch
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
        """Whether it is known what became of the message."""
        batch = self.batch
        return batch.moved[self.index].done if batch.moved is not None else batch.is_settled

    def result(self) -> RecordMetadata:
        """What awaiting gives, where it is `done`.

        Raises:
            InvalidArgument: it is not done.
            SparrowError: why the message did not arrive.
        """
        if not self.done:
            raise InvalidArgument("the delivery has no result yet; await it")
        return self.batch.outcome(self.index)


def repeated(error: SparrowError) -> SparrowError:
    """The same error once more: raising one instance again and again grows its traceback."""
    return type(error)(*error.args)
