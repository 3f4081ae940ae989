"""The manifest of an archive: what of which topic is in which files, to the offset and to the byte.

It is JSON (`_sparrow/manifest.json` in the archive's directory), written whole and put in place by a rename, so that there is always exactly one, the old
or the new. Files that it does not name are not part of the archive. A next run goes on where it ends; a replay checks the files against it.

Version 1. A reader refuses what is newer; a change of the form raises `VERSION` and reads the older forms on.
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
"""Of every file; the topic and the time are in its path."""


class Span(msgspec.Struct, frozen=True):
    """What a file has of one partition."""

    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    """Of keys and values."""


class ArchivedFile(msgspec.Struct, frozen=True):
    path: str
    """Relative to the archive's directory, with `/`."""
    topic: str
    rows: int
    size_bytes: int
    sha256: str
    partitions: dict[int, Span]

    @property
    def directory(self) -> str:
        """Of the file; "" is the archive's own."""
        return self.path.rpartition("/")[0]

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Files in this order have the records of each partition in theirs."""
        return tuple(sorted((number, span.first_offset) for number, span in self.partitions.items()))


class PartitionArchive(msgspec.Struct, frozen=True):
    first_offset: int
    """Where the archive began."""
    next_offset: int
    """Where the next run goes on."""
    last_offset: int = -1
    """Of the last record in the archive; -1: there is none."""
    rows: int = 0
    bytes: int = 0
    """Of keys and values."""


class Gap(msgspec.Struct, frozen=True):
    """Offsets that the broker had deleted before they were archived."""

    partition: int
    from_offset: int
    to_offset: int
    """The first one that was there again."""
    found: str

    @property
    def offsets(self) -> int:
        """How many."""
        return self.to_offset - self.from_offset


class TopicArchive(msgspec.Struct, frozen=True):
    id: str
    partitions: dict[int, PartitionArchive] = {}
    gaps: list[Gap] = []


class Manifest(msgspec.Struct, frozen=True):
    created: str
    updated: str
    by: str
    """What a directory holds: a month, day or hour, or all (`none`)."""
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
        """In all files."""
        return sum(file.rows for file in self.files)


def encode(manifest: Manifest) -> bytes:
    """The manifest as it is written."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(data: bytes, where: str) -> Manifest:
    """A manifest that was read from `where`.

    Raises:
        InvalidArgument: it is none, or of a newer version.
    """
    try:
        mark = msgspec.json.decode(data, type=_Mark)
        if mark.format != FORMAT:
            raise InvalidArgument(f"{where} is no manifest of an archive: its format is {mark.format!r}")
        if mark.version > VERSION:
            raise InvalidArgument(
                f"{where} has version {mark.version}; this Sparrow knows {VERSION}: use the newer one that wrote it"
            )
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"{where} is no manifest of an archive: {error}") from None
    for file in found.files:
        check_inside(file.path, where)
    return found


class _Mark(msgspec.Struct):
    format: str = ""
    version: int = 0


def check_inside(path: str, where: str) -> None:
    """A manifest names only what lies in its directory.

    Raises:
        InvalidArgument: the path leads out of it.
    """
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidArgument(f"{where} names the file {path!r}, which is not inside the archive")


def extended(
    topic: TopicArchive,
    files: Iterable[ArchivedFile],
    ranges: dict[int, tuple[int, int]],
    gaps: Iterable[Gap],
) -> TopicArchive:
    """What the archive of a topic is after a run.

    Args:
        topic: before the run.
        files: that the run made of this topic.
        ranges: what the run read: partition → [first, end).
        gaps: that the run found.
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
