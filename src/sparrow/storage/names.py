"""The names of the storage's files and directories, which are Kafka's.

<data>/format, .lock, .clean                 see `directory`
<data>/journal/0, /1                         see `local_journal`
<data>/logs/<topic>-<partition>/             one log
    00000000000000000042.log                 segment whose first offset is 42 (or later)
    00000000000000000042.index, .timeindex   its sparse indexes
    partition.metadata                       the topic's id
    checkpoint                               see `checkpoint`
    sync-failed                              empty, see `durability`
    <42>-<99>.swap, <42>*.cleaned            a compaction under way, see `cleaner`
    <42>.log.dropped                         retention on a full disk, see `maintenance`
<data>/logs/.recovery-points                 see `recovery_points`
<data>/logs/.deleted/<topic id>-<partition>/ a log that is being removed
"""

from __future__ import annotations

import base64
import binascii
import uuid

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LOGS_DIRECTORY = "logs"
JOURNAL_DIRECTORY = "journal"
DELETED_DIRECTORY = ".deleted"
STRAY_DIRECTORY = ".stray"
METADATA_FILE = "partition.metadata"
CHECKPOINT_FILE = "checkpoint"
FAILED_SYNC_FILE = "sync-failed"
POINTS_FILE = ".recovery-points"
DROPPED = ".dropped"
"""Suffix of the last segment that retention drops on a full disk, before the checkpoint says so."""

_DIGITS = 20


def segment_stem(base_offset: int) -> str:
    """Return `00000000000000000042` for 42."""
    return f"{base_offset:0{_DIGITS}d}"


def swap_name(base_offset: int, end_offset: int) -> str:
    """Return the name of the compacted file that replaces all segments whose base offset is in
    [base_offset, end_offset).
    """
    return f"{segment_stem(base_offset)}-{segment_stem(end_offset)}{SWAP}"


def maybe_segment_base(name: str, suffix: str = LOG) -> int | None:
    """Return the base offset in a segment file's name; None for another file's."""
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and len(stem) == _DIGITS and stem.isdecimal() else None


def maybe_swap_range(name: str) -> tuple[int, int] | None:
    """Return the offsets in a name made by `swap_name`; None for another file's."""
    first, dash, second = name.removesuffix(SWAP).partition("-")
    if not name.endswith(SWAP) or not dash or not (first.isdecimal() and second.isdecimal()):
        return None
    return int(first), int(second)


def maybe_log_name(directory: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a log's directory name; None if it is not one."""
    topic, dash, partition = directory.rpartition("-")
    return (topic, int(partition)) if topic and dash and partition.isdecimal() else None


def metadata_text(topic_id: uuid.UUID) -> bytes:
    """Return the content of `partition.metadata`, as Kafka writes it: the id in base64url, 22
    characters.
    """
    encoded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=")
    return b"version: 0\ntopic_id: " + encoded


def maybe_topic_id(metadata: bytes) -> uuid.UUID | None:
    """Return the topic's id in a `partition.metadata`; None if the content is not one."""
    for line in metadata.splitlines():
        key, _, value = line.partition(b": ")
        if key == b"topic_id":
            try:
                return uuid.UUID(bytes=base64.b64decode(value.strip() + b"==", altchars=b"-_", validate=True))
            except (binascii.Error, ValueError):
                return None
    return None
