"""Manifest of an archive: the files of each topic, with their offsets and their hashes.

It is JSON (`_sparrow/manifest.json` in the archive's directory), written whole and replaced by a
rename, so that there is always exactly one, the old or the new. Files that it does not name are not
part of the archive. The next run continues where it ends; a replay checks the files against it.

This is version 1. A reader refuses newer versions; a change of the format increases `VERSION` and
still reads the older ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT: Final = "sparrow-archive"
VERSION: Final = 1
COLUMNS: Final = (
    "key binary",
    "value binary",
    "partition int",
    "offset bigint",
    "timestamp timestamp",
    "timestampType int",
    "headers array<struct<key: string, value: binary>>",
)
"""Columns of every file; the topic and the time are in its path."""


class OffsetSpan(msgspec.Struct, frozen=True):
    """Records of one partition in a file."""

    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    """Bytes of keys and values."""


class ArchivedFile(msgspec.Struct, frozen=True):
    path: str
    """Path relative to the archive's directory, with `/`."""
    topic: str
    rows: int
    size_bytes: int
    sha256: str
    partitions: dict[int, OffsetSpan]

    @property
    def directory(self) -> str:
        """Return the file's directory; "" is the archive's own."""
        return self.path.rpartition("/")[0]

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Return a sort key. In this order the files have the records of each partition in
        order.
        """
        return tuple(sorted((number, span.first_offset) for number, span in self.partitions.items()))


class PartitionArchive(msgspec.Struct, frozen=True):
    first_offset: int
    """The first archived offset."""
    next_offset: int
    """The first offset of the next run."""
    last_offset: int = -1
    """Offset of the last record in the archive; -1: there is none."""
    rows: int = 0
    bytes: int = 0
    """Bytes of keys and values."""


class ArchiveGap(msgspec.Struct, frozen=True):
    """Offsets that the broker had deleted before they were archived."""

    partition: int
    from_offset: int
    to_offset: int
    """The first offset after the gap."""
    found: str

    @property
    def offsets(self) -> int:
        """Return the number of offsets."""
        return self.to_offset - self.from_offset


class TopicArchive(msgspec.Struct, frozen=True):
    id: str
    partitions: dict[int, PartitionArchive] = {}
    gaps: list[ArchiveGap] = []


class Manifest(msgspec.Struct, frozen=True):
    created: str
    updated: str
    by: str
    """The period of one directory: a month, day or hour, or all (`none`)."""
    compression: str
    cluster_id: str = ""
    broker_version: str = ""
    columns: tuple[str, ...] = COLUMNS
    topics: dict[str, TopicArchive] = {}
    files: list[ArchivedFile] = []
    format: str = FORMAT
    version: int = VERSION

    @property
    def rows(self) -> int:
        """Return the rows in all files."""
        return sum(file.rows for file in self.files)


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(data: bytes, where: str) -> Manifest:
    """Decode a manifest that was read from `where`.

    Raises:
        InvalidArgument: it is not a manifest, or has a newer version.
    """
    try:
        declared = msgspec.json.decode(data, type=_Format)
        if declared.format != FORMAT:
            raise InvalidArgument(f"{where} is no manifest of an archive: its format is {declared.format!r}")
        if declared.version > VERSION:
            raise InvalidArgument(
                f"{where} has version {declared.version}; this Sparrow knows {VERSION}: use the newer "
                "one that wrote it"
            )
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"{where} is no manifest of an archive: {error}") from None
    for file in found.files:
        check_inside(file.path, where)
    return found


class _Format(msgspec.Struct):
    format: str = ""
    version: int = 0


def check_inside(path: str, where: str) -> None:
    """Check that a path of the manifest is inside its directory.

    Raises:
        InvalidArgument: the path leads out of it.
    """
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidArgument(f"{where} names the file {path!r}, which is not inside the archive")


def extended(
    topic: TopicArchive,
    files: Iterable[ArchivedFile],
    ranges: dict[int, tuple[int, int]],
    gaps: Iterable[ArchiveGap],
) -> TopicArchive:
    """Return the archive of a topic after a run.

    Args:
        topic: its state before the run.
        files: the run's files of this topic.
        ranges: the offsets that the run read: partition → [first, end).
        gaps: the gaps that the run found.
    """
    partitions = dict(topic.partitions)
    for number, (first, end) in ranges.items():
        before = partitions.get(number, PartitionArchive(first, first))
        partitions[number] = msgspec.structs.replace(before, next_offset=end)
    for file in files:
        for number, span in file.partitions.items():
            before = partitions[number]
            partitions[number] = msgspec.structs.replace(
                before,
                last_offset=max(before.last_offset, span.last_offset),
                rows=before.rows + span.rows,
                bytes=before.bytes + span.bytes,
            )
    return TopicArchive(topic.id, dict(sorted(partitions.items())), [*topic.gaps, *gaps])
