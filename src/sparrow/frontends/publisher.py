"""Publishing for frontends whose clients send messages instead of record batches.

Messages of one call are partitioned as by Kafka's clients: by their key (murmur2); those without a
key go together to one partition, to another one with each call. Messages for one partition are
appended at once, in as few batches as the topic's `max.message.bytes` allows, in the order of the
call.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import RecordTooLarge, SparrowError
from sparrow.broker.publishes import ACKS_ALL
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.partitioner import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.publishes import Published

RECORD_OVERHEAD_BYTES = 40
"""Upper bound of the bytes of a record besides key, value and headers: seven varints."""
HEADER_OVERHEAD_BYTES = 10
"""Upper bound of the bytes of a header besides its name and value."""
LARGE_BYTES = 256 << 10
"""Larger publishes are encoded in a thread."""


class Message(NamedTuple):
    """A message to publish. `timestamp_ms` -1: the time of the call."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = -1


class MessageColumns(NamedTuple):
    """Messages by field, for frontends that get many at once: no object is made per message. All
    lists have the same length.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    """None: no message has a key."""
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None
    timestamps_ms: Sequence[int] | None = None
    """None: the time of the call for all messages; -1: for one of them."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> MessageColumns:
        """Return the messages as columns."""
        if not messages:
            return cls(())
        values, keys, headers, times = zip(*messages, strict=True)
        count = len(values)
        return cls(
            values,
            None if keys.count(None) == count else keys,
            headers if any(headers) else None,
            None if times.count(-1) == count else times,
        )

    def estimate_bytes(self) -> int:
        """Return an upper bound of the bytes that all messages take in a batch."""
        size = RECORD_OVERHEAD_BYTES * len(self.values) + sum(map(len, filter(None, self.values)))
        if self.keys is not None:
            size += sum(map(len, filter(None, self.keys)))
        if self.headers is not None:
            size += _estimate_headers_bytes(self.headers)
        return size

    def estimate_bytes_of(self, index: int) -> int:
        """Return an upper bound of the bytes that one message takes in a batch."""
        return self.select((index,)).estimate_bytes()

    def select(self, indexes: Sequence[int]) -> MessageColumns:
        """Return the messages at `indexes`, in that order."""
        if len(indexes) == len(self.values):
            return self
        columns = (None if column is None else [column[index] for index in indexes] for column in self)
        return MessageColumns(*columns)  # type: ignore[arg-type]


class Stored(NamedTuple):
    """Position and timestamp of a stored message."""

    partition: int
    offset: int
    timestamp_ms: int


PublishResult = Stored | SparrowError


class PublishedPart(NamedTuple):
    """The messages of one call for one partition: their indexes in the call, and the future of
    their append.
    """

    partition: int
    indexes: Sequence[int]
    timestamps: Sequence[int]
    published: asyncio.Future[Published]

    def results(self) -> Iterator[tuple[int, PublishResult]]:
        """Yield the index and result of each message; `published` must be done."""
        failure = self.published.exception()
        if failure is None:
            done = self.published.result()
            for number, index in enumerate(self.indexes):
                time = self.timestamps[number] if done.log_append_time_ms < 0 else done.log_append_time_ms
                yield index, Stored(self.partition, done.base_offset + number, time)
        elif isinstance(failure, SparrowError):
            yield from ((index, failure) for index in self.indexes)
        else:
            raise failure


class PublishTerms(NamedTuple):
    """Everything that determines the partitions and batches of a call's messages."""

    partition: int
    """The partition of all messages; -1: chosen by their keys."""
    partition_count: int
    keyless: int
    """The partition of messages without a key."""
    now_ms: int
    max_batch_bytes: int
    producer_id: int = -1
    """If set, each batch is appended by itself. It has this id, its number in the call as the
    epoch, and no sequence. So it can be found in the log, and no producer state is kept for it (see
    `idempotent_publisher.py`).
    """


class EncodedRun(NamedTuple):
    """Messages that are appended together: their encoded batches, or the reason for their
    refusal.
    """

    partition: int
    indexes: Sequence[int]
    timestamps: Sequence[int]
    data: bytes | SparrowError


