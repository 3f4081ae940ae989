"""The log store of a shard: logs in the ledger and in objects.

`load_logs` rebuilds all logs of a shard from its rows, without reading a payload. A commit whose
batches belong to no log any more (deleted topics, retention) is dropped by the next one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import LogDamaged, NewerFormat, SparrowError, StorageFailed
from sparrow.cluster.errors import LedgerRefused
from sparrow.cluster.journal import LedgerJournal
from sparrow.cluster.ledger import EntryRow, ShardContent
from sparrow.cluster.log import (
    ENTRY_VERSION,
    LOG_KIND,
    STATE_KIND,
    LogEntry,
    LogState,
    ObjectLog,
    Piece,
    StateEntry,
    cut_run,
    log_key,
    replace_pieces,
)
from sparrow.cluster.manifest import CommitManifest, LogRun, decode_manifest
from sparrow.cluster.payloads import CommitPayload, PayloadCache
from sparrow.storage.damage import Damage, Damages
from sparrow.storage.store import LogConfig, LogId, PartitionLog

if TYPE_CHECKING:
    from sparrow.base.histogram import Histogram
    from sparrow.cluster.committer import Group, ShardCommitter
    from sparrow.storage.journal import Journal

T = TypeVar("T")
NUMBER_KIND: Final = b"N"
CLEAN_KIND: Final = b"C"
TRUST_POLL_S: Final = 0.02
UNLIMITED_BYTES: Final = 1 << 62
"""The free space of stores that have no limit."""


@dataclass(slots=True)
class LoadedLogs:
    """The logs of a shard, as the ledger has them.

    Attributes:
        drops: commits whose batches belong to no log, and whose journal records are released.
        journal: (number, record, payload) of the journal's records, in order.
        next_number: number of the next new log.
    """

    states: dict[LogId, LogState] = field(default_factory=dict)
    drops: list[int] = field(default_factory=list)
    journal: list[tuple[int, bytes, CommitPayload]] = field(default_factory=list)
    next_number: int = 1
    is_clean: bool = False


def load_logs(content: ShardContent) -> LoadedLogs:
    """Return the logs of a shard.

    Raises:
        NewerFormat, LedgerRefused: an entry or a manifest cannot be read.
    """
    loaded = _load_entries(content.entries)
    by_number = {state.entry.number: state for state in loaded.states.values()}
    payloads = []
    for row in content.wal:
        manifest = decode_manifest(row.manifest)
        size = max((run.position + run.length for run in manifest.runs), default=0)
        payload = CommitPayload(row.seq, row.at_ms, row.object_key, size)
        payloads.append(payload)
        _add_runs(by_number, manifest, payload)
        for number, record in enumerate(manifest.journal, manifest.journal_first):
            loaded.journal.append((number, record, payload))
    for log_id, state in loaded.states.items():
        _finish(log_id, state)
    for payload in {payload.seq: payload for _, _, payload in loaded.journal}.values():
        payload.live += 1
    loaded.drops = [payload.seq for payload in payloads if not payload.live]
    return loaded


def _load_entries(rows: Iterable[EntryRow]) -> LoadedLogs:
    """Return the logs without their runs."""
    loaded = LoadedLogs()
    saved: dict[bytes, StateEntry] = {}
    for row in rows:
        if row.kind == LOG_KIND:
            entry = _decode(row, LogEntry)
            log_id = LogId(entry.topic, uuid.UUID(bytes=entry.topic_id), entry.partition)
            loaded.states[log_id] = LogState(entry, is_stored=True)
        elif row.kind == STATE_KIND:
            saved[row.key] = _decode(row, StateEntry)
        elif row.kind == NUMBER_KIND:
            loaded.next_number = int.from_bytes(row.value, "big")
        elif row.kind == CLEAN_KIND:
            loaded.is_clean = True
    for state in loaded.states.values():
        state.saved = saved.get(log_key(state.entry), state.saved)
    return loaded


def _decode(row: EntryRow, kind: type[T]) -> T:
    try:
        version = msgspec.msgpack.decode(row.value)[0]
        if version > ENTRY_VERSION:
            raise NewerFormat(
                f"an entry of a log in the ledger has version {version}; "
                "start the later Sparrow that wrote it"
            )
        return msgspec.msgpack.decode(row.value, type=kind)
    except (msgspec.DecodeError, TypeError, IndexError):
        raise LedgerRefused(
            "an entry of a log in the ledger cannot be read; restore PostgreSQL from a backup"
        ) from None


def _add_runs(by_number: Mapping[int, LogState], manifest: CommitManifest, payload: CommitPayload) -> None:
    replacements: dict[int, list[LogRun]] = {}
    for run in manifest.runs:
        state = by_number.get(run.log)
        if state is None:
            continue  # its log was deleted
        if run.replaces:
            replacements.setdefault(run.log, []).append(run)
            continue
        for cut in state.entry.cuts:
            if payload.seq <= cut.seq and run.end > cut.end:
                run = cut_run(run, cut)  # noqa: PLW2901 - the part that counts
        if run.end > run.base:
            state.pieces.append(Piece(run, payload))
    for number, runs in replacements.items():
        replace_pieces(by_number[number].pieces, runs, payload)


def _finish(log_id: LogId, state: LogState) -> None:
    """Drop what is before the log's start, count the uses of payloads, find missing offsets."""
    entry = state.entry
    state.pieces = [piece for piece in state.pieces if piece.end > entry.start]
    expected = entry.start
    for number, piece in enumerate(state.pieces):
        piece.payload.live += 1
        if piece.base > expected and state.damage is None:
            state.damage = _missing(log_id, expected, piece.base)
        if piece.base < expected and number and state.damage is None:
            state.damage = _doubled(log_id, piece.base, expected)
        expected = piece.end
    if expected < entry.end and state.damage is None:
        state.damage = _missing(log_id, expected, entry.end)


