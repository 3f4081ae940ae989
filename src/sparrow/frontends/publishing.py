"""Publishing for doors whose clients send messages, not record batches: messages in, where each is stored out.

Messages of one call are spread as Kafka's clients spread them: by their key (murmur2), those without a key together to one partition, another one with
each call. What goes to one partition is appended at once, in as few batches as the topic's `max.message.bytes` allows, in the order of the call.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import RecordTooLarge, SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.broker.partition import ACKS_ALL
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.partitioner import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.partition import Published

RECORD_OVERHEAD_BYTES = 40
"""At most this much of a record is neither key, value nor header: seven numbers of variable length."""
HEADER_OVERHEAD_BYTES = 10
"""The same of one header."""
LARGE_BYTES = 256 << 10
"""Messages that may take more are made into batches in a thread."""


class Message(NamedTuple):
    """What is to be published. `timestamp_ms` -1: the time of the call."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = -1


class Columns(NamedTuple):
    """Messages by field, for doors that get many at once: no object is made for each. The lists are of one length."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    """None: no message has one."""
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None
    timestamps_ms: Sequence[int] | None = None
    """None: the time of the call for all; -1 for one of them."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Columns:
        """The same messages."""
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

    def most_bytes(self) -> int:
        """The most that all take in a batch."""
        size = RECORD_OVERHEAD_BYTES * len(self.values) + sum(map(len, filter(None, self.values)))
        if self.keys is not None:
            size += sum(map(len, filter(None, self.keys)))
        if self.headers is not None:
            size += _most_headers_bytes(self.headers)
        return size

    def most_bytes_of(self, place: int) -> int:
        """The most that one takes in a batch."""
        return self.taken((place,)).most_bytes()

    def taken(self, places: Sequence[int]) -> Columns:
        """Some of them, in this order."""
        if len(places) == len(self.values):
            return self
        return Columns(*(None if column is None else [column[place] for place in places] for column in self))  # type: ignore[arg-type]


class Stored(NamedTuple):
    """Where a message is, and its time."""

    partition: int
    offset: int
    timestamp_ms: int


Answer = Stored | SparrowError


class Part(NamedTuple):
    """The messages of one call that went to one partition: their places in the call, and the promise of the broker."""

    partition: int
    places: Sequence[int]
    timestamps: Sequence[int]
    published: asyncio.Future[Published]

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """Place and answer of each message; the promise must be settled."""
        failure = self.published.exception()
        if failure is None:
            done = self.published.result()
            for number, place in enumerate(self.places):
                time = self.timestamps[number] if done.log_append_time_ms < 0 else done.log_append_time_ms
                yield place, Stored(self.partition, done.base_offset + number, time)
        elif isinstance(failure, SparrowError):
            yield from ((place, failure) for place in self.places)
        else:
            raise failure


class Terms(NamedTuple):
    """What decides where the messages of a call go, and in which batches."""

    partition: int
    """The one for all; -1: by their keys."""
    partition_count: int
    keyless: int
    """Where messages without a key go."""
    now_ms: int
    max_batch_bytes: int
    producer_id: int = -1
    """If there is one, each batch is appended by itself. It has this id, its number in the call for an epoch, and no sequence: so it can be found
    in the log, and nobody has to remember it (`once.py`)."""


class Run(NamedTuple):
    """Messages that are appended together: their batches back to back, or why they cannot be."""

    partition: int
    places: Sequence[int]
    timestamps: Sequence[int]
    data: bytes | SparrowError