class Publisher:
    """Publishes messages through the broker; one instance per frontend. Loop thread only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._publish_numbers = itertools.count()

    async def publish(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[PublishResult]:
        """Publish to a topic and return one result per message, in order. A missing topic is
        created if the broker creates topics automatically.

        Args:
            partition: the partition of all messages; -1: chosen by their keys.
            acks: as `RecordService.publish`.

        Raises:
            UnknownTopic, UnknownPartition, InvalidTopicName, NotAuthorized, and other errors that
            concern all messages.
        """
        parts = await self.begin_async(topic, messages, partition=partition, acks=acks, principal=principal)
        if parts:
            await asyncio.wait([part.published for part in parts])
        return ordered_results(parts, len(messages))

    async def begin_async(
        self,
        topic: str,
        messages: Sequence[Message] | MessageColumns,
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[PublishedPart]:
        """Append as `begin` does, but create a missing topic and do long work in a thread."""
        await self.ensure(topic, principal=principal)
        terms = self.terms(topic, partition, principal=principal)
        runs = await make_runs_async(messages, terms)
        return [self._part(topic, run, acks, principal) for run in runs]

    async def ensure(self, topic: str, *, principal: Principal) -> None:
        """Create the topic if it is missing.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        if not self._broker.topics.exists(topic):
            await self._broker.topics.ensure(topic, principal=principal)

    def begin(
        self,
        topic: str,
        messages: Sequence[Message] | MessageColumns,
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[PublishedPart]:
        """Append to an existing topic. On return all records are in the log, in order; the futures
        of the parts are done once they are as safe as `acks` asks.

        Raises, with nothing appended:
            UnknownTopic, UnknownPartition, NotAuthorized
            InvalidTimestamp, InvalidRecord: one of the messages is invalid.
        """
        runs = make_runs(messages, self.terms(topic, partition, principal=principal))
        return [self._part(topic, run, acks, principal) for run in runs]

    def _part(self, topic: str, run: EncodedRun, acks: int, principal: Principal) -> PublishedPart:
        published = self.append(topic, run, acks, principal)
        return PublishedPart(run.partition, run.indexes, run.timestamps, published)

    def terms(
        self, topic: str, partition: int, producer_id: int = -1, *, principal: Principal
    ) -> PublishTerms:
        """Return the current terms of a topic, for a principal that may write to it.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
        """
        count, max_bytes = self._broker.records.publish_limits(topic, max(partition, 0), principal=principal)
        now_ms = self._broker.clock.wall_ms()
        keyless = next(self._publish_numbers) % count
        return PublishTerms(partition, count, keyless, now_ms, max_bytes, producer_id)

    def append(
        self, topic: str, run: EncodedRun, acks: int, principal: Principal
    ) -> asyncio.Future[Published]:
        """Append one run and return its future, which has failed already if the append was
        refused.
        """
        try:
            if isinstance(run.data, SparrowError):
                raise run.data
            return self._broker.records.publish(
                topic, run.partition, run.data, acks=acks, principal=principal, is_built_here=True
            )
        except SparrowError as error:
            failed: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed


def make_runs(messages: Sequence[Message] | MessageColumns, terms: PublishTerms) -> list[EncodedRun]:
    """Partition and encode messages. The same messages and terms always give the same runs.

    Raises:
        InvalidTimestamp, InvalidRecord: one of the messages is invalid.
    """
    columns = messages if isinstance(messages, MessageColumns) else MessageColumns.of(messages)
    batches = _Batches(columns, terms)
    return [
        run
        for partition, indexes in _spread(columns, terms).items()
        for run in batches.runs(partition, indexes)
    ]


async def make_runs_async(
    messages: Sequence[Message] | MessageColumns, terms: PublishTerms
) -> list[EncodedRun]:
    """Encode as `make_runs` does, in a thread if that takes long.

    Raises:
        InvalidTimestamp, InvalidRecord: one of the messages is invalid.
    """
    columns = messages if isinstance(messages, MessageColumns) else MessageColumns.of(messages)
    if columns.estimate_bytes() > LARGE_BYTES:
        return await asyncio.to_thread(make_runs, columns, terms)
    return make_runs(columns, terms)


def ordered_results(parts: Sequence[PublishedPart], count: int) -> list[PublishResult]:
    """Return the results of all parts in the order of the call's messages; all futures must be
    done.
    """
    results: dict[int, PublishResult] = {}
    for part in parts:
        results.update(part.results())
    return [results[index] for index in range(count)]


def _spread(columns: MessageColumns, terms: PublishTerms) -> dict[int, Sequence[int]]:
    """Return the indexes of the messages of each partition, in order."""
    count, partitions = len(columns.values), terms.partition_count
    if not count:
        return {}
    if terms.partition >= 0 or partitions == 1:
        return {max(terms.partition, 0): range(count)}
    if columns.keys is None:
        return {terms.keyless: range(count)}
    spread: dict[int, list[int]] = {}
    for index, key in enumerate(columns.keys):
        partition = terms.keyless if key is None else partition_for_key(key, partitions)
        spread.setdefault(partition, []).append(index)
    return dict(spread)


class _Batches:
    """Encodes the messages of one call into batches."""

    def __init__(self, columns: MessageColumns, terms: PublishTerms) -> None:
        self._columns = columns
        self._terms = terms
        self._numbers = itertools.count()

    def runs(self, partition: int, indexes: Sequence[int]) -> list[EncodedRun]:
        """Return the runs of one partition: a single one, except for messages that exceed the batch
        size and for batches that have a producer id.
        """
        runs: list[EncodedRun] = []
        batches: list[bytes] = []
        taken: list[Sequence[int]] = []
        for piece in self._slices(indexes):
            batch = self._batch(piece)
            if len(batch) > self._terms.max_batch_bytes:
                runs.append(EncodedRun(partition, piece, self._times(piece), self._too_large(len(batch))))
            elif self._terms.producer_id >= 0:
                runs.append(EncodedRun(partition, piece, self._times(piece), batch))
            else:
                taken.append(piece)
                batches.append(batch)
        if batches:
            joined = taken[0] if len(taken) == 1 else list(itertools.chain(*taken))
            runs.append(EncodedRun(partition, joined, self._times(joined), b"".join(batches)))
        return runs

    def _slices(self, indexes: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield slices that fit one batch each, by their estimated size. A message that may be too
        large gets a slice of its own.
        """
        room = self._terms.max_batch_bytes - HEADER_BYTES
        if self._columns.select(indexes).estimate_bytes() <= room:
            yield indexes
            return
        start = used = 0
        for number, index in enumerate(indexes):
            size = self._columns.estimate_bytes_of(index)
            if used + size > room and number > start:
                yield indexes[start:number]
                start, used = number, 0
            used += size
        yield indexes[start:]

    def _batch(self, indexes: Sequence[int]) -> bytes:
        columns = self._columns.select(indexes)
        number = next(self._numbers)
        producer_id = self._terms.producer_id
        return build_batch(
            columns.values,
            columns.keys,
            columns.headers,
            self._terms.now_ms if columns.timestamps_ms is None else self._times(indexes),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else number,
        )

    def _times(self, indexes: Sequence[int]) -> Sequence[int]:
        times, now_ms = self._columns.timestamps_ms, self._terms.now_ms
        if times is None:
            return [now_ms] * len(indexes)
        return [now_ms if times[index] < 0 else times[index] for index in indexes]

    def _too_large(self, size_bytes: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"the message takes {size_bytes} bytes as a batch; the limit of the topic (max.message.bytes) is"
            f" {self._terms.max_batch_bytes}"
        )


def _estimate_headers_bytes(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> int:
    if headers and headers[0] is headers[-1] and headers.count(headers[0]) == len(headers):
        return len(headers) * _estimate_header_bytes(headers[0])
    return sum(map(_estimate_header_bytes, headers))


def _estimate_header_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"") for name, value in headers)