def _missing(log_id: LogId, first: int, end: int) -> Damage:
    return Damage(str(log_id), "the ledger", "rows of commits are missing", first, end)


def _doubled(log_id: LogId, first: int, end: int) -> Damage:
    problem = "two commits have the same offsets"
    return Damage(str(log_id), "the ledger", problem, first, end, is_there=True)


class StoreResources:
    """The parts that all logs of a store share."""

    def __init__(
        self, committer: ShardCommitter, cache: PayloadCache, location: str, is_trusted: Callable[[], bool]
    ) -> None:
        self.committer = committer
        self.cache = cache
        self.damages = Damages()
        self.is_trusted = is_trusted
        """Returns False if another node may own the shard by now: reads have to wait."""
        self.next_number = 1
        self.is_marked_clean = False
        """True while the ledger says that the last owner closed the shard."""
        self._location = location

    def number_row(self) -> EntryRow:
        """Return the entry with the number of the next new log."""
        return EntryRow(NUMBER_KIND, b"", self.next_number.to_bytes(8, "big"), 1)

    def before_append(self, group: Group) -> None:
        """Let the ledger forget that the last owner closed the shard."""
        if not self.is_marked_clean:
            return
        self.is_marked_clean = False
        group.entries[CLEAN_KIND, b""] = None

        def settle(error: SparrowError | None) -> None:
            self.is_marked_clean = self.is_marked_clean or error is not None

        group.settlements.append(settle)

    async def trusted(self) -> None:
        """Wait until no other node can own the shard.

        Raises:
            NotOwner: the shard is lost.
        """
        while not self.is_trusted():
            if self.committer.failure is not None:
                raise type(self.committer.failure)(self.committer.failure.text)
            await asyncio.sleep(TRUST_POLL_S)

    async def write(self, puts: Sequence[EntryRow], deletes: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Change entries, and wait for the commit."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: SparrowError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.committer.add_entries(puts, deletes, settle)
        await done

    def path_of(self, payload: CommitPayload) -> str:
        """Return where a payload is, for people."""
        if payload.object_key is None:
            return f"commit {payload.seq} in the ledger"
        return f"{self._location}/{payload.object_key}"


class ObjectLogStore:
    """A `LogStore` over a shard that this node owns.

    Args:
        when_closed: awaited at the end of `close`.
    """

    def __init__(
        self,
        loaded: LoadedLogs,
        committer: ShardCommitter,
        cache: PayloadCache,
        *,
        location: str,
        is_trusted: Callable[[], bool] = lambda: True,
        when_closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._resources = StoreResources(committer, cache, location, is_trusted)
        self._resources.next_number = loaded.next_number
        self._resources.is_marked_clean = loaded.is_clean
        self._committer = committer
        self._location = location
        self._when_closed = when_closed
        self._states = loaded.states
        self._journal_records = loaded.journal
        self._logs: dict[LogId, ObjectLog] = {}
        self._is_closed = False
        self.clean_start = loaded.is_clean or not loaded.states
        committer.drop(loaded.drops)

    @property
    def damages(self) -> Damages:
        return self._resources.damages

    @property
    def leader_epoch(self) -> int:
        return self._committer.leader_epoch

    @property
    def location(self) -> str:
        return self._location

    @property
    def sync_times(self) -> Histogram:
        return self._committer.commit_times

    def free_bytes(self) -> int:
        return UNLIMITED_BYTES

    def total_bytes(self) -> int:
        return UNLIMITED_BYTES

    @property
    def reserve_bytes(self) -> int:
        return 0

    def refusal(self) -> SparrowError | None:
        return self._committer.failure or self._committer.objects_failure

    def ids(self) -> list[LogId]:
        return [log_id for log_id, state in self._states.items() if state.is_stored]

    # ── opening ──

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:
        state = self._state_of(log_id)
        if state.damage is not None:
            self._resources.damages.add(state.damage)
            raise LogDamaged(
                f"the partition {log_id} is closed: {state.damage.sentence}. Restore PostgreSQL and "
                "the bucket from backups"
            )
        log = self._logs[log_id] = ObjectLog(log_id, config, state, self._resources)
        return log

    def _state_of(self, log_id: LogId) -> LogState:
        state = self._states.get(log_id)
        if state is None:
            number = self._resources.next_number
            self._resources.next_number += 1
            entry = LogEntry(ENTRY_VERSION, number, log_id.topic, log_id.topic_id.bytes, log_id.partition)
            state = self._states[log_id] = LogState(entry)
        return state

    def open_nowait(self, log_id: LogId, config: LogConfig) -> PartitionLog | None:
        state = self._states.get(log_id)
        return self.open(log_id, config) if state is None or not state.is_stored else None

    async def survey(self, log_ids: Iterable[LogId]) -> None:
        for log_id in log_ids:
            state = self._states.get(log_id)
            if state is not None and state.damage is not None:
                self._resources.damages.add(state.damage)

    # ── removing ──

    async def forget_missing(self, log_id: LogId) -> bool:
        state = self._states.get(log_id)
        if state is not None and state.pieces:
            return False
        await self.purge(log_id)
        return True

    async def delete(self, log: PartitionLog) -> None:
        assert isinstance(log, ObjectLog)
        await log.stop()
        self._logs.pop(log.id, None)
        self._resources.damages.forget(str(log.id))
        state = self._states.get(log.id)
        if state is None:
            return
        if state.is_stored:
            await self._forget(state.entry)
        self._release(log.take_pieces())
        del self._states[log.id]

    async def purge(self, log_id: LogId) -> None:
        state = self._states.get(log_id)
        if state is None:
            return
        self._resources.damages.forget(str(log_id))
        if state.is_stored:
            await self._forget(state.entry)
        self._release(state.pieces)
        del self._states[log_id]

    async def _forget(self, entry: LogEntry) -> None:
        key = log_key(entry)
        await self._resources.write([], [(LOG_KIND, key), (STATE_KIND, key)])

    def _release(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._committer.release(piece.payload)

    # ── the rest ──

    def logs(self) -> Iterator[ObjectLog]:
        """Iterate over the open logs."""
        yield from list(self._logs.values())

    def open_journal(self, mark: bytes | None) -> Journal:
        records, self._journal_records = self._journal_records, []
        return LedgerJournal(self._committer, records, mark)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        failure: SparrowError | None = None
        for log in self.logs():
            await log.stop()
        try:
            await self._mark_clean()
        except SparrowError as error:
            failure = error
        finally:
            await _maybe_await(self._when_closed())
        if failure is not None:
            raise StorageFailed(f"the logs could not be closed: {failure.text}")

    async def _mark_clean(self) -> None:
        rows = [row for log in self._logs.values() if (row := log.final_row) is not None]
        if rows or not self._resources.is_marked_clean:
            await self._resources.write([*rows, EntryRow(CLEAN_KIND, b"", b"", 1)])


async def _maybe_await(found: object) -> None:
    if asyncio.iscoroutine(found):
        await found