class Publisher:
    """One for each door. Loop thread only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns = itertools.count()

    async def publish(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[Answer]:
        """Publish to a topic, which is made if it is missing and the broker makes topics; one answer for each message, in order.

        Args:
            partition: the one for all messages; -1: by their keys.
            acks: as `Broker.publish`.

        Raises:
            UnknownTopic, UnknownPartition, InvalidTopicName, NotAuthorized, and what else concerns all messages.
        """
        parts = await self.begin_aside(topic, messages, partition=partition, acks=acks, principal=principal)
        if parts:
            await asyncio.wait([part.published for part in parts])
        return ordered(parts, len(messages))

    async def begin_aside(
        self,
        topic: str,
        messages: Sequence[Message] | Columns,
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[Part]:
        """As `begin`, but the topic is made if it is missing, and what takes long is done in a thread."""
        await self.ensure(topic, principal=principal)
        terms = self.terms(topic, partition, principal=principal)
        return self._append_all(topic, await cut_aside(messages, terms), acks, principal)

    async def ensure(self, topic: str, *, principal: Principal) -> None:
        """Make the topic if it is missing.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        if self._broker.topics.find(topic) is None:
            await self._broker.ensure_topic(topic, principal=principal)

    def begin(
        self,
        topic: str,
        messages: Sequence[Message] | Columns,
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[Part]:
        """Append to a topic that exists. When it returns all is in the log, in order; the parts say when that is promised.

        Raises, with nothing appended:
            UnknownTopic, UnknownPartition, NotAuthorized
            InvalidTimestamp, InvalidRecord: of any of the messages.
        """
        runs = cut(messages, self.terms(topic, partition, principal=principal))
        return self._append_all(topic, runs, acks, principal)

    def _append_all(self, topic: str, runs: Sequence[Run], acks: int, principal: Principal) -> list[Part]:
        return [
            Part(run.partition, run.places, run.timestamps, self.append(topic, run, acks, principal))
            for run in runs
        ]

    def terms(self, topic: str, partition: int, producer_id: int = -1, *, principal: Principal) -> Terms:
        """As things are now, for a principal that may write.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
        """
        self._broker.partition(topic, max(partition, 0), operation=Operation.WRITE, principal=principal)
        target = self._broker.topics.get(topic)
        count = len(target.partitions)
        now_ms = self._broker.clock.wall_ms()
        keyless = next(self._turns) % count
        return Terms(partition, count, keyless, now_ms, target.config.max_message_bytes, producer_id)

    def append(self, topic: str, run: Run, acks: int, principal: Principal) -> asyncio.Future[Published]:
        """Append one run; the promise, which has failed already where that is refused."""
        try:
            if isinstance(run.data, SparrowError):
                raise run.data
            return self._broker.publish(topic, run.partition, run.data, acks=acks, principal=principal)
        except SparrowError as error:
            failed: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed


def cut(messages: Sequence[Message] | Columns, terms: Terms) -> list[Run]:
    """What is appended where. The same messages and terms give the same runs.

    Raises:
        InvalidTimestamp, InvalidRecord: of any of the messages.
    """
    columns = messages if isinstance(messages, Columns) else Columns.of(messages)
    batches = _Batches(columns, terms)
    return [
        run
        for partition, places in _spread(columns, terms).items()
        for run in batches.runs(partition, places)
    ]


async def cut_aside(messages: Sequence[Message] | Columns, terms: Terms) -> list[Run]:
    """As `cut`; in a thread where it takes long.

    Raises:
        InvalidTimestamp, InvalidRecord: of any of the messages.
    """
    columns = messages if isinstance(messages, Columns) else Columns.of(messages)
    if columns.most_bytes() > LARGE_BYTES:
        return await asyncio.to_thread(cut, columns, terms)
    return cut(columns, terms)


def ordered(parts: Sequence[Part], count: int) -> list[Answer]:
    """The answers of all parts, whose promises are settled, in the order of the call's messages."""
    answers: dict[int, Answer] = {}
    for part in parts:
        answers.update(part.answers())
    return [answers[place] for place in range(count)]


def _spread(columns: Columns, terms: Terms) -> dict[int, Sequence[int]]:
    """Partition → the places of its messages, in order."""
    count, partitions = len(columns.values), terms.partition_count
    if not count:
        return {}
    if terms.partition >= 0 or partitions == 1:
        return {max(terms.partition, 0): range(count)}
    if columns.keys is None:
        return {terms.keyless: range(count)}
    spread: dict[int, list[int]] = {}
    for place, key in enumerate(columns.keys):
        index = terms.keyless if key is None else partition_for_key(key, partitions)
        spread.setdefault(index, []).append(place)
    return dict(spread)


class _Batches:
    """The messages of one call, to be made into batches."""

    def __init__(self, columns: Columns, terms: Terms) -> None:
        self._columns = columns
        self._terms = terms
        self._numbers = itertools.count()

    def runs(self, partition: int, places: Sequence[int]) -> list[Run]:
        """What goes to one partition: all in one run, but for messages that no batch can hold, and for batches that are to be found again."""
        runs: list[Run] = []
        batches: list[bytes] = []
        taken: list[Sequence[int]] = []
        for stretch in self._cuts(places):
            batch = self._batch(stretch)
            if len(batch) > self._terms.max_batch_bytes:
                runs.append(Run(partition, stretch, self._times(stretch), self._too_large(len(batch))))
            elif self._terms.producer_id >= 0:
                runs.append(Run(partition, stretch, self._times(stretch), batch))
            else:
                taken.append(stretch)
                batches.append(batch)
        if batches:
            joined = taken[0] if len(taken) == 1 else list(itertools.chain(*taken))
            runs.append(Run(partition, joined, self._times(joined), b"".join(batches)))
        return runs

    def _cuts(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """Stretches that fit one batch each, by the largest size that they may have; what may be too large stands alone."""
        room = self._terms.max_batch_bytes - HEADER_BYTES
        if self._columns.taken(places).most_bytes() <= room:
            yield places
            return
        start = used = 0
        for number, place in enumerate(places):
            size = self._columns.most_bytes_of(place)
            if used + size > room and number > start:
                yield places[start:number]
                start, used = number, 0
            used += size
        yield places[start:]

    def _batch(self, places: Sequence[int]) -> bytes:
        columns = self._columns.taken(places)
        number = next(self._numbers)
        producer_id = self._terms.producer_id
        return build_batch(
            columns.values,
            columns.keys,
            columns.headers,
            self._terms.now_ms if columns.timestamps_ms is None else self._times(places),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else number,
        )

    def _times(self, places: Sequence[int]) -> Sequence[int]:
        times, now_ms = self._columns.timestamps_ms, self._terms.now_ms
        if times is None:
            return [now_ms] * len(places)
        return [now_ms if times[place] < 0 else times[place] for place in places]

    def _too_large(self, size_bytes: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"a message that takes {size_bytes} bytes as a batch; max.message.bytes of the topic is"
            f" {self._terms.max_batch_bytes}"
        )


def _most_headers_bytes(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> int:
    if headers and headers[0] is headers[-1] and headers.count(headers[0]) == len(headers):
        return len(headers) * _most_header_bytes(headers[0])
    return sum(map(_most_header_bytes, headers))


def _most_header_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"") for name, value in headers)
