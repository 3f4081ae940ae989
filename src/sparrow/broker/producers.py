"""Producers of one partition: their accepted sequences, the results of these, and their open
transactions.

Strategy (KIP-98): each batch carries producer id, epoch and the sequence of its first record. For
each producer the last `REMEMBERED_BATCHES` batches are kept with their offsets, so that a batch
that is sent again gets the first result. The state is a fold over the batch headers and control
batches of the log: it is rebuilt from them (`fold`), and saved beside the log's checkpoint (`dump`,
`load`) so that only the newest need to be read.

A producer's epoch only grows. A marker that ends a transaction may bring a newer one, which fences
writers with the older (KIP-360, KIP-890); the next batch then begins at sequence 0.
`TransactionIndex` has what readers need to know.

Kafka remembers 5 batches, which bounds its clients' pipeline; 32 lets a client have more batches in
flight.

A log may confirm an append late (`storage/store.py`). The fold then holds exactly the batches
before the log's end, as a checkpoint needs it, and `_ahead` is the state as it will be when all
pending appends succeed: new batches are checked against that. `settle` moves confirmed appends from
one to the other, in the order of the log. When one fails, all behind it fail as well, and `_ahead`
is dropped: the producer's next batch is again the one that failed. Futures are checked before each
use of the state, because their callbacks run one iteration of the loop later, when the next batch
may have arrived already.

Pure: times are arguments (wall ms).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import (
    DuplicateSequence,
    InvalidTransactionState,
    NewerFormat,
    OutOfOrderSequence,
    ProducerFenced,
)
from sparrow.broker.transaction_index import TransactionIndex
from sparrow.records.batch import LOG_APPEND_TIME, TRANSACTIONAL
from sparrow.records.control import ControlType, maybe_parse_marker
from sparrow.storage.store import Appended

if TYPE_CHECKING:
    import asyncio

    from sparrow.records.batch import BatchHeader

REMEMBERED_BATCHES = 32
NO_SEQUENCE = -1
_MASK = 0x7FFFFFFF
_VERSION = 2


class TransactionEnd(msgspec.Struct, frozen=True):
    """The end of one producer's transaction: committed or aborted."""

    producer_id: int
    epoch: int
    commit: bool

    @property
    def kind(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT


class AcceptedBatch(msgspec.Struct):
    """A batch that was given to the log: its sequences, and its offsets (or their future, while the
    append is pending).
    """

    first_sequence: int
    last_sequence: int
    appended: Appended | asyncio.Future[Appended]
    log_append_time_ms: int = -1
    """The append time if the topic stamps it; else -1."""


class Producer(msgspec.Struct):
    """State of one producer in one partition."""

    epoch: int
    last_seen_ms: int
    batches: deque[AcceptedBatch] = msgspec.field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    coordinator_epoch: int = -1
    """The coordinator's epoch in the last marker; -1 before the first."""
    first_sequence: int = 0
    """The sequence that the next batch must have while `batches` is empty."""


class _Ahead(msgspec.Struct):
    """A producer as it will be when its pending appends succeed."""

    producer: Producer
    in_transaction: bool
    pending: int = 0


class _Pending(msgspec.Struct, frozen=True):
    """An append of a batch, or of markers, whose result the log has not given or `settle` has not
    read.
    """

    promised: asyncio.Future[Appended]
    now_ms: int
    header: BatchHeader | None = None
    ends: Sequence[TransactionEnd] = ()
    coordinator_epoch: int = -1

    def producer_ids(self) -> list[int]:
        if self.header is not None:
            return [self.header.producer_id]
        return [end.producer_id for end in self.ends]


class ProducerInfo(msgspec.Struct, frozen=True):
    """Description of a producer (KIP-664). Times are wall ms; -1 means "none"."""

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
    """The stored form. Version 1 ends after the producers (and theirs after `batches`); version 2
    has transactions.
    """

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
        self._transactions = TransactionIndex()
        self._pending: deque[_Pending] = deque()
        """Pending appends in the order of the log; they are not in `_producers` or
        `_transactions`.
        """
        self._ahead: dict[int, _Ahead] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: object) -> bool:
        """Return True if batches of the producer are known."""
        return producer_id in self._producers or producer_id in self._ahead

    @property
    def transactions(self) -> TransactionIndex:
        """The transactions before the log's end."""
        if self._pending:
            self.settle()
        return self._transactions

    @property
    def has_pending(self) -> bool:
        """Return True while appends of producers are pending."""
        if self._pending:
            self.settle()
        return bool(self._pending)

    def settle(self) -> None:
        """Fold the pending appends that the log has confirmed; forget all pending ones when one of
        them failed.
        """
        while self._pending and self._pending[0].promised.done():
            each = self._pending[0]
            if each.promised.cancelled() or each.promised.exception() is not None:
                self._forget_pending()
                return
            self._pending.popleft()
            self._fold_pending(each, each.promised.result().base_offset)
            for producer_id in each.producer_ids():
                ahead = self._ahead[producer_id]
                ahead.pending -= 1
                if not ahead.pending:
                    del self._ahead[producer_id]

    def _fold_pending(self, pending: _Pending, offset: int) -> None:
        header = pending.header
        if header is not None:
            self.accept(header, Appended(offset, offset + header.last_offset_delta), pending.now_ms)
        for offset_, end in enumerate(pending.ends, offset):
            self.add_marker(
                end.producer_id,
                end.epoch,
                offset_,
                pending.now_ms,
                committed=end.commit,
                coordinator_epoch=pending.coordinator_epoch,
            )

    def _forget_pending(self) -> None:
        """Drop all pending appends after one failed. Producers of which nothing else is known
        continue with the sequence that failed, so that no later one skips it.
        """
        for each in self._pending:
            header = each.header
            if header is not None and header.producer_id not in self._producers:
                self._producers[header.producer_id] = Producer(
                    header.producer_epoch, each.now_ms, first_sequence=header.base_sequence
                )
        self._pending.clear()
        self._ahead.clear()

    def _look_ahead(self, producer_id: int) -> _Ahead | None:
        """Return the producer with its pending appends; None if it has none."""
        if self._pending:
            self.settle()
        return self._ahead.get(producer_id)

    def _await(self, pending: _Pending, producer_id: int, epoch: int) -> _Ahead:
        """Add one producer's part of a pending append to the state ahead."""
        ahead = self._ahead.get(producer_id)
        if ahead is None:
            known = self._producers.get(producer_id)
            producer = Producer(epoch, pending.now_ms)
            if known is not None:
                producer = Producer(
                    known.epoch,
                    pending.now_ms,
                    known.batches.copy(),
                    known.coordinator_epoch,
                    known.first_sequence,
                )
            ahead = self._ahead[producer_id] = _Ahead(producer, producer_id in self._transactions.open)
        if ahead.producer.epoch < epoch:
            ahead.producer = Producer(
                epoch, pending.now_ms, coordinator_epoch=ahead.producer.coordinator_epoch
            )
        ahead.pending += 1
        return ahead

    def check(self, header: BatchHeader) -> AcceptedBatch | None:
        """Return None if the batch is the next one, and the `AcceptedBatch` if it was accepted
        before.

        Raises:
            ProducerFenced: a newer epoch of this producer is known.
            OutOfOrderSequence: records before it are missing.
            DuplicateSequence: it was accepted so long ago that the result is forgotten.
            InvalidTransactionState: it is in no transaction, while one of this producer is open.
        """
        producer_id = header.producer_id
        ahead = self._look_ahead(producer_id) if self._pending else None
        producer = self._producers.get(producer_id) if ahead is None else ahead.producer
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} has epoch {producer.epoch} now; epoch "
                f"{header.producer_epoch} is over"
            )
        known = None
        if header.producer_epoch > producer.epoch:
            self._check_first(header, 0)
        elif not producer.batches:
            self._check_first(header, producer.first_sequence)
        else:
            expected = (producer.batches[-1].last_sequence + 1) & _MASK
            if header.base_sequence != expected:
                known = self._repeated(header, producer, expected)
        is_open = producer_id in self._transactions.open if ahead is None else ahead.in_transaction
        if is_open and known is None and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {producer_id} has a transaction open and sent a batch that is in none"
            )
        return known

    @staticmethod
    def _check_first(header: BatchHeader, expected: int) -> None:
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence"
                f" {header.base_sequence}; {expected} is next"
            )

    def _repeated(self, header: BatchHeader, producer: Producer, expected: int) -> AcceptedBatch | None:
        """Return what was accepted with the sequences of a batch that is not the next one."""
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        # Sequences wrap: "before" means less than half the circle behind.
        oldest = producer.batches[0].first_sequence
        if 0 < (oldest - header.base_sequence) & _MASK < 1 << 30:
            raise DuplicateSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence} again; it was accepted,"
                " its offset is no longer remembered"
            )
        self._check_first(header, expected)
        return None

    def accept_pending(self, header: BatchHeader, promised: asyncio.Future[Appended], now_ms: int) -> None:
        """Remember a batch that was given to the log, while its append, or one before it, is
        pending; call this in the order of the log.
        """
        pending = _Pending(promised, now_ms, header)
        self._pending.append(pending)
        ahead = self._await(pending, header.producer_id, header.producer_epoch)
        ahead.producer.batches.append(_accepted(header, promised))
        ahead.in_transaction = ahead.in_transaction or header.is_transactional

    def accept(self, header: BatchHeader, appended: Appended, now_ms: int) -> None:
        """Remember a batch that was appended; call this in the order of the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            marked = -1 if producer is None else producer.coordinator_epoch
            producer = Producer(header.producer_epoch, now_ms, coordinator_epoch=marked)
            self._producers[header.producer_id] = producer
        producer.last_seen_ms = now_ms
        producer.batches.append(_accepted(header, appended))
        if header.attributes & TRANSACTIONAL:
            self._transactions.begin(header.producer_id, appended.base_offset)

    def end(
        self,
        ends: Sequence[TransactionEnd],
        promised: asyncio.Future[Appended],
        now_ms: int,
        coordinator_epoch: int,
    ) -> None:
        """Remember markers that were given to the log, one offset each; call this in the order of
        the log.
        """
        pending = _Pending(promised, now_ms, None, ends, coordinator_epoch)
        self._pending.append(pending)
        for end in ends:
            self._await(pending, end.producer_id, end.epoch).in_transaction = False
        self.settle()

    def add_marker(
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
        self._transactions.end(producer_id, offset, committed=committed)

    def fold(self, header: BatchHeader, now_ms: int, control: bytes = b"") -> None:
        """Add a batch of the log to the state. The producer was seen at `now_ms`: the records'
        times may be of any age.

        Args:
            control: the whole batch if it is a control batch.

        Raises:
            CorruptBatch: the control batch is malformed.
        """
        if header.is_control:
            marker = maybe_parse_marker(control)
            if marker is not None and marker.type is not ControlType.OTHER:
                self.add_marker(
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
        """Return all producers, by id."""
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

    def may_be_open(self, producer_id: int) -> bool:
        """Return True if the producer's transaction is open before the log's end, or will be when
        its pending appends succeed.
        """
        ahead = self._look_ahead(producer_id)
        return (ahead is not None and ahead.in_transaction) or producer_id in self._transactions.open

    def open_transactions(self) -> list[tuple[int, int]]:
        """Return (producer id, epoch) of producers whose transaction is open."""
        return [(each, self._producers[each].epoch) for each in self.transactions.open]

    def forget_silent(self, before_ms: int) -> None:
        """Drop producers that sent nothing since `before_ms`, except those with an open
        transaction.
        """
        open_ = self.transactions.open
        silent = [
            i
            for i, p in self._producers.items()
            if p.last_seen_ms < before_ms and i not in open_ and i not in self._ahead
        ]
        for producer_id in silent:
            del self._producers[producer_id]

    def dump(self) -> bytes:
        """Return the state before the log's end as bytes for the log's checkpoint; b"" if it is
        empty.
        """
        self.settle()
        if not self._producers and not self._transactions:
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
                        b.appended.base_offset,
                        b.appended.last_offset,
                        b.log_append_time_ms,
                    )
                    for b in p.batches
                    if isinstance(b.appended, Appended)
                ],
                p.coordinator_epoch,
            )
            for producer_id, p in self._producers.items()
            if p.batches or p.coordinator_epoch >= 0  # else all its batches failed
        ]
        index = self._transactions
        return _ENCODER.encode(_Snapshot(_VERSION, saved, list(index.open.items()), index.dump_aborted()))

    @classmethod
    def load(cls, state: bytes) -> ProducerStates:
        """Return the state that `dump` wrote.

        Raises:
            NewerFormat: a later Sparrow wrote it.
        """
        states = cls()
        if state:
            snapshot = _DECODER.decode(state)
            if snapshot.version > _VERSION:
                raise NewerFormat(
                    f"the producers' state in a checkpoint has format {snapshot.version}, known is "
                    f"{_VERSION};"
                    " open the data with the newer Sparrow"
                )
            for saved in snapshot.producers:
                states._producers[saved.producer_id] = _producer(saved)
            states.transactions.open.update(snapshot.open)
            states.transactions.load_aborted(snapshot.aborted)
        return states


def _accepted(header: BatchHeader, appended: Appended | asyncio.Future[Appended]) -> AcceptedBatch:
    stamped_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
    return AcceptedBatch(header.base_sequence, header.last_sequence, appended, stamped_ms)


def _producer(saved: _Saved) -> Producer:
    producer = Producer(saved.epoch, saved.last_seen_ms, coordinator_epoch=saved.coordinator_epoch)
    producer.batches.extend(
        AcceptedBatch(first, last, Appended(base_offset, last_offset), stamped_ms)
        for first, last, base_offset, last_offset, stamped_ms in saved.batches
    )
    return producer
