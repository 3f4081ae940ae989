"""The manifest of a commit: which logs have which offsets where in its payload.

A manifest is a msgpack list, and grows at its end:

    [version, runs, first journal record, [journal record, …]]

A *run* is neighbouring batches of one log, back to back:

    [log, base offset, end offset, position, length, greatest timestamp (ms), points, producers,
     replaces]

`points` are places inside the run, for searches: pairs of 32-bit numbers (little-endian), the base
offset of a batch and its position, both relative to the run's. `producers` has what the state of
producers is rebuilt from without reading a payload: the headers of batches of producers, and whole
control batches, back to back, as they are in the log. A run that `replaces` takes the place of all
earlier runs of its log between its base and its end: that is how logs are merged, compacted, and
batches removed.

Batches lie in the payload as Kafka's files have them.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import NewerFormat
from sparrow.cluster.errors import LedgerRefused
from sparrow.records.batch import HEADER_BYTES, parse_header, stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparrow.records.batch import BatchHeader

VERSION: Final = 1
MAX_RUN_BYTES: Final = 1 << 20
"""Size at which a run ends; one batch may be larger."""
STAMP_BYTES: Final = 16
_POINT: Final = struct.Struct("<II")


class LogRun(msgspec.Struct, array_like=True, gc=False):
    """Neighbouring batches of one log. See the module's text."""

    log: int
    base: int
    end: int
    position: int
    length: int
    max_timestamp: int
    points: bytes = b""
    producers: bytes = b""
    replaces: bool = False


class CommitManifest(msgspec.Struct, array_like=True):
    """See the module's text."""

    version: int
    runs: list[LogRun]
    journal_first: int = 0
    journal: list[bytes] = []


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CommitManifest).decode


def encode_manifest(manifest: CommitManifest) -> bytes:
    """Return the bytes of a manifest."""
    return _encode(manifest)


def decode_manifest(data: bytes) -> CommitManifest:
    """Return a manifest.

    Raises:
        NewerFormat, LedgerRefused: it cannot be read.
    """
    try:
        manifest = _decode(data)
    except msgspec.DecodeError:
        raise LedgerRefused(
            "a manifest in the ledger cannot be read; restore PostgreSQL from a backup"
        ) from None
    if manifest.version > VERSION:
        raise NewerFormat(
            f"a manifest in the ledger has version {manifest.version}; start the later Sparrow that wrote it"
        )
    return manifest


class RunBuilder:
    """A run that batches are added to.

    Args:
        log: number of the log.
        base: offset of the first batch.
        interval_bytes: distance of points.
    """

    __slots__ = (
        "_interval_bytes",
        "_last_point",
        "_points",
        "_producers",
        "base",
        "data",
        "end",
        "log",
        "max_timestamp",
    )

    def __init__(self, log: int, base: int, interval_bytes: int) -> None:
        self.log = log
        self.base = base
        self.end = base
        self.data = bytearray()
        self.max_timestamp = -1
        self._interval_bytes = interval_bytes
        self._last_point = 0
        self._points = array("I")
        self._producers = bytearray()

    def add(self, header: BatchHeader, data: memoryview, base: int, leader_epoch: int) -> None:
        """Append a batch, stamped with its base offset and the leader epoch."""
        stamped = stamp(header, base, leader_epoch)
        self.add_stamped(header, stamped, data, base)

    def add_stamped(self, header: BatchHeader, stamped: bytes, data: memoryview, base: int) -> None:
        """Append a batch; `stamped` are its first 16 bytes, `data` all of them."""
        self._note_start(base, len(self.data))
        self.data += stamped
        self.data += data[STAMP_BYTES:]
        self.end = base + header.last_offset_delta + 1
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        if header.producer_id >= 0 or header.is_control:
            self._producers += stamped
            self._producers += data[STAMP_BYTES:] if header.is_control else data[STAMP_BYTES:HEADER_BYTES]

    def add_run(self, run: LogRun, data: memoryview, starts: Iterable[tuple[int, int]]) -> None:
        """Append all batches of another run of the log, as they are.

        Args:
            starts: (base offset, position in `data`) of each.
        """
        begin = len(self.data)
        for base, position in starts:
            self._note_start(base, begin + position)
        self.data += data
        self.end = run.end
        self.max_timestamp = max(self.max_timestamp, run.max_timestamp)
        self._producers += run.producers

    def _note_start(self, base: int, position: int) -> None:
        """Note that a batch begins here: a point, if the last one is far enough away."""
        if position - self._last_point > self._interval_bytes:
            self._points.append(base - self.base)
            self._points.append(position)
            self._last_point = position

    def is_full(self, size_bytes: int, end: int) -> bool:
        """Return True if so many bytes with offsets before `end` begin a new run."""
        is_too_wide = end - self.base > 0xFFFFFFFF
        return bool(self.data) and (len(self.data) + size_bytes > MAX_RUN_BYTES or is_too_wide)

    def build(self, position: int, *, replaces: bool = False) -> LogRun:
        """Return the run, which lies at `position` of a payload."""
        return LogRun(
            self.log,
            self.base,
            self.end,
            position,
            len(self.data),
            self.max_timestamp,
            self._points.tobytes(),
            bytes(self._producers),
            replaces,
        )


def points_of(run: LogRun) -> Iterator[tuple[int, int]]:
    """Iterate over (base offset, position in the run) of the run's first batch and its points."""
    yield run.base, 0
    for offset, position in _POINT.iter_unpack(run.points):
        yield run.base + offset, position


def producer_batches(run: LogRun) -> Iterator[tuple[BatchHeader, bytes]]:
    """Iterate over the headers of batches of producers; with the whole batch if it is a control
    batch, else with b"".
    """
    data, position = run.producers, 0
    while position < len(data):
        header = parse_header(data, position)
        if header.is_control:
            yield header, data[position : position + header.size_bytes]
            position += header.size_bytes
        else:
            yield header, b""
            position += HEADER_BYTES
