"""The logs of a shard as the ledger has them. They are rebuilt from rows; no payload is read."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.cluster.log_entries import (
    CLEAN_KIND,
    ENTRY_VERSION,
    EPOCHS_KIND,
    LOG_KIND,
    NUMBER_KIND,
    STATE_KIND,
    EpochsEntry,
    LogEntry,
    StateEntry,
    decode_entry,
    log_key,
)
from sparrow.cluster.manifest import decode_manifest
from sparrow.cluster.payloads import CommitPayload
from sparrow.cluster.pieces import Piece, PieceList
from sparrow.storage.damage import Damage
from sparrow.storage.store import LogId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.cluster.ledger import EntryRow, ShardContent
    from sparrow.cluster.manifest import CommitManifest, LogRun


@dataclass(slots=True)
class LogState:
    """A log as the ledger has it.

    Attributes:
        epochs: (epoch, offset of its first batch) of each epoch.
        is_stored: the ledger has the entry.
        damage: the reason why it cannot be opened.
    """

    entry: LogEntry
    saved: StateEntry = field(default_factory=lambda: StateEntry(ENTRY_VERSION, 0, b""))
    pieces: PieceList = field(default_factory=PieceList)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    is_stored: bool = False
    damage: Damage | None = None


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
    epochs: dict[bytes, list[tuple[int, int]]] = {}
    for row in rows:
        if row.kind == LOG_KIND:
            entry = decode_entry(row, LogEntry)
            log_id = LogId(entry.topic, uuid.UUID(bytes=entry.topic_id), entry.partition)
            loaded.states[log_id] = LogState(entry, is_stored=True)
        elif row.kind == STATE_KIND:
            saved[row.key] = decode_entry(row, StateEntry)
        elif row.kind == EPOCHS_KIND:
            epochs[row.key] = decode_entry(row, EpochsEntry).begins
        elif row.kind == NUMBER_KIND:
            loaded.next_number = int.from_bytes(row.value, "big")
        elif row.kind == CLEAN_KIND:
            loaded.is_clean = True
    for state in loaded.states.values():
        state.saved = saved.get(log_key(state.entry), state.saved)
        state.epochs = epochs.get(log_key(state.entry), state.epochs)
    return loaded


def _add_runs(by_number: Mapping[int, LogState], manifest: CommitManifest, payload: CommitPayload) -> None:
    replacements: dict[int, list[LogRun]] = {}
    for run in manifest.runs:
        state = by_number.get(run.log)
        if state is None:
            continue  # its log was deleted
        if run.replaces:
            replacements.setdefault(run.log, []).append(run)
            continue
        if run.end > run.base:
            state.pieces.append(Piece(run, payload))
    for number, runs in replacements.items():
        by_number[number].pieces.replace(runs, payload)


def _finish(log_id: LogId, state: LogState) -> None:
    """Drop what is before the log's start, count the uses of payloads, find missing offsets."""
    entry = state.entry
    state.pieces = PieceList(piece for piece in state.pieces if piece.end > entry.start)
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
