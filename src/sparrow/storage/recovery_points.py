"""The second copy of all logs' recovery points: one file beside the logs.

    <data>/logs/.recovery-points    a line per change: crc of the rest (8 hex digits), topic id,
                                    log, base64 of a checkpoint

The checkpoint in a log's directory is the first copy. This one knows of a log when its directory is
gone, or when its checkpoint is missing or damaged. A line has the checkpoint as `checkpoint`
encodes it, without the broker's state; `-` says that the log was deleted. The last good line of a
log counts; damaged ones are ignored.

Order: a line is written just before the checkpoint in the directory, when all that it vouches for
is on stable storage, and it is synced before any file leaves the log (retention, compaction,
deletion). A line lost in a power failure was only an advance, and the older line is
true, too: it vouches for less. So a crash alone never makes this file vouch for something that is
not there.

The file is rewritten when it is opened with damaged lines in it, or has grown to several times the
needed size.

Thread-safe. Blocking, except `get` and `known`.
"""

from __future__ import annotations

import base64
import dataclasses
import threading
import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import google_crc32c

from sparrow.storage import checkpoint as checkpoints
from sparrow.storage.filesystem import is_disk_full, read_file, replace_file, write_all
from sparrow.storage.store import LogId

if TYPE_CHECKING:
    from sparrow.storage.checkpoint import Checkpoint
    from sparrow.storage.filesystem import FileSystem

_DELETED = b"-"
SLACK_BYTES = 128 << 10
_OVERHEAD_BYTES = 100
"""Approximate size of a line's other fields."""


class RecoveryPoints:
    """The file of one store and its content."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Open the file. Raises OSError: it cannot be read or written."""
        self._fs = fs
        self._path = path
        self._lock = threading.Lock()
        self._known, damaged = _read(fs, path)
        self._live_bytes = sum(len(each) + _OVERHEAD_BYTES for each in self._known.values())
        self._fd = -1
        self._size = fs.size(path) or 0
        self._is_dirty = False
        if damaged or self._size > self._limit():
            self._rewrite()

    def get(self, log_id: LogId) -> Checkpoint | None:
        """Return the known checkpoint of a log, or None."""
        payload = self._known.get(log_id)
        return None if payload is None else _decode(payload, self._path)

    def known(self) -> list[LogId]:
        """Return every known log."""
        with self._lock:
            return list(self._known)

    def put(self, log_id: LogId, checkpoint: Checkpoint, *, sync: bool) -> None:
        """Record a checkpoint; `sync`: files are about to leave the log.

        Raises:
            OSError: the device refused. Without `sync` a full device is no error: the line before
                stays true.
        """
        payload = base64.b64encode(dataclasses.replace(checkpoint, state_offset=0, state=b"").encode())
        with self._lock:
            try:
                self._append(_line(log_id, payload))
            except OSError as error:
                if not is_disk_full(error):
                    raise
                if sync:
                    # The present line would become wrong; a short line that says nothing is better.
                    self._append(_line(log_id, _DELETED))
                    self._forget(log_id)
            else:
                self._replace(log_id, payload)
            if sync:
                self._sync()

    def _replace(self, log_id: LogId, payload: bytes) -> None:
        self._live_bytes += len(payload) + _OVERHEAD_BYTES
        self._forget(log_id)
        self._known[log_id] = payload

    def _forget(self, log_id: LogId) -> None:
        before = self._known.pop(log_id, None)
        if before is not None:
            self._live_bytes -= len(before) + _OVERHEAD_BYTES

    def remove(self, log_id: LogId) -> None:
        """Record that the log is about to be deleted. Raises OSError."""
        with self._lock:
            if log_id in self._known:
                self._append(_line(log_id, _DELETED))
                self._forget(log_id)
                self._sync()

    def close(self) -> None:
        """Sync and close. Raises OSError."""
        with self._lock:
            try:
                if self._is_dirty:
                    self._sync()
            finally:
                if self._fd >= 0:
                    self._fs.close(self._fd)
                    self._fd = -1

    def _append(self, line: bytes) -> None:
        if self._size + len(line) > self._limit():
            self._rewrite()
        if self._fd < 0:
            is_new = self._fs.size(self._path) is None
            self._fd = self._fs.open(self._path, write=True, create=True)
            if is_new:
                self._fs.sync_dir(self._path.rpartition("/")[0])
        # A partly written line is overwritten by the next.
        write_all(self._fs, self._fd, [line], self._size)
        self._size += len(line)
        self._is_dirty = True

    def _sync(self) -> None:
        self._fs.sync(self._fd)
        self._is_dirty = False

    def _limit(self) -> int:
        return SLACK_BYTES + 2 * self._live_bytes

    def _rewrite(self) -> None:
        data = b"".join(_line(log_id, payload) for log_id, payload in self._known.items())
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1
        replace_file(self._fs, self._path, data)
        self._size = len(data)
        self._is_dirty = False


def read_points(fs: FileSystem, path: str) -> tuple[dict[LogId, Checkpoint], int]:
    """Return the content of the file, and the number of its damaged lines. Changes nothing.
    Blocking.

    Raises:
        OSError: the file cannot be read.
        NewerFormat: a later Sparrow wrote it.
    """
    payloads, damaged = _read(fs, path)
    decoded = {log_id: _decode(payload, path) for log_id, payload in payloads.items()}
    return {log_id: each for log_id, each in decoded.items() if each is not None}, damaged


def _read(fs: FileSystem, path: str) -> tuple[dict[LogId, bytes], int]:
    known: dict[LogId, bytes] = {}
    damaged = 0
    data = read_file(fs, path) or b""
    for line in data.split(b"\n"):
        if not line:
            continue
        parsed = _parse(line)
        if parsed is None:
            damaged += 1
            continue
        log_id, payload = parsed
        known.pop(log_id, None)
        if payload != _DELETED:
            known[log_id] = payload
    return known, damaged or int(bool(data) and not data.endswith(b"\n"))


def _decode(payload: bytes, path: str) -> Checkpoint | None:
    return checkpoints.decode(base64.b64decode(payload), path)


def _line(log_id: LogId, payload: bytes) -> bytes:
    body = b"%s %s %d %s" % (
        log_id.topic_id.hex.encode(),
        quote(log_id.topic, safe="").encode(),
        log_id.partition,
        payload,
    )
    return b"%08x %s\n" % (google_crc32c.value(body), body)


def _parse(line: bytes) -> tuple[LogId, bytes] | None:
    crc, _, body = line.partition(b" ")
    try:
        if len(crc) != 8 or int(crc, 16) != google_crc32c.value(body):
            return None
        topic_id, topic, partition, payload = body.split(b" ")
        return LogId(unquote(topic.decode()), uuid.UUID(hex=topic_id.decode()), int(partition)), payload
    except ValueError:
        return None
