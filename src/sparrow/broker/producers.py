"""Producers of one partition: which sequences were taken, what was answered, which transactions are open.

Strategy (KIP-98): each batch carries producer id, epoch and the sequence of its first record. For each producer the last
`REMEMBERED_BATCHES` batches are kept with the offsets they got, so that a batch sent again is answered with the first
answer. The state is a fold over the batch headers and control batches of the log: it is rebuilt from them (`fold`), and saved beside
the log's checkpoint (`dump`, `load`) so that only the newest need to be read.

A producer's epoch only grows. A marker that ends a transaction may bring a newer one, which fences whoever still writes with the
older (KIP-360, KIP-890); the next batch then begins at sequence 0. `TransactionIndex` has what readers need to know.

Kafka remembers 5 batches, which bounds its clients' pipeline; 32 lets a client keep more under way at once.

Pure: times are arguments (wall ms).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import (
    DuplicateSequence,
    InvalidTransactionState,
    NewerFormat,
    OutOfOrderSequence,
    ProducerFenced,
)
from sparrow.broker.transactions.index import TransactionIndex
from sparrow.records.control import ControlType, maybe_parse_marker
from sparrow.storage.store import Appended

if TYPE_CHECKING:
    import asyncio

    from sparrow.records.batch import BatchHeader

REMEMBERED_BATCHES = 32
NO_SEQUENCE = -1
_MASK = 0x7FFFFFFF
_VERSION = 2


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
    coordinator_epoch: int = -1
    """Of the last marker; -1 before the first."""


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer as seen from outside (KIP-664). Times are wall ms; -1 stands for "none"."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_seen_ms: int
    coordinator_epoch: int
    transaction_start: int
    """The first offset of its open transaction."""


class _Saved(msgspec.Struct, array_like=True):
    producer_id: int
    epoch: int
    last_seen_ms: int
    batches: list[tuple[int, int, int, int, int]]
    coordinator_epoch: int = -1


class _Snapshot(msgspec.Struct, array_like=True):
    """Version 1 ends after the producers (and theirs after `batches`); version 2 has transactions."""

    version: int
    producers: list[_Saved]
    open: list[tuple[int, int]] = []
    """Producer id and first offset of each open transaction, oldest first."""
    aborted: bytes = b""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Snapshot)


class ProducerStates:
    """All producers of one partition that have an id."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self.transactions = TransactionIndex()

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> AcceptedBatch | None:
        """None: the batch is the next one. An `AcceptedBatch`: it is known, answer as then.

        Raises:
            ProducerFenced: a newer epoch of this producer was seen.
            OutOfOrderSequence: records before it are missing.
            DuplicateSequence: accepted, but so long ago that the answer is forgotten.
            InvalidTransactionState: it is in no transaction, while one of this producer is open.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} has epoch {producer.epoch} now; epoch {header.producer_epoch} is over"
            )
        known = None
        if header.producer_epoch > producer.epoch or not producer.batches:
            self._check_first(header, 0)
        else:
            known = self._check_next(header, producer)
        if known is None and self.transactions.open:
            self._check_transaction(header)
        return known

    def _check_transaction(self, header: BatchHeader) -> None:
        if header.producer_id in self.transactions.open and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open and sent a batch that is in none"
            )

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
            marked = -1 if producer is None else producer.coordinator_epoch
            producer = Producer(header.producer_epoch, now_ms, coordinator_epoch=marked)
            self._producers[header.producer_id] = producer
        producer.last_seen_ms = now_ms
        stamped_ms = header.max_timestamp if header.is_log_append_time else -1
        producer.batches.append(AcceptedBatch(header.base_sequence, header.last_sequence, answer, stamped_ms))
        if header.is_transactional and isinstance(answer, Appended):
            self.transactions.begin(header.producer_id, answer.base_offset)

    def mark(
        self,
        producer_id: int,
        epoch: int,
        offset: int,
        now_ms: int,
        *,
        committed: bool,
        coordinator_epoch: int,
    ) -> None:
        """Remember the marker at `offset`, which ends the producer's transaction."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch < epoch:
            producer = self._producers[producer_id] = Producer(epoch, now_ms)
        producer.last_seen_ms = now_ms
        producer.coordinator_epoch = coordinator_epoch
        self.transactions.end(producer_id, offset, committed=committed)

    def fold(self, header: BatchHeader, now_ms: int, control: bytes = b"") -> None:
        """Take a batch that the log already holds into account, as seen now: the records' times may be of any age.

        Args:
            control: the whole batch if it is a control batch.

        Raises:
            CorruptBatch: a control batch that is none.
        """
        if header.is_control:
            marker = maybe_parse_marker(control)
            if marker is not None and marker.type is not ControlType.OTHER:
                self.mark(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.offset,
                    now_ms,
                    committed=marker.type is ControlType.COMMIT,
                    coordinator_epoch=marker.coordinator_epoch,
                )
        elif header.producer_id >= 0 and header.base_sequence != NO_SEQUENCE:
            self.accept(header, Appended(header.base_offset, header.last_offset), now_ms)

    def active(self) -> list[ProducerInfo]:
        """All producers, by id."""
        open_ = self.transactions.open
        return [
            ProducerInfo(
                producer_id,
                p.epoch,
                p.batches[-1].last_sequence if p.batches else NO_SEQUENCE,
                p.last_seen_ms,
                p.coordinator_epoch,
                open_.get(producer_id, -1),
            )
            for producer_id, p in sorted(self._producers.items())
        ]

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, epoch) of producers whose transaction is open."""
        return [(each, self._producers[each].epoch) for each in self.transactions.open]

    def forget_silent(self, before_ms: int) -> None:
        """Drop producers not seen since `before_ms`, but for those with an open transaction."""
        open_ = self.transactions.open
        silent = [i for i, p in self._producers.items() if p.last_seen_ms < before_ms and i not in open_]
        for producer_id in silent:
            del self._producers[producer_id]

    def dump(self) -> bytes:
        """The state as bytes for the log's checkpoint; b"" when there is nothing."""
        if not self._producers and not self.transactions:
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
                p.coordinator_epoch,
            )
            for producer_id, p in self._producers.items()
        ]
        index = self.transactions
        return _ENCODER.encode(_Snapshot(_VERSION, saved, list(index.open.items()), index.dump_aborted()))

    @classmethod
    def load(cls, state: bytes) -> ProducerStates:
        """The state that `dump` wrote.

        Raises:
            NewerFormat: a later Sparrow did.
        """
        states = cls()
        if state:
            snapshot = _DECODER.decode(state)
            if snapshot.version > _VERSION:
                raise NewerFormat(
                    f"the producers' state in a checkpoint has format {snapshot.version}, known is {_VERSION};"
                    " open the data with the newer Sparrow"
                )
            for saved in snapshot.producers:
                states._producers[saved.producer_id] = _producer(saved)
            states.transactions.open.update(snapshot.open)
            states.transactions.load_aborted(snapshot.aborted)
        return states


def _producer(saved: _Saved) -> Producer:
    producer = Producer(saved.epoch, saved.last_seen_ms, coordinator_epoch=saved.coordinator_epoch)
    producer.batches.extend(
        AcceptedBatch(first, last, Appended(base_offset, last_offset), stamped_ms)
        for first, last, base_offset, last_offset, stamped_ms in saved.batches
    )
    return producer
