"""The entries that a log has in the ledger beside its runs: its identity with its bounds, the
caller's last checkpoint, and where epochs begin. A log that was never written to has none.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from sparrow.base.errors import NewerFormat
from sparrow.cluster.errors import LedgerRefused
from sparrow.cluster.ledger import EntryRow

T = TypeVar("T")
LOG_KIND: Final = b"L"
STATE_KIND: Final = b"S"
EPOCHS_KIND: Final = b"E"
NUMBER_KIND: Final = b"N"
"""The number of the next new log."""
CLEAN_KIND: Final = b"C"
"""There while no owner has appended since the last one closed the shard."""
ENTRY_VERSION: Final = 1
_encode = msgspec.msgpack.Encoder().encode


class LogEntry(msgspec.Struct, array_like=True):
    """The identity of a log and its bounds, as an entry of the ledger.

    Attributes:
        number: the log's number in manifests.
        end: the log's end is not before it; the runs say more.
        clean_offset: everything before it was compacted.
    """

    version: int
    number: int
    topic: str
    topic_id: bytes
    partition: int
    start: int = 0
    end: int = 0
    clean_offset: int = 0


class StateEntry(msgspec.Struct, array_like=True):
    """The caller's last checkpoint, as an entry of the ledger."""

    version: int
    offset: int
    state: bytes


class EpochsEntry(msgspec.Struct, array_like=True):
    """(epoch, offset of its first batch) of each epoch, as an entry of the ledger."""

    version: int
    begins: list[tuple[int, int]]


def log_key(entry: LogEntry) -> bytes:
    """Return the key of a log's entries."""
    return entry.topic_id + entry.partition.to_bytes(4, "big")


def log_row(entry: LogEntry) -> EntryRow:
    """Return a log's entry for the ledger."""
    return EntryRow(LOG_KIND, log_key(entry), _encode(entry), 1)


def state_row(entry: LogEntry, state: StateEntry) -> EntryRow:
    """Return the checkpoint of a log for the ledger."""
    return EntryRow(STATE_KIND, log_key(entry), _encode(state), 1)


def epochs_row(entry: LogEntry, begins: list[tuple[int, int]]) -> EntryRow:
    """Return where the epochs of a log begin for the ledger."""
    return EntryRow(EPOCHS_KIND, log_key(entry), _encode(EpochsEntry(ENTRY_VERSION, begins)), 1)


def decode_entry(row: EntryRow, kind: type[T]) -> T:
    """Return a `LogEntry`, a `StateEntry` or an `EpochsEntry`.

    Raises:
        NewerFormat, LedgerRefused: it cannot be read.
    """
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
