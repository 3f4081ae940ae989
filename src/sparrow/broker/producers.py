"""Idempotent producers of one partition: which sequences were taken, and what was answered.

Strategy (KIP-98): each batch carries producer id, epoch and the sequence of its first record. For each producer the last
`REMEMBERED_BATCHES` batches are kept with the offsets they got, so that a batch sent again is answered with the first
answer. The state is a fold over the batch headers of the log: it is rebuilt from them (`fold`), and saved beside the log's
checkpoint (`dump`, `load`) so that only the newest headers need to be read.

Kafka remembers 5 batches, which bounds its clients' pipeline; 32 lets a client keep more under way at once.

Pure: times are arguments (wall ms).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import DuplicateSequence, OutOfOrderSequence, ProducerFenced
from sparrow.storage.store import Appended

if TYPE_CHECKING:
    import asyncio

    from sparrow.records.batch import BatchHeader

REMEMBERED_BATCHES = 32
NO_SEQUENCE = -1
_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class AcceptedBatch:
    """A batch that was given to the log: its sequences, and the offsets it got (or their promise, while it is kept)."""

    first_sequence: int
    last_sequence: int
    answer: Appended | asyncio.Future[Appended]
    log_append_time_ms: int = -1
    """Where the topic stamped it; else -1."""


@dataclass(slots=True)
class Producer:
    """What one partition knows of one producer."""

    epoch: int
    last_seen_ms: int
    batches: deque[AcceptedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class _Saved(msgspec.Struct, array_like=True):
    producer_id: int
    epoch: int
    last_seen_ms: int
    batches: list[tuple[int, int, int, int, int]]


class _Snapshot(msgspec.Struct, array_like=True):
    version: int
    producers: list[_Saved]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Snapshot)


class ProducerStates:
    """All idempotent producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> AcceptedBatch | None:
        """None: the batch is the next one. An `AcceptedBatch`: it is known, answer as then.

        Raises:
            ProducerFenced: a newer epoch of this producer was seen.
            OutOfOrderSequence: records before it are missing.
            DuplicateSequence: accepted, but so long ago that the answer is forgotten.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} has epoch {producer.epoch} now; epoch {header.producer_epoch} is over"
            )
        if header.producer_epoch > producer.epoch:
            return self._check_first(header, 0)
        if not producer.batches:
            return None
        return self._check_next(header, producer)

    @staticmethod
    def _check_first(header: BatchHeader, expected: int) -> None:
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence"
                f" {header.base_sequence}; {expected} is next"
            )

    def _check_next(self, header: BatchHeader, producer: Producer) -> AcceptedBatch | None:
        expected = (producer.batches[-1].last_sequence + 1) & _MASK
        if header.base_sequence == expected:
            return None
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        # Sequences wrap: "before" is what lies less than half the circle behind.
        oldest = producer.batches[0].first_sequence
        if 0 < (oldest - header.base_sequence) & _MASK < 1 << 30:
            raise DuplicateSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence} again; it was accepted,"
                " its offset is no longer remembered"
            )
        self._check_first(header, expected)
        return None

    def accept(self, header: BatchHeader, answer: Appended | asyncio.Future[Appended], now_ms: int) -> None:
        """Remember a batch that was given to the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, now_ms)
        producer.last_seen_ms = now_ms
        stamped_ms = header.max_timestamp if header.is_log_append_time else -1
        producer.batches.append(AcceptedBatch(header.base_sequence, header.last_sequence, answer, stamped_ms))

    def fold(self, header: BatchHeader, now_ms: int) -> None:
        """Take a header that the log already holds into account, as seen now: the records' times may be of any age."""
        if header.producer_id >= 0 and header.base_sequence != NO_SEQUENCE and not header.is_control:
            self.accept(header, Appended(header.base_offset, header.last_offset), now_ms)

    def forget_silent(self, before_ms: int) -> None:
        """Drop producers not seen since `before_ms`."""
        silent = [i for i, p in self._producers.items() if p.last_seen_ms < before_ms]
        for producer_id in silent:
            del self._producers[producer_id]

    def dump(self) -> bytes:
        """The state as bytes for the log's checkpoint; b"" when there is nothing."""
        if not self._producers:
            return b""
        saved = [
            _Saved(
                producer_id,
                p.epoch,
                p.last_seen_ms,
                [
                    (
                        b.first_sequence,
                        b.last_sequence,
                        b.answer.base_offset,
                        b.answer.last_offset,
                        b.log_append_time_ms,
                    )
                    for b in p.batches
                    if isinstance(b.answer, Appended)
                ],
            )
            for producer_id, p in self._producers.items()
        ]
        return _ENCODER.encode(_Snapshot(1, saved))

    @classmethod
    def load(cls, state: bytes) -> ProducerStates:
        """The state that `dump` wrote."""
        states = cls()
        if state:
            for saved in _DECODER.decode(state).producers:
                producer = states._producers[saved.producer_id] = Producer(saved.epoch, saved.last_seen_ms)
                producer.batches.extend(
                    AcceptedBatch(first, last, Appended(base_offset, last_offset), stamped_ms)
                    for first, last, base_offset, last_offset, stamped_ms in saved.batches
                )
        return states
