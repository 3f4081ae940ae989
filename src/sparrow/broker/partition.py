"""One partition: the rules between a checked batch and the log.

Validates what a publisher sends (per batch, never per record, except keys on a compacted topic), answers repeated batches of
idempotent producers with their first answer, appends, and wakes the readers that wait at the end.

The log is opened at the first touch: a broker with ten thousand idle topics opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import (
    InvalidArgument,
    InvalidRecord,
    InvalidTimestamp,
    NotInTransaction,
    RecordTooLarge,
    UnknownTopic,
    UnsupportedCompression,
)
from sparrow.broker.producers import NO_SEQUENCE, AcceptedBatch, ProducerInfo, ProducerStates
from sparrow.records.batch import BatchHeader, split
from sparrow.records.control import ControlType, build_marker
from sparrow.records.rewrite import keyless_records, with_compression, with_log_append_time
from sparrow.storage.store import Appended

if TYPE_CHECKING:
    import asyncio

    from sparrow.base.clock import Clock
    from sparrow.broker.configs.topic import TopicConfig
    from sparrow.broker.measures import Measures
    from sparrow.broker.transactions.index import AbortedRange, AbortedTransaction
    from sparrow.storage.store import LogId, LogStore, PartitionLog

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
_ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
LEADER_EPOCH = 0
"""One broker leads all partitions, always in the same epoch."""
COORDINATOR_EPOCH = 0
"""Likewise for the coordinator of transactions."""
_MAX_COMPRESSION = 4

Batch = tuple[BatchHeader, memoryview]
Admit = Callable[[BatchHeader, "LogId"], None]


def refuse_transactional(header: BatchHeader, log_id: LogId) -> None:
    """For publishers that have no transactions.

    Raises:
        NotInTransaction: always.
    """
    raise NotInTransaction(
        f"producer {header.producer_id} sent a transactional batch for {log_id} outside of a transaction"
    )


@dataclass(frozen=True, slots=True)
class Published:
    """What a publisher learns: the offsets its batch got, and the append time where the topic stamps it (else -1)."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """Whose transaction ends, and how."""

    producer_id: int
    epoch: int
    commit: bool

    @property
    def kind(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT


class Waiter(Protocol):
    """Somebody who waits at the end of a partition."""

    def wake(self) -> None:
        """Called once, on the loop, when there is more to read."""
        ...


class Partition:
    """One partition of one topic. Loop thread only, except where a method says otherwise."""

    def __init__(
        self,
        log_id: LogId,
        config: TopicConfig,
        store: LogStore,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        measures: Measures,
    ) -> None:
        self.id = log_id
        self.config = config
        self._store = store
        self._clock = clock
        self._loop = loop
        self._measures = measures
        self.bytes_in = 0
        """Of batches that were published here since the broker started."""
        self._end_at_opening = 0
        self._markers = 0
        self.records_out = self.bytes_out = 0
        """What was read by offset: by subscriptions and fetches."""
        self._log: PartitionLog | None = None
        self._producers = ProducerStates()
        self._waiters: dict[Waiter, None] = {}
        self._is_deleted = False

    # ── the log behind it ─────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def log(self) -> PartitionLog:
        """The log, opened now if it was not."""
        if self._is_deleted:
            raise UnknownTopic(f"topic {self.id.topic!r} was deleted")
        if self._log is None:
            self.attach(*self.load())
        assert self._log is not None
        return self._log

    def load(self) -> tuple[PartitionLog, ProducerStates]:
        """Open the log and rebuild the producers' state. Blocking, thread-safe; give the result to `attach`."""
        log = self._store.open(self.id, self.config.log)
        offset, state = log.saved_state()
        producers = ProducerStates.load(state)
        if offset < log.end_offset:
            now_ms = self._clock.wall_ms()
            for header, control in log.headers_and_markers(offset):
                if header.base_offset >= offset:
                    producers.fold(header, now_ms, control)
        return log, producers

    def attach(self, log: PartitionLog, producers: ProducerStates) -> None:
        """Take what `load` opened."""
        self._log = log
        self._producers = producers
        self._end_at_opening = log.end_offset

    def configure(self, config: TopicConfig) -> None:
        """Take a new configuration."""
        self.config = config
        if self._log is not None:
            self._log.configure(config.log)

    async def delete(self) -> None:
        """Remove the log and its data; publishing to it fails from here on."""
        self._is_deleted = True
        if self._log is not None:
            await self._store.delete(self._log)
        else:
            await self._store.purge(self.id)

    async def checkpoint(self) -> None:
        """Remember the producers' state with the log's end, so that a restart reads little."""
        await self.log.checkpoint(self._producers.dump())

    async def keep_producers(self) -> None:
        """Save the producers' state if records are about to be deleted whose headers it would be rebuilt from after a crash."""
        log = self.log
        if (len(self._producers) or self._producers.transactions) and log.saved_state()[0] < log.end_offset:
            await self.checkpoint()

    def forget_silent_producers(self, before_ms: int) -> None:
        """Drop producers that sent nothing since `before_ms`, and aborted transactions that the log has no record of."""
        self._producers.forget_silent(before_ms)
        self._producers.transactions.forget_before(self.log.start_offset)

    def producers(self) -> list[ProducerInfo]:
        """The producers that wrote here lately, by id."""
        self.log  # noqa: B018 - opens it, which brings their state; raises when the topic was deleted
        return self._producers.active()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def visible_end(self) -> int:
        """Readers see records before this offset."""
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records alone see those before this offset: no transaction that is open began before it."""
        log = self.log
        return max(log.start_offset, self._producers.transactions.last_stable(log.end_offset))

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end), by their first offset."""
        return self._producers.transactions.aborted(start, end)

    def aborted_ranges(self, start: int, end: int) -> list[AbortedRange]:
        """The same with their ends."""
        return self._producers.transactions.ranges(start, end)

    @property
    def records_in(self) -> int:
        """How many were published here since the broker started."""
        return 0 if self._log is None else self._log.end_offset - self._end_at_opening - self._markers

    def count_read(self, records: int, size_bytes: int) -> None:
        """Something was read by offset, for somebody outside."""
        self.records_out += records
        self.bytes_out += size_bytes

    def wait(self, waiter: Waiter) -> None:
        """Wake `waiter` once, at the next append."""
        self._waiters[waiter] = None

    def stop_waiting(self, waiter: Waiter) -> None:
        """Forget a waiter; one that does not wait is no error."""
        self._waiters.pop(waiter, None)

    def wake_waiters(self) -> None:
        """Wake everybody who waits: there is more, or the partition is gone."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake()

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    def publish(
        self, data: bytes | memoryview, acks: int, admit: Admit = refuse_transactional
    ) -> asyncio.Future[Published]:
        """Append the batches in `data`; the future is done when the promise of `acks` is kept.

        Args:
            admit: asked about each transactional batch; raises unless its producer's open transaction has this partition.

        Raises, at once and with nothing appended:
            CorruptBatch, RecordTooLarge, InvalidTimestamp, InvalidRecord, UnsupportedCompression: what is wrong with the data.
            InvalidArgument: no such `acks`.
            OutOfOrderSequence, DuplicateSequence, ProducerFenced: what is wrong with the sequence.
            InvalidTransactionState, and what `admit` raises: what is wrong with the transaction.
            DiskFull, StorageFailed: what is wrong with the disk.
        """
        if acks not in _ACKS:
            raise InvalidArgument(f"acks {acks} for {self.id} do not exist; there are -1 (all), 1 and 0")
        begun = perf_counter()
        log = self.log  # raises when the topic was deleted; brings the producers' state with it
        batches = list(split(data))
        if not batches:
            raise InvalidRecord(f"nothing was published to {self.id}: a publish carries a record batch")
        now_ms = self._clock.wall_ms()
        for header, view in batches:
            self._validate(header, view, now_ms)
            if header.is_transactional:
                self._check_transactional(header, admit)
        known = self._known(batches)
        if known is not None:
            return self._promise(known.answer, acks, known.log_append_time_ms, begun)
        stamped_ms = -1
        if self.config.log_append_time:
            stamped_ms = now_ms
            batches = [_restamped(batch, now_ms) for batch in batches]
        if self.config.compression != "producer":
            batches = [_recompressed(batch, self.config.compression) for batch in batches]
            for header, _ in batches:
                self._check_size(header)
        answer = self._append(log, batches, now_ms)
        self.bytes_in += len(data)
        self._measures.appended(perf_counter() - begun)
        return self._promise(answer, acks, stamped_ms, begun)

    def _known(self, batches: list[Batch]) -> AcceptedBatch | None:
        """The first answer to an idempotent batch that was sent again."""
        if len(batches) > 1 and any(header.producer_id >= 0 for header, _ in batches):
            raise InvalidRecord("an idempotent producer sends one batch for a partition at a time")
        if batches[0][0].producer_id < 0:
            return None
        return self._producers.check(batches[0][0])

    def _append(
        self, log: PartitionLog, batches: list[Batch], now_ms: int
    ) -> Appended | asyncio.Future[Appended]:
        promised = log.append(batches, leader_epoch=LEADER_EPOCH)
        answer = promised.result() if promised.done() else promised
        header = batches[0][0]
        if header.producer_id >= 0 and header.base_sequence != NO_SEQUENCE:
            self._producers.accept(header, answer, now_ms)
        if isinstance(answer, Appended):
            self.wake_waiters()
        else:
            answer.add_done_callback(partial(self._appended, header))
        return answer

    def _appended(self, header: BatchHeader, answer: asyncio.Future[Appended]) -> None:
        if header.is_transactional and not answer.cancelled() and answer.exception() is None:
            self._producers.transactions.begin(header.producer_id, answer.result().base_offset)
        self.wake_waiters()

    def _promise(
        self, answer: Appended | asyncio.Future[Appended], acks: int, stamped_ms: int, begun: float
    ) -> asyncio.Future[Published]:
        """A future that is done when what `acks` asks for is true."""
        promise: asyncio.Future[Published] = self._loop.create_future()
        if isinstance(answer, Appended):
            self._keep(promise, answer, acks, stamped_ms, begun)
        else:
            answer.add_done_callback(partial(self._keep_later, promise, acks, stamped_ms, begun))
        return promise

    def _keep_later(
        self,
        promise: asyncio.Future[Published],
        acks: int,
        stamped_ms: int,
        begun: float,
        appended: asyncio.Future[Appended],
    ) -> None:
        failure = appended.exception()
        if failure is None:
            self._keep(promise, appended.result(), acks, stamped_ms, begun)
        elif not promise.done():
            promise.set_exception(failure)

    def _keep(
        self, promise: asyncio.Future[Published], offsets: Appended, acks: int, stamped_ms: int, begun: float
    ) -> None:
        published = Published(offsets.base_offset, offsets.last_offset, stamped_ms)
        if acks != ACKS_ALL or not self.config.syncs:
            _settle(promise, published)
            return
        published_after = self._measures.published
        durable = self.log.durable(offsets.last_offset + 1)
        if durable.done():
            published_after(perf_counter() - begun)
            _settle(promise, published, durable)
        else:
            durable.add_done_callback(partial(self._settle_later, promise, published, begun))

    def _settle_later(
        self,
        promise: asyncio.Future[Published],
        published: Published,
        begun: float,
        durable: asyncio.Future[None],
    ) -> None:
        self._measures.published(perf_counter() - begun)
        if self._is_deleted and durable.exception() is not None:
            # The log says that it was closed; what that means is that the topic is gone.
            if not promise.done():
                promise.set_exception(UnknownTopic(f"topic {self.id.topic!r} was deleted"))
            return
        _settle(promise, published, durable)

    # ── transactions ──────────────────────────────────────────────────────────────────────────────

    def _check_transactional(self, header: BatchHeader, admit: Admit) -> None:
        if header.producer_id < 0 or header.base_sequence < 0:
            raise InvalidRecord(f"a transactional batch for {self.id} without a producer id or a sequence")
        admit(header, self.id)

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether records of this producer wait for a marker."""
        self.log  # noqa: B018 - as in `producers`
        return producer_id in self._producers.transactions.open

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, its epoch) of all whose records wait for a marker."""
        self.log  # noqa: B018 - as in `producers`
        return self._producers.open_transactions()

    async def end_transactions(self, ends: Sequence[TransactionEnd]) -> None:
        """Append the markers that end transactions here, and wait until they are on stable storage. Readers see all of them, or none.

        Raises:
            UnknownTopic: the topic was deleted.
            DiskFull, StorageFailed, Overloaded: nothing was appended, or it may not be durable.
        """
        now_ms = self._clock.wall_ms()
        data = b"".join(
            build_marker(end.kind, end.producer_id, end.epoch, now_ms, COORDINATOR_EPOCH) for end in ends
        )
        promised = self.log.append(list(split(data)), leader_epoch=LEADER_EPOCH)
        offset = (promised.result() if promised.done() else await promised).base_offset
        for end in ends:
            self._markers += 1
            self._producers.mark(
                end.producer_id,
                end.epoch,
                offset,
                now_ms,
                committed=end.commit,
                coordinator_epoch=COORDINATOR_EPOCH,
            )
            offset += 1
        self.wake_waiters()
        await self.log.durable(offset)

    # ── what a batch must be ──────────────────────────────────────────────────────────────────────

    def _validate(self, header: BatchHeader, view: memoryview, now_ms: int) -> None:
        config = self.config
        self._check_size(header)
        if header.is_control:
            raise InvalidRecord(f"a control batch for {self.id}: only the broker writes those")
        if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
            raise InvalidRecord(
                f"a batch for {self.id} with {header.record_count} records and last offset delta"
                f" {header.last_offset_delta}; publishers number records from 0 without holes"
            )
        if header.compression > _MAX_COMPRESSION:
            raise UnsupportedCompression(
                f"a batch for {self.id} with compression {header.compression}; known are 0 none, 1 gzip, 2 snappy,"
                " 3 lz4, 4 zstd"
            )
        if not config.log_append_time:
            self._check_timestamp(header, now_ms)
        if config.compact and (keyless := keyless_records(view)):
            raise InvalidRecord(f"{self.id} is compacted: every record needs a key", tuple(keyless))

    def _check_size(self, header: BatchHeader) -> None:
        if header.size_bytes > self.config.max_message_bytes:
            raise RecordTooLarge(
                f"a batch of {header.size_bytes} bytes for {self.id}; max.message.bytes of the topic is"
                f" {self.config.max_message_bytes}"
            )

    def _check_timestamp(self, header: BatchHeader, now_ms: int) -> None:
        config = self.config
        if header.max_timestamp > now_ms + config.timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"a batch for {self.id} has a record of {header.max_timestamp} ms, later than now ({now_ms} ms) by more"
                f" than message.timestamp.after.max.ms ({config.timestamp_after_max_ms})"
            )
        if header.base_timestamp >= 0 and header.base_timestamp < now_ms - config.timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"a batch for {self.id} has a record of {header.base_timestamp} ms, earlier than now ({now_ms} ms) by more"
                f" than message.timestamp.before.max.ms ({config.timestamp_before_max_ms})"
            )


def _settle(
    promise: asyncio.Future[Published], published: Published, durable: asyncio.Future[None] | None = None
) -> None:
    if promise.done():  # the caller went away
        return
    failure = durable.exception() if durable is not None else None
    if failure is not None:
        promise.set_exception(failure)
    else:
        promise.set_result(published)


def _restamped(batch: Batch, now_ms: int) -> Batch:
    return _reparsed(with_log_append_time(batch[0], batch[1], now_ms))


def _recompressed(batch: Batch, compression: str) -> Batch:
    return _reparsed(with_compression(batch[0], batch[1], compression))


def _reparsed(data: bytes | memoryview) -> Batch:
    return next(split(data))
