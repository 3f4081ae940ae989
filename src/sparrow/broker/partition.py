"""One partition: the rules between a checked batch and the log.

It checks the batches of publishers (`record_checks` checks their records), returns the first result
for repeated batches of idempotent producers, appends, and wakes the readers that wait at the end.

`Partition.publish` is the border of trust: every batch that a client wrote passes it. Two callers
pass batches that the broker built itself, and set `is_built_here`: batches of messages
(`frontends/publisher.py`), and of records that the broker moves
(`queues/dead_letters/mover.py`). Markers of transactions do not pass it.

The log is opened at first use: a broker with ten thousand idle topics opens nothing. `opened` does
so in a thread, and publishes that arrive meanwhile wait for it in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sparrow.base.errors import (
    InvalidArgument,
    InvalidRecord,
    InvalidTimestamp,
    LogDamaged,
    RecordTooLarge,
    SparrowError,
    StorageFailed,
    UnknownTopic,
    UnsupportedCompression,
)
from sparrow.broker.background import BackgroundWork
from sparrow.broker.producers import (
    NO_SEQUENCE,
    AcceptedBatch,
    ProducerInfo,
    ProducerStates,
    TransactionEnd,
)
from sparrow.broker.publishes import (
    ACKS,
    ACKS_ALL,
    Admit,
    Owns,
    Published,
    refuse_producers,
    refuse_transactional,
)
from sparrow.broker.record_checks import DeferredPublishes, RecordChecks, Work, maybe_check
from sparrow.records.batch import (
    COMPRESSION,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    split,
)
from sparrow.records.control import build_marker
from sparrow.records.rewrite import (
    keyless_records,
    with_compression,
    with_log_append_time,
)
from sparrow.records.validation import Terms
from sparrow.records.walker import MAX_TIMESTAMP, MIN_TIMESTAMP
from sparrow.storage.damage import Damage
from sparrow.storage.epochs import end_of_epoch
from sparrow.storage.store import Appended

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.configs.topic import TopicConfig
    from sparrow.broker.measures import Measures
    from sparrow.broker.transaction_index import AbortedRange, AbortedTransaction
    from sparrow.storage.store import LogId, LogStore, PartitionLog

_MAX_COMPRESSION = 4

Batch = tuple[BatchHeader, memoryview]


class Waiter(Protocol):
    """A reader that waits at the end of a partition."""

    def wake(self) -> None:
        """Continue reading. Called once, on the loop, when there is more to read."""
        ...


class _Unopened(NamedTuple):
    """A publish that waits for the log to be opened."""

    data: bytes
    publish: Callable[[], asyncio.Future[Published]]
    promise: asyncio.Future[Published]


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
        checks: RecordChecks,
    ) -> None:
        self.id = log_id
        self.config = config
        self._store = store
        self._clock = clock
        self._loop = loop
        self._measures = measures
        self.corrupt_batches = measures.corrupt_batches
        self.bytes_in = 0
        """Bytes of the batches that were published here since the broker started."""
        self._end_at_opening = 0
        self._markers = 0
        self.records_out = self.bytes_out = 0
        """Records and bytes that were read by offset: by subscriptions and fetches."""
        self._log: PartitionLog | None = None
        self._producers = ProducerStates()
        self._waiters: dict[Waiter, None] = {}
        self._deferred = DeferredPublishes(checks)
        self._checks = checks
        self._loading: BackgroundWork[tuple[PartitionLog, ProducerStates]] | None = None
        """The thread that opens the log, while there is one."""
        self._unopened: deque[_Unopened] = deque()
        """Publishes that arrived while the log was being opened."""
        self._is_deleted = False
        self._unusable: PartitionLog | None = None
        """The log that was opened and whose batch headers cannot be read."""
        self.failure: SparrowError | None = None
        """The reason why the partition is closed until the next start; None: it is not closed."""

    # ── the log ───────────────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @cached_property
    def log(self) -> PartitionLog:
        """The log, until the topic is deleted. If it is not open, it is opened now, which may block
        the loop: await `opened` before, where possible.
        """
        if self._is_deleted:
            raise UnknownTopic(f"topic {self.id.topic!r} was deleted")
        if self._log is None and not self.open_nowait():
            self.attach(*(self.load() if self._loading is None else self._loading.result()))
        assert self._log is not None
        return self._log

    async def opened(self) -> PartitionLog:
        """Return the log; open it in a thread if it is not open.

        Raises:
            UnknownTopic: the topic was deleted. StorageFailed, and all that `LogStore.open` raises.
        """
        if self._log is None and not self._is_deleted and not self.open_nowait():
            loading = self._load_in_thread()
            await loading.wait()
            self._end_loading(loading)
            loading.result()
        return self.log

    async def end_opening(self) -> None:
        """Wait for the thread that opens the log, if there is one. No caller may ask for the log
        meanwhile.
        """
        loading = self._loading
        if loading is not None:
            await loading.wait()
            self._end_loading(loading)

    async def until_current(self) -> None:
        """Wait while another broker may own the data.

        Raises:
            Draining: it does.
        """
        if not self._store.is_current():
            await self._store.current()

    def open_nowait(self) -> bool:
        """Open the log if that needs no waiting; return False if it does, or if the topic was
        deleted.
        """
        if self._is_deleted:
            return False
        if self._loading is not None:
            return False
        try:
            log = None if self.failure is not None else self._store.open_nowait(self.id, self.config.log)
        except LogDamaged as error:
            self.failure = error
            raise
        if log is not None:
            self.attach(log, ProducerStates())
        return log is not None

    def _load_in_thread(self) -> BackgroundWork[tuple[PartitionLog, ProducerStates]]:
        """Open the log in a thread; return the work that has begun, if there is one."""
        if self._loading is None:
            self._loading = BackgroundWork(self._loop, self.load, self._end_loading)
        return self._loading

    def _end_loading(self, loading: BackgroundWork[tuple[PartitionLog, ProducerStates]]) -> None:
        if self._loading is not loading:
            return
        failure = loading.failure()
        if failure is None:
            self.attach(*loading.result())
            return
        self._loading = None
        unopened, self._unopened = self._unopened, deque()
        for each in unopened:
            self._checks.release(len(each.data))
            _fail(each.promise, failure)

    def load(self) -> tuple[PartitionLog, ProducerStates]:
        """Open the log and rebuild the producers' state. Blocking, thread-safe; pass the result to
        `attach`.

        Raises:
            LogDamaged: the partition is closed until the next start.
            StorageFailed, Overloaded: the device, or the process, cannot do it now.
        """
        if self.failure is not None:
            raise type(self.failure)(self.failure.text)
        try:
            log = self._store.open(self.id, self.config.log)
        except LogDamaged as error:
            self.failure = error
            raise
        try:
            return log, self._fold(log)
        except SparrowError as error:
            self.failure = self._unreadable(log, error)
            raise self.failure from error

    def _unreadable(self, log: PartitionLog, error: SparrowError) -> LogDamaged:
        """Record the damage of a log whose files are complete but whose batch headers cannot be
        read, and return the error.
        """
        self._unusable = log
        try:
            found = log.find_unreadable(log.saved_state()[0])
        except SparrowError:
            found = []
        whole = Damage(
            str(self.id), self._store.location, error.text, log.start_offset, log.end_offset, is_there=True
        )
        found = found or [whole]
        for damage in found:
            self._store.damages.add(damage)
        return found[0].error()

    def _fold(self, log: PartitionLog) -> ProducerStates:
        offset, state = log.saved_state()
        producers = ProducerStates.load(state)
        if offset < log.end_offset:
            now_ms = self._clock.wall_ms()
            for header, control in log.producer_batches(offset):
                if header.base_offset >= offset:
                    producers.fold(header, now_ms, control)
        return producers

    def attach(self, log: PartitionLog, producers: ProducerStates) -> None:
        """Use the log and the producers that `load` returned."""
        self._log = log
        self._loading = None
        self._producers = producers
        self._end_at_opening = log.end_offset
        while self._unopened:
            each = self._unopened.popleft()
            self._checks.release(len(each.data))
            _follow(each.promise, each.publish)

    def configure(self, config: TopicConfig) -> None:
        """Use a new configuration."""
        self.config = config
        if self._log is not None:
            self._log.configure(config.log)

    def refuse_from_now(self) -> None:
        """Refuse publishes and reads from now on: the topic was deleted, and its data will be."""
        self._is_deleted = True
        self.__dict__.pop("log", None)

    async def delete(self) -> None:
        """Remove the log and its data; later publishes fail."""
        self.refuse_from_now()
        await self.end_opening()
        log = self._log or self._unusable
        if log is not None:
            await self._store.delete(log)
        else:
            await self._store.purge(self.id)

    async def checkpoint(self) -> None:
        """Save the producers' state with the log's end, so that a restart reads little."""
        await self.log.checkpoint(self._producers.dump())

    async def keep_producers(self) -> None:
        """Save the producers' state if records are about to be deleted from whose headers it would
        be rebuilt after a crash.
        """
        log = self.log
        if (self._producers.transactions or len(self._producers)) and log.saved_state()[0] < log.end_offset:
            await self.checkpoint()

    def forget_silent_producers(self, before_ms: int) -> None:
        """Drop producers that sent nothing since `before_ms`, and aborted transactions whose
        records the log has deleted.
        """
        self._producers.forget_silent(before_ms)
        self._producers.transactions.forget_before(self.log.start_offset)

    def producers(self) -> list[ProducerInfo]:
        """Return the producers that wrote here lately, by id."""
        self.log  # noqa: B018 - opens it, which brings their state; raises when the topic was deleted
        return self._producers.active()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def visible_end(self) -> int:
        """The end of the records that readers see: the offset behind the last."""
        return self.log.end_offset

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest epoch up to `epoch` that the log has; (-1, -1)
        for one that has not begun.
        """
        return end_of_epoch(self.log.epochs, epoch, self._store.leader_epoch, self.visible_end)

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that readers of committed records see: no open transaction began
        before it.
        """
        log, transactions = self.log, self._producers.transactions
        end = log.end_offset
        return max(log.start_offset, transactions.last_stable(end)) if transactions.open else end

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in [start, end), by their first offset."""
        return self._producers.transactions.aborted(start, end)

    def aborted_ranges(self, start: int, end: int) -> list[AbortedRange]:
        """Return aborted transactions with records in [start, end), with their ends."""
        return self._producers.transactions.ranges(start, end)

    @property
    def records_in(self) -> int:
        """The number of records that were published here since the broker started."""
        return 0 if self._log is None else self._log.end_offset - self._end_at_opening - self._markers

    def count_read(self, records: int, size_bytes: int) -> None:
        """Count records that a client read by offset."""
        self.records_out += records
        self.bytes_out += size_bytes
        self._measures.messages_out += records
        self._measures.bytes_out += size_bytes

    def wait(self, waiter: Waiter) -> None:
        """Wake `waiter` once, at the next append."""
        self._waiters[waiter] = None

    def stop_waiting(self, waiter: Waiter) -> None:
        """Forget a waiter; one that does not wait is ignored."""
        self._waiters.pop(waiter, None)

    def wake_waiters(self) -> None:
        """Wake all waiters: there is more to read, or the partition was deleted."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake()

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        data: bytes | memoryview,
        acks: int,
        admit: Admit = refuse_transactional,
        *,
        owns: Owns = refuse_producers,
        is_built_here: bool = False,
    ) -> asyncio.Future[Published]:
        """Append the batches in `data`; the future is done when the condition of `acks` is met.

        Args:
            admit: called for each transactional batch; raises unless its producer's open
                transaction includes this partition.
            owns: called with the producer id of each batch that is in no transaction.
            is_built_here: True if the broker built the batches; their records and producer ids are
                not checked.

        Raises, with nothing appended, at once or, for batches whose check takes long, from the
        future:
            CorruptBatch, RecordTooLarge, InvalidTimestamp, InvalidRecord, UnsupportedCompression:
                the data is invalid.
            InvalidArgument: no such `acks`.
            OutOfOrderSequence, DuplicateSequence, ProducerFenced: the sequence is invalid.
            UnknownProducer, and all that `owns` raises: the producer id is invalid.
            InvalidTransactionState, and all that `admit` raises: the transaction does not allow it.
            DiskFull, StorageFailed: the disk refuses.
            Overloaded: too many large compressed batches wait for their check.
        """
        if acks not in ACKS:
            raise InvalidArgument(f"acks {acks} for {self.id} is invalid; use -1 (all), 1 or 0")
        if self._log is None and not self._is_deleted and not self.open_nowait():
            return self._publish_when_open(bytes(data), acks, admit, owns, is_built_here=is_built_here)
        begun = perf_counter()
        self.log  # noqa: B018 - raises when the topic was deleted
        batches = split(data)
        if not batches:
            raise InvalidRecord(f"nothing was published to {self.id}: a publish carries a record batch")
        now_ms = self._clock.wall_ms()
        for header, view in batches:
            self._check_header(header, len(view), is_built_here=is_built_here)
            if header.producer_id >= 0 and not is_built_here and not header.attributes & TRANSACTIONAL:
                owns(header.producer_id, self._producers)
        if is_built_here or not self.config.checks_records:
            for header, view in batches:
                self._check_outside(header, view, now_ms)
            if is_built_here or not self._deferred.waiting:
                return self._publish(acks, admit, begun, now_ms, batches)
        config = self.config
        work = Work(batches, self._terms(now_ms), config.max_plain_bytes, config.compression)
        checked = None if self._deferred.waiting else maybe_check(work)
        if checked is not None:
            return self._publish(acks, admit, begun, now_ms, checked)
        promise: asyncio.Future[Published] = self._loop.create_future()
        self._deferred.add(work, partial(self._publish_checked, acks, admit, begun), promise)
        return promise

    def _publish_when_open(
        self, data: bytes, acks: int, admit: Admit, owns: Owns, *, is_built_here: bool
    ) -> asyncio.Future[Published]:
        self._checks.reserve(len(data))
        promise: asyncio.Future[Published] = self._loop.create_future()
        publish = partial(self.publish, data, acks, admit, owns=owns, is_built_here=is_built_here)
        self._unopened.append(_Unopened(data, publish, promise))
        self._load_in_thread()
        return promise

    def _publish_checked(
        self, acks: int, admit: Admit, begun: float, batches: Sequence[Batch]
    ) -> asyncio.Future[Published]:
        """Append batches whose check took long."""
        return self._publish(acks, admit, begun, self._clock.wall_ms(), batches)

    def _publish(
        self, acks: int, admit: Admit, begun: float, now_ms: int, batches: Sequence[Batch]
    ) -> asyncio.Future[Published]:
        """Append batches."""
        log = self.log  # raises if the topic was deleted meanwhile
        for header, _ in batches:
            if header.attributes & TRANSACTIONAL:
                self._check_transactional(header, admit)
        known = self._known(batches)
        if known is not None:
            return self._promise(known.appended, acks, known.log_append_time_ms, begun)
        size_bytes = records = 0
        for header, view in batches:
            size_bytes += len(view)
            records += header.last_offset_delta + 1
        stamped_ms = -1
        if self.config.log_append_time:
            stamped_ms = now_ms
            batches = [_restamped(batch, now_ms) for batch in batches]
        if self.config.compression != "producer":
            batches = [_recompressed(batch, self.config.compression) for batch in batches]
            for _, view in batches:
                if len(view) > self.config.max_message_bytes:
                    raise self._too_large(len(view))
        promised = log.append(batches, leader_epoch=self._store.leader_epoch)
        appended = self._accept(promised, batches[0][0], now_ms)
        measures = self._measures
        self.bytes_in += size_bytes
        measures.bytes_in += size_bytes
        measures.messages_in += records
        measures.appended(perf_counter() - begun)
        return self._promise(appended, acks, stamped_ms, begun)

    def _known(self, batches: Sequence[Batch]) -> AcceptedBatch | None:
        """Return the first result of an idempotent batch that was sent again."""
        if len(batches) > 1 and any(header.producer_id >= 0 for header, _ in batches):
            raise InvalidRecord("an idempotent producer sends one batch for a partition at a time")
        if batches[0][0].producer_id < 0:
            return None
        return self._producers.check(batches[0][0])

    def _accept(
        self, promised: asyncio.Future[Appended], header: BatchHeader, now_ms: int
    ) -> Appended | asyncio.Future[Appended]:
        """Record what was appended, or will be, for its producer. Return it as far as it is known.

        Args:
            header: of the first batch.
        """
        has_producer = header.producer_id >= 0 and header.base_sequence != NO_SEQUENCE
        if promised.done() and not self._producers.has_pending:
            appended = promised.result()
            if has_producer:
                self._producers.accept(header, appended, now_ms)
            self.wake_waiters()
            return appended
        if has_producer:
            self._producers.accept_pending(header, promised, now_ms)
        promised.add_done_callback(self._on_appended)
        return promised

    def _on_appended(self, done: asyncio.Future[Appended]) -> None:
        """Settle a late append at once, so that its memory is freed, and wake the waiters."""
        self._producers.settle()
        if not done.cancelled() and done.exception() is None:
            self.wake_waiters()

    def _promise(
        self, appended: Appended | asyncio.Future[Appended], acks: int, stamped_ms: int, begun: float
    ) -> asyncio.Future[Published]:
        """Return a future that is done when the condition of `acks` is met."""
        promise: asyncio.Future[Published] = self._loop.create_future()
        if isinstance(appended, Appended):
            self._keep(promise, appended, acks, stamped_ms, begun)
        else:
            appended.add_done_callback(partial(self._keep_later, promise, acks, stamped_ms, begun))
        return promise

    def _keep_later(
        self,
        promise: asyncio.Future[Published],
        acks: int,
        stamped_ms: int,
        begun: float,
        appended: asyncio.Future[Appended],
    ) -> None:
        try:
            self._keep(promise, appended.result(), acks, stamped_ms, begun)
        except (SparrowError, asyncio.CancelledError) as error:
            _fail(promise, self._failure(error))

    def _failure(self, error: BaseException) -> BaseException:
        """Return the error that a publisher gets for a failure that came late."""
        # the log says that it was closed; the cause is that the topic was deleted
        if self._is_deleted:
            return UnknownTopic(f"topic {self.id.topic!r} was deleted")
        if isinstance(error, asyncio.CancelledError):
            return StorageFailed(f"the log store cancelled an append to {self.id}; publish it again")
        return error

    def _keep(
        self, promise: asyncio.Future[Published], offsets: Appended, acks: int, stamped_ms: int, begun: float
    ) -> None:
        published = Published(offsets.base_offset, offsets.last_offset, stamped_ms)
        if acks != ACKS_ALL or not self.config.syncs:
            _settle(promise, published)
        else:
            settle = partial(self._settle_durable, promise, published, begun)
            self.log.when_durable(offsets.last_offset + 1, settle)

    def _settle_durable(
        self,
        promise: asyncio.Future[Published],
        published: Published,
        begun: float,
        failure: SparrowError | None,
    ) -> None:
        self._measures.published(perf_counter() - begun)
        if failure is not None:
            _fail(promise, self._failure(failure))
        elif not promise.done():  # else the caller has gone away
            promise.set_result(published)

    # ── transactions ──────────────────────────────────────────────────────────────────────────────

    def _check_transactional(self, header: BatchHeader, admit: Admit) -> None:
        if header.producer_id < 0 or header.base_sequence < 0:
            raise InvalidRecord(f"a transactional batch for {self.id} without a producer id or a sequence")
        admit(header, self.id)

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return True if records of this producer wait for a marker, including those that the log
        has not confirmed yet.
        """
        self.log  # noqa: B018 - as in `producers`
        return self._producers.may_be_open(producer_id)

    def open_transactions(self) -> list[tuple[int, int]]:
        """Return (producer id, epoch) of all producers whose records wait for a marker."""
        self.log  # noqa: B018 - as in `producers`
        return self._producers.open_transactions()

    async def end_transactions(self, ends: Sequence[TransactionEnd]) -> None:
        """Append the markers that end transactions here, and wait until they are on stable storage.
        Readers see all of them, or none.

        Raises:
            UnknownTopic: the topic was deleted.
            DiskFull, StorageFailed, Overloaded: nothing was appended, or it may not be durable.
        """
        now_ms = self._clock.wall_ms()
        epoch = self._store.leader_epoch  # the coordinator is where the leader is
        data = b"".join(build_marker(end.kind, end.producer_id, end.epoch, now_ms, epoch) for end in ends)
        promised = self.log.append(split(data), leader_epoch=epoch)
        self._producers.end(ends, promised, now_ms, epoch)
        if not promised.done():
            promised.add_done_callback(self._on_appended)
            # unlike awaiting the future, this leaves it alone when the caller is cancelled
            await asyncio.wait([promised])
        next_offset = promised.result().last_offset + 1
        self._markers += len(ends)
        self.wake_waiters()
        await self.log.durable(next_offset)

    # ── checks of a batch ─────────────────────────────────────────────────────────────────────────

    def _check_header(self, header: BatchHeader, size_bytes: int, *, is_built_here: bool) -> None:
        if size_bytes > self.config.max_message_bytes:
            raise self._too_large(size_bytes)
        attributes = header.attributes
        if attributes & CONTROL:
            raise InvalidRecord(f"a control batch for {self.id}: only the broker writes those")
        if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
            raise InvalidRecord(
                f"a batch for {self.id} with {header.record_count} records and last offset delta"
                f" {header.last_offset_delta}; publishers number records from 0 without holes"
            )
        if attributes & COMPRESSION > _MAX_COMPRESSION:
            raise UnsupportedCompression(
                f"a batch for {self.id} with compression {header.compression}; known are 0 none, 1 "
                "gzip, 2 snappy,"
                " 3 lz4, 4 zstd"
            )
        if is_built_here:
            return
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise InvalidRecord(
                f"a batch for {self.id} of producer {header.producer_id} without a sequence; idempotent"
                " producers number their records"
            )
        if attributes & LOG_APPEND_TIME:
            raise InvalidTimestamp(
                f"a batch for {self.id} says that the broker stamped its time; publishers send timestamps"
                " of type CreateTime"
            )

    def _terms(self, now_ms: int) -> Terms:
        """Return the terms that records must meet besides their format."""
        config = self.config
        if config.log_append_time:
            return Terms(needs_keys=config.compact)
        return Terms(
            max(MIN_TIMESTAMP, now_ms - config.timestamp_before_max_ms),
            min(MAX_TIMESTAMP, now_ms + config.timestamp_after_max_ms),
            config.compact,
        )

    def _check_outside(self, header: BatchHeader, view: memoryview, now_ms: int) -> None:
        """Check the header's times, and the keys on a compacted topic, but no other part of the
        records.
        """
        if not self.config.log_append_time:
            self._check_timestamp(header, now_ms)
        if self.config.compact and (keyless := keyless_records(view)):
            raise InvalidRecord(f"{self.id} is compacted: every record needs a key", tuple(keyless))

    def _too_large(self, size_bytes: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"a batch of {size_bytes} bytes for {self.id}; max.message.bytes of the topic is"
            f" {self.config.max_message_bytes}"
        )

    def _check_timestamp(self, header: BatchHeader, now_ms: int) -> None:
        config = self.config
        if header.max_timestamp > now_ms + config.timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"a batch for {self.id} has a record of {header.max_timestamp} ms, later than now "
                f"({now_ms} ms) by more"
                f" than message.timestamp.after.max.ms ({config.timestamp_after_max_ms})"
            )
        if header.base_timestamp >= 0 and header.base_timestamp < now_ms - config.timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"a batch for {self.id} has a record of {header.base_timestamp} ms, earlier than "
                f"now ({now_ms} ms) by more"
                f" than message.timestamp.before.max.ms ({config.timestamp_before_max_ms})"
            )


