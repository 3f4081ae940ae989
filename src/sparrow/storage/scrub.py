"""The search for bytes that rotted in a segment: every batch is read and checked, a few at a time.

`SegmentCheck` is used by the broker's scrubber, at a bounded rate, and by `sparrow doctor --all`;
both describe what they find with `Damage.sentence`. It continues behind a damaged batch whose
length is plausible; else the rest of the segment is damaged.

`find_unreadable` checks only headers, as the start does when it folds them into the producers'
state: there an unreadable header closes the partition.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from sparrow.records.batch import HEADER_BYTES, parse_header
from sparrow.storage import walk
from sparrow.storage.damage import Damage
from sparrow.storage.filesystem import naming

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.storage.filesystem import FileSystem

_ROTTEN = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
"""Errors by which the device reports that the bytes are damaged."""
_AT_ONCE = 64 << 20
"""Bytes that are checked without a break when nothing else waits."""


class ScrubExtent(NamedTuple):
    """The part of one segment that is to be checked."""

    path: str
    """Path of its `.log` file."""
    base_offset: int
    end_offset: int
    size: int
    """Bytes."""
    has_holes: bool
    """True if it may have been compacted, so that offsets may be missing."""


class SegmentCheck:
    """One pass over one segment. Blocking; one thread at a time.

    Args:
        log: topic and partition, for messages.
        headers_only: skip the records; what is found closes the partition.
    """

    def __init__(self, fs: FileSystem, log: str, segment: ScrubExtent, *, headers_only: bool = False) -> None:
        self._fs = fs
        self._log = log
        self._path = segment.path
        self._end_offset = segment.end_offset
        self._size = segment.size
        self._holes_until = segment.end_offset if segment.has_holes else -1
        self._headers_only = headers_only
        self._position = 0
        self._next_offset = segment.base_offset
        self.damages: list[Damage] = []
        self.whole: list[tuple[int, int]] = []
        """The undamaged parts of the file: (first position, end)."""

    @property
    def is_done(self) -> bool:
        """True if the end of the segment was reached."""
        return self._position >= self._size

    def step(self, max_bytes: int) -> int:
        """Check about `max_bytes` more. Return how many bytes were checked.

        Raises:
            OSError: the file cannot be read.
        """
        begun = self._position
        try:
            with naming(self._path):
                self._step(max_bytes)
        except OSError as error:
            if error.errno not in _ROTTEN:
                raise
            self._damaged(error.strerror or str(error), self._next_offset, self._end_offset)
            self._position = self._size
        return self._position - begun

    def _step(self, max_bytes: int) -> None:
        begun = self._position
        fd = self._fs.open(self._path)
        try:
            found = walk.validate(
                self._fs,
                fd,
                start=begun,
                size=self._size,
                next_offset=self._next_offset,
                add=lambda *_: None,
                max_base_offset=self._holes_until,
                until=begun + max_bytes,
                headers_only=self._headers_only,
            )
            if found.position > begun:
                self.whole.append((begun, found.position))
            self._position, self._next_offset = found.position, found.next_offset
            if found.damage:
                self._pass_over(fd, found.damage)
        finally:
            self._fs.close(fd)

    def _pass_over(self, fd: int, problem: str) -> None:
        """Record a damaged batch and continue behind it, if its header says where that is."""
        first, position = self._next_offset, self._position
        self._position, self._next_offset = self._size, self._end_offset
        head = self._fs.read_at(fd, HEADER_BYTES, position)
        if len(head) == HEADER_BYTES:
            header = parse_header(head)
            end = position + header.size_bytes
            is_plausible = (
                header.batch_length >= walk.MIN_LENGTH
                and header.last_offset_delta >= 0
                and first + header.last_offset_delta < self._end_offset
                and end <= self._size
            )
            if is_plausible and self._begins_batch(fd, end, first + header.last_offset_delta + 1):
                self._position, self._next_offset = end, first + header.last_offset_delta + 1
        self._damaged(f"at position {position}: {problem}", first, self._next_offset)

    def _damaged(self, problem: str, first: int, end: int) -> None:
        damage = Damage(self._log, self._path, problem, first, end, closes=self._headers_only, is_there=True)
        self.damages.append(damage)

    def _begins_batch(self, fd: int, position: int, offset: int) -> bool:
        if position == self._size:
            return True
        head = self._fs.read_at(fd, HEADER_BYTES, position)
        return (
            len(head) == HEADER_BYTES
            and parse_header(head).magic == walk.MAGIC
            and offset <= parse_header(head).base_offset <= max(offset, self._holes_until)
        )


def find_unreadable(fs: FileSystem, log: str, segments: Iterable[ScrubExtent], offset: int) -> list[Damage]:
    """Return the places from `offset` on where headers of batches are unreadable. Blocking.

    Raises:
        OSError: a file cannot be read.
    """
    found: list[Damage] = []
    for each in segments:
        if each.end_offset > offset:
            check = SegmentCheck(fs, log, each, headers_only=True)
            while not check.is_done:
                check.step(_AT_ONCE)
            found += [damage for damage in check.damages if damage.end > offset]
    return found
