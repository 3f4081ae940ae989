"""The import of a data directory into an empty cluster.

The importer is a node of the cluster that takes the shard, and commits as an owner does: batches
byte for byte, with their offsets, then the entries. Its first commit leaves a mark, and its last
one removes it, after everything was read back and compared. A broker that finds the mark does not
start, so a cluster never serves half of a directory.

An import that ended in the middle is repeated: batches that the ledger has are not copied again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InvalidConfig, Unavailable
from sparrow.cluster.committer import CommitOptions, ShardCommitter
from sparrow.cluster.entries import PREFIX
from sparrow.cluster.errors import ObjectsUnavailable
from sparrow.cluster.import_check import ImportResult, check_import
from sparrow.cluster.ledger import EntryRow
from sparrow.cluster.loaded_logs import LogState, load_logs
from sparrow.cluster.log_entries import (
    CLEAN_KIND,
    ENTRY_VERSION,
    LOG_KIND,
    NUMBER_KIND,
    STATE_KIND,
    LogEntry,
    StateEntry,
    log_row,
    state_row,
)
from sparrow.cluster.manifest import STAMP_BYTES, RunBuilder
from sparrow.cluster.ownership import Ownership, standbys
from sparrow.cluster.payloads import PayloadCache
from sparrow.cluster.settlement import settle_future

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.cluster.committer import CommittedLog
    from sparrow.cluster.import_source import ImportSource
    from sparrow.cluster.ledger import Ledger, ShardContent, Taken
    from sparrow.cluster.manifest import LogRun
    from sparrow.cluster.objects import Objects
    from sparrow.cluster.payloads import CommitPayload
    from sparrow.storage.store import LogId, PartitionLog

_LOG = logging.getLogger(__name__)
IMPORT_KIND: Final = b"I"
OBJECT_BYTES: Final = 8 << 20
INLINE_BYTES: Final = 64 << 10
IN_FLIGHT: Final = 4
ENTRIES_BYTES: Final = 4 << 20
TAKE_S: Final = 30.0
"""Time for which an import waits for the lease of one that was killed."""
OUTAGE_S: Final = 30.0
INDEX_INTERVAL_BYTES: Final = 4096
MAX_HOLE: Final = 0x7FFFFFFF
_FRESH_KINDS: Final = frozenset({"cluster", "secret", "counter", "producer-ids", "journal"})
"""Kinds of entries that a broker writes at its first start."""

Progress = Callable[[str, int, int], None]
"""Called with a word for what is done ("copied", "checked"), bytes so far, and bytes in all."""


class UnfinishedImport(msgspec.Struct, array_like=True, frozen=True):
    """The entry that says that an import has begun. `identity`: see `ImportSource.identity`."""

    version: int
    identity: bytes
    directory: str


def refuse_unfinished(content: ShardContent) -> None:
    """Refuse a shard of which only a part was imported.

    Raises:
        InvalidConfig
    """
    mark = _mark_of(content)
    if mark is not None:
        raise InvalidConfig(
            f"the import of {mark.directory} into this cluster was begun and is not finished; "
            f"run `sparrow cluster import {mark.directory}` again, or give the brokers another database "
            "and another prefix"
        )


class _ImportedLog:
    """A log of the cluster while it is filled: see `CommittedLog`."""

    def __init__(self, log: PartitionLog, state: LogState) -> None:
        self.log = log
        self.entry = state.entry
        self.is_stored = state.is_stored
        start = state.entry.start if state.is_stored else log.start_offset
        self.cursor = state.pieces[-1].end if state.pieces else start
        self.run: RunBuilder | None = None
        """The run to which batches are added."""

    def committed(self, run: LogRun, payload: CommitPayload) -> None:
        """A run is kept."""

    def replaced(self, runs: Sequence[LogRun], payload: CommitPayload) -> None:
        """An import replaces nothing."""

    def uncommitted(self) -> None:
        """A commit failed, and the import ends."""


class DirectoryImport:
    """One import, from `run`. Loop thread only.

    Args:
        connect: opens one more connection to the ledger.
        progress: see `Progress`.
    """

    def __init__(
        self,
        source: ImportSource,
        ledger: Ledger,
        objects: Objects,
        *,
        connect: Callable[[], Ledger],
        progress: Progress = lambda *_: None,
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._objects = objects
        self._connect = connect
        self._progress = progress
        self._ownership = Ownership(ledger, {"import": source.directory})
        self._committer: ShardCommitter
        self._next_number = 1
        self._runs: list[tuple[CommittedLog, RunBuilder, bool]] = []
        self._rows: list[EntryRow] = []
        self._open_bytes = 0
        self._pending: list[asyncio.Future[None]] = []
        self._copied = 0

    async def run(self) -> ImportResult:
        """Copy everything, check it, and let the cluster go.

        Raises:
            InvalidConfig: the cluster is not empty, or another import was begun there.
            Unavailable: brokers of the cluster run, or an engine does not answer; run it again.
            CorruptStoredBatch, StorageFailed: the source cannot be read.
        """
        await self._refuse_brokers()
        await self._ownership.join()
        try:
            taken = await self._take()
            content = await self._ledger.load(0)
            self._refuse_other_content(content)
            result = await self._import(taken, content)
            await self._ownership.release()
        finally:
            await self._ownership.leave()
        return result

    async def _refuse_brokers(self) -> None:
        status = await self._ledger.status()
        running = standbys(status, None)
        if running:
            names = ", ".join(f"node {node.id} ({', '.join(node.addresses.values())})" for node in running)
            raise Unavailable(
                f"brokers of this cluster run: {names}; stop them, and import into the empty cluster then"
            )

    async def _take(self) -> Taken:
        try:
            async with asyncio.timeout(TAKE_S):
                return await self._ownership.stand_by()
        except TimeoutError:
            raise Unavailable(
                "another broker took the cluster, or its lease does not end; stop all brokers "
                "(`sparrow cluster status` shows them), and run the import again"
            ) from None

    def _refuse_other_content(self, content: ShardContent) -> None:
        mark = _mark_of(content)
        if mark is not None:
            if mark.identity != self._source.identity:
                raise InvalidConfig(
                    f"the import of {mark.directory}, which has other data, was begun in this cluster and is "
                    "not finished; run that one again, or give another database and another prefix"
                )
            return
        kinds = {each.kind[1:].decode() for each in content.entries if each.kind[:1] == PREFIX}
        logs = sum(each.kind == LOG_KIND for each in content.entries)
        if content.wal or logs or kinds - _FRESH_KINDS:
            raise InvalidConfig(
                f"the cluster at {self._ledger.location} is not empty ({logs} logs, "
                f"{len(content.entries)} entries); import into an empty one: another database and prefix"
            )

    async def _import(self, taken: Taken, content: ShardContent) -> ImportResult:
        cache = PayloadCache(0, self._ledger, self._objects, self._connect, 1)
        self._committer = ShardCommitter(
            self._ledger,
            self._objects,
            cache,
            SystemClock(),
            shard=0,
            epoch=taken.epoch,
            seq=taken.seq,
            retake=self._ownership.retake,
            when_lost=lambda error: _LOG.error("the import ends: %s", error.text),
            options=CommitOptions(inline_bytes=INLINE_BYTES, inline_after_s=OUTAGE_S, linger_s=0.0),
        )
        source = self._source
        try:
            mark = UnfinishedImport(1, source.identity, source.directory)
            await self._write([EntryRow(IMPORT_KIND, b"", msgspec.msgpack.encode(mark), 1)], [])
            logs = self._logs_of(content)
            for each in logs:
                await self._copy(each)
            await self._flush()
            await self._settle(0)
            await self._write_entries(logs, content)
            result = await check_import(source, self._ledger, self._objects, self._progress)
            clean = [EntryRow(CLEAN_KIND, b"", b"", 1)] if source.is_clean else []
            await self._write(clean, [(IMPORT_KIND, b"")])
        finally:
            await self._committer.close()
            await cache.close()
        return result

    def _logs_of(self, content: ShardContent) -> list[_ImportedLog]:
        """Return the logs of the source, as far as the ledger has them."""
        loaded = load_logs(content)
        self._next_number = loaded.next_number
        found = []
        for log in self._source.logs:
            state = loaded.states.get(log.id)
            if state is None:
                state = LogState(self._new_entry(log.id, log.start_offset))
            elif state.damage is not None:
                raise InvalidConfig(
                    f"{state.damage.sentence}; the import cannot go on: give another database and prefix"
                )
            found.append(_ImportedLog(log, state))
        return found

    def _new_entry(self, log_id: LogId, start: int) -> LogEntry:
        number, self._next_number = self._next_number, self._next_number + 1
        return LogEntry(ENTRY_VERSION, number, log_id.topic, log_id.topic_id.bytes, log_id.partition, start)

    # ── batches ──

    async def _copy(self, target: _ImportedLog) -> None:
        """Copy the batches of one log that the ledger has not got."""
        log = target.log
        self._copied += max(log.size_bytes, 0) if target.cursor >= log.end_offset else 0
        if target.cursor > log.end_offset:
            raise InvalidConfig(
                f"{log.id} ends at offset {log.end_offset}, and more than that was imported before: the "
                "directory is another copy of these data; give another database and prefix"
            )
        if not target.is_stored:
            self._rows += [log_row(target.entry), self._number_row()]
        offset = max(target.cursor, log.start_offset)
        while offset < log.end_offset:
            batches = await self._source.read(log, offset)
            if not batches:
                break
            for header, data in batches:
                if header.next_offset <= target.cursor:
                    continue
                run = self._run_of(
                    target, header.base_offset, header.size_bytes, header.last_offset_delta + 1
                )
                run.add_stamped(header, bytes(data[:STAMP_BYTES]), data, header.base_offset)
                target.cursor = header.next_offset
                self._open_bytes += header.size_bytes
                self._copied += header.size_bytes
                if self._open_bytes >= OBJECT_BYTES:
                    await self._flush()
                    target.run = None
            offset = batches[-1][0].next_offset
        self._finish(target)

    def _run_of(self, target: _ImportedLog, base: int, size_bytes: int, offsets: int) -> RunBuilder:
        """Return the run that takes the next batch. Runs meet, also where compaction left holes."""
        run = target.run
        if run is not None and not run.is_full(size_bytes, run.end + offsets):
            return run
        if run is not None:
            run.end = base
            target.cursor = base
        if base - target.cursor > MAX_HOLE:  # more than the places inside of a run can say
            self._begin(target, target.cursor).end = base
            target.cursor = base
        return self._begin(target, min(target.cursor, base))

    def _begin(self, target: _ImportedLog, base: int) -> RunBuilder:
        run = target.run = RunBuilder(target.entry.number, base, INDEX_INTERVAL_BYTES)
        self._runs.append((target, run, False))
        return run

    def _finish(self, target: _ImportedLog) -> None:
        """Let the last run end where the log ends."""
        end = target.log.end_offset
        if target.cursor < end:
            run = target.run or self._begin(target, target.cursor)
            run.end = target.cursor = end
        target.run = None

    def _number_row(self) -> EntryRow:
        return EntryRow(NUMBER_KIND, b"", self._next_number.to_bytes(8, "big"), 1)

    async def _flush(self) -> None:
        """Commit what was read, while the next is read."""
        runs, rows = self._runs, self._rows
        if not runs and not rows:
            return
        await self._settle(IN_FLIGHT - 1)
        size, self._open_bytes, self._runs, self._rows = self._open_bytes, 0, [], []
        group = self._committer.admit_batches(size)
        group.runs += runs
        group.is_object |= size > INLINE_BYTES
        for row in rows:
            group.entries[row.kind, row.key] = row
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.settlements.append(settle_future(done, None))
        self._pending.append(done)

    async def _settle(self, left: int) -> None:
        """Wait until at most `left` commits are under way.

        Raises:
            ObjectsUnavailable: the object store is away; run the import again.
        """
        while len(self._pending) > left:
            await self._pending.pop(0)
            self._progress("copied", self._copied, self._source.size_bytes)
        if self._committer.objects_failure is not None:
            raise ObjectsUnavailable(f"{self._committer.objects_failure.text}; run the import again then")

    # ── entries ──

    async def _write_entries(self, logs: Sequence[_ImportedLog], content: ShardContent) -> None:
        """Write all entries, and remove those that the source does not have (any more)."""
        rows = [
            EntryRow(PREFIX + each.kind.encode(), each.key.encode(), each.value, each.version)
            for each in self._source.entries
        ]
        for each in logs:
            log = each.log
            changes = {"start": log.start_offset, "end": log.end_offset}
            rows.append(log_row(msgspec.structs.replace(each.entry, **changes)))
            offset, state = log.saved_state()
            rows.append(state_row(each.entry, StateEntry(ENTRY_VERSION, offset, state)))
        wanted = {(row.kind, row.key) for row in rows}
        gone = [
            (row.kind, row.key)
            for row in content.entries
            if (row.kind, row.key) not in wanted
            and (row.kind[:1] == PREFIX or row.kind in (LOG_KIND, STATE_KIND))
        ]
        while rows or gone:
            size, count = 0, 0
            while count < len(rows) and size < ENTRIES_BYTES:
                size += len(rows[count].value) + len(rows[count].key)
                count += 1
            await self._write(rows[:count], gone)
            rows, gone = rows[count:], []

    async def _write(self, puts: Sequence[EntryRow], deletes: Sequence[tuple[bytes, bytes]]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committer.add_entries(puts, deletes, settle_future(done, None))
        await done


def _mark_of(content: ShardContent) -> UnfinishedImport | None:
    row = next((each for each in content.entries if each.kind == IMPORT_KIND), None)
    return None if row is None else msgspec.msgpack.decode(row.value, type=UnfinishedImport)