async def open_all(partitions: Iterable[Partition]) -> None:
    """Open the logs that are not open. A failure is raised to the next caller that asks for that
    log.
    """
    closed = [each for each in partitions if not each.is_open]
    if closed:
        await asyncio.gather(*(each.opened() for each in closed), return_exceptions=True)


def _settle(promise: asyncio.Future[Published], published: Published) -> None:
    if not promise.done():  # else the caller has gone away
        promise.set_result(published)


def _follow(promise: asyncio.Future[Published], publish: Callable[[], asyncio.Future[Published]]) -> None:
    """Publish now, and settle `promise` with the result."""

    def end(done: asyncio.Future[Published]) -> None:
        failure = done.exception()
        if failure is None:
            _settle(promise, done.result())
        else:
            _fail(promise, failure)

    try:
        publish().add_done_callback(end)
    except SparrowError as error:
        _fail(promise, error)


def _fail(promise: asyncio.Future[Published], failure: BaseException) -> None:
    if not promise.done():
        promise.set_exception(failure)


def _restamped(batch: Batch, now_ms: int) -> Batch:
    return _reparsed(with_log_append_time(batch[0], batch[1], now_ms))


def _recompressed(batch: Batch, compression: str) -> Batch:
    return _reparsed(with_compression(batch[0], batch[1], compression))


def _reparsed(data: bytes | memoryview) -> Batch:
    return split(data)[0]
