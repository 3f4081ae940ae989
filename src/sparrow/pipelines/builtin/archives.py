"""`archive`: topics to partitioned Parquet with a manifest, incrementally and exactly once.

A run reads each partition from the offset where the manifest ends to the last committed offset at
the start of the run. Its tasks write files into the archive's staging directory; when all files
exist, the driver decides the change by a journal (`directory.py`), and only then are files and
manifest renamed into the archive. So a run counts as a whole or not at all, and the offsets that
the manifest names are in its files once, even if a process is killed at any point.

Offsets that retention deleted before they were archived are a gap: it is stored in the manifest and
reported with its offsets. The records cannot be recovered, so the archive continues after the gap.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import Conflict, InvalidArgument, SparrowError, StorageFailed
from sparrow.base.faults import suggestion
from sparrow.base.units import counted
from sparrow.pipelines.builtin.cluster import Cluster, Progress, quiet
from sparrow.pipelines.builtin.directory import STAGED_SUFFIX, ExchangeJournal, Move, TableDirectory
from sparrow.pipelines.builtin.manifest import (
    ArchivedFile,
    ArchiveGap,
    Manifest,
    TopicArchive,
    extended,
)
from sparrow.pipelines.builtin.topics import (
    SourceTopic,
    connected,
    count_of,
    offsets_at,
    read,
    topics_named,
)

if TYPE_CHECKING:
    from sparrow.spark.wire.session import Session

COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
STRETCHES: Final = ("month", "day", "hour", "none")


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """Result of a run for one topic."""

    topic: str
    rows: int
    files: int
    size_bytes: int
    gaps: tuple[ArchiveGap, ...] = ()

    @property
    def lost(self) -> int:
        """Return the number of offsets that were deleted before this run."""
        return sum(gap.offsets for gap in self.gaps)


@dataclass(frozen=True, slots=True)
class Archived:
    """Result of a run of `archive`."""

    directory: str
    topics: tuple[ArchivedTopic, ...]
    run: str = ""
    """The run's id; "" if there was nothing to do."""

    @property
    def rows(self) -> int:
        """Return the rows of all topics."""
        return sum(topic.rows for topic in self.topics)

    @property
    def lost(self) -> int:
        """Return the number of offsets of all topics that were deleted before this run."""
        return sum(topic.lost for topic in self.topics)


@dataclass(frozen=True, slots=True)
class _Plan:
    manifest: Manifest
    topics: list[SourceTopic]
    ranges: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    gaps: dict[str, list[ArchiveGap]] = field(default_factory=dict)


def archive(
    topics: str | Sequence[str],
    to: str,
    *,
    by: str | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    compression: str | None = None,
    connection: Mapping[str, str] | None = None,
    spark: Any = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    progress: Progress = quiet,
) -> Archived:
    """Bring an archive up to date with its topics.

    Args:
        topics: names; `*` and `?` are wildcards.
        to: the archive's directory, the same for the driver and the executors; made if it is
            missing.
        by: the period of one directory: a "month", "day" or "hour" of the records' timestamps
            (UTC), or "none" for all. An archive keeps its first value; the default is "day".
        since_ms: start time of partitions that are not in the archive yet; None: their beginning.
        until_ms: only records before the first record of this time.
        compression: of the files: zstd, snappy, gzip, lz4 or none.
        connection: options of `format("sparrow")` for the connection to the broker.
        spark, master, remote, conf: the session, as for `sparrow.spark.session`.
        progress: called with a sentence at each step.

    Raises:
        UnknownTopic: there is no such topic.
        InvalidArgument: an option is wrong, or the directory is not an archive.
        Conflict: another process works in it, or a topic was deleted and made again since the last
            run.
    """
    _check(by, compression)
    directory = _opened(to)
    names = [topics] if isinstance(topics, str) else list(topics)
    cluster = Cluster(spark, master, remote, conf or {})
    with connected(connection or {}) as session:
        found = topics_named(session, names)
        with directory.exclusive():
            before = _manifest(directory, session, by, compression)
            plan = _planned(session, found, before, since_ms, until_ms)
            if not count_of(plan.ranges) and not any(plan.gaps.values()):
                return Archived(directory.root, tuple(ArchivedTopic(each.name, 0, 0, 0) for each in found))
            run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
            progress(
                f"archiving {counted(count_of(plan.ranges), 'offset')} of {counted(len(found), 'topic')}"
            )
            files = _written(directory, run, plan, connection or {}, cluster) if count_of(plan.ranges) else []
            _check_files(directory, run, plan, files)
            directory.commit(_journal(directory, run, plan, files))
    return Archived(directory.root, tuple(_outcomes(plan, files)), run)


def _check(by: str | None, compression: str | None) -> None:
    for name, given, known in (("by", by, STRETCHES), ("compression", compression, COMPRESSIONS)):
        if given is not None and given not in known:
            raise InvalidArgument(
                f"{name} is {given!r}{suggestion(given, known) or '.'} It is one of {', '.join(known)}."
            )


def _opened(to: str) -> TableDirectory:
    if "://" in to:
        raise InvalidArgument(
            f"{to} is a URL; an archive is a directory that driver and executors both see, such as "
            "a shared mount"
        )
    if not to:
        raise InvalidArgument("the archive's directory has no name")
    directory = TableDirectory(to)
    if os.path.isfile(directory.root):
        raise InvalidArgument(f"{to} is a file; an archive is a directory")
    if os.path.isdir(directory.root) and not directory.is_archive:
        strange = [name for name in os.listdir(directory.root) if not name.startswith(("_", "."))]
        if strange:
            raise InvalidArgument(
                f"{to} is no archive, and has {strange[0]!r} in it; name an empty directory or one "
                "that `archive` made"
            )
    return directory


def _manifest(
    directory: TableDirectory, session: Session, by: str | None, compression: str | None
) -> Manifest:
    broker = session.call("broker.describe", {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before = directory.maybe_manifest()
    if before is None:
        before = Manifest(
            now, now, by or "day", compression or "zstd", broker["cluster_id"], broker["version"]
        )
    if by not in (None, before.by):
        raise InvalidArgument(
            f"{directory.root} is archived by {before.by}, and stays so; leave by={by!r} out, or "
            "begin another directory"
        )
    if before.cluster_id != broker["cluster_id"]:
        raise Conflict(
            f"{directory.root} is an archive of the broker {before.cluster_id}, this one is "
            f"{broker['cluster_id']};"
            " archive it into another directory"
        )
    return msgspec.structs.replace(
        before, updated=now, compression=compression or before.compression, broker_version=broker["version"]
    )


# ── what to read ──────────────────────────────────────────────────────────────────────────────────


def _planned(
    session: Session, topics: list[SourceTopic], before: Manifest, since_ms: int | None, until_ms: int | None
) -> _Plan:
    plan = _Plan(before, topics)
    for topic in topics:
        known = before.topics.get(topic.name)
        if known is not None and known.id != topic.id:
            raise Conflict(
                f"the topic {topic.name!r} was deleted and made again: the archive has the one "
                f"with id {known.id}, the broker has"
                f" {topic.id}, and its offsets begin again; archive it into another directory"
            )
        check_not_behind(topic, known)
        firsts = offsets_at(session, topic, since_ms) if since_ms is not None else {}
        lasts = offsets_at(session, topic, until_ms) if until_ms is not None else dict(topic.ends)
        plan.ranges[topic.name], plan.gaps[topic.name] = planned_topic(topic, known, firsts, lasts)
    return plan


def check_not_behind(topic: SourceTopic, known: TopicArchive | None) -> None:
    """Check that the broker still has all archived offsets. Otherwise it would give its next
    records offsets that the archive already has.

    Raises:
        Conflict: it has fewer, as after a restored copy of its data.
    """
    for number, before in known.partitions.items() if known else ():
        end = topic.ends.get(number, 0)
        if end < before.next_offset:
            raise Conflict(
                f"{topic.name}-{number} ends at {end}, and the archive has it up to "
                f"{before.next_offset}: the broker has lost records, or is an"
                " older copy; archive it into another directory"
            )


def planned_topic(
    topic: SourceTopic, known: TopicArchive | None, firsts: Mapping[int, int], lasts: Mapping[int, int]
) -> tuple[dict[int, tuple[int, int]], list[ArchiveGap]]:
    """Return the offsets to read of a topic, per partition [first, end), and the gaps.

    Args:
        topic: the topic's state in the broker.
        known: the topic's state in the archive.
        firsts: where partitions begin that the archive does not have.
        lasts: where partitions end.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    ranges: dict[int, tuple[int, int]] = {}
    gaps: list[ArchiveGap] = []
    for number, start in topic.starts.items():
        before = known.partitions.get(number) if known else None
        first = before.next_offset if before else max(start, firsts.get(number, start))
        if first < start:
            gaps.append(ArchiveGap(number, first, start, now))
            first = start
        end = min(topic.ends[number], lasts.get(number, topic.ends[number]))
        ranges[number] = (first, max(first, end))
    return ranges, gaps


# ── what is written ───────────────────────────────────────────────────────────────────────────────


def _written(
    directory: TableDirectory, run: str, plan: _Plan, connection: Mapping[str, str], cluster: Cluster
) -> list[ArchivedFile]:
    from sparrow.pipelines.builtin.archivetask import ArchiveTask, files_of
    from sparrow.spark.plain_errors import with_plain_errors

    root = directory.path(directory.staged(run))
    os.makedirs(root)
    task = (root, plan.manifest.by, plan.manifest.compression, STAGED_SUFFIX)

    @with_plain_errors
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        yield from ArchiveTask(*task).run(batches)

    with cluster.session("sparrow-archive") as spark:
        records = read(spark, connection, plan.ranges, with_headers=True)
        return files_of(records.mapInArrow(write, "file string").collect())


def _check_files(directory: TableDirectory, run: str, plan: _Plan, files: list[ArchivedFile]) -> None:
    """Check that the files of the tasks exist and have only requested offsets: a wrong manifest is
    worse than none.
    """
    for file in files:
        path = f"{directory.path(directory.staged(run))}/{file.path}{STAGED_SUFFIX}"
        if not os.path.exists(path) or os.path.getsize(path) != file.size_bytes:
            raise StorageFailed(
                f"an executor wrote {path}, and it is not there for the driver; the archive has to "
                "be a directory that all of them share"
            )
        for number, span in file.partitions.items():
            first, end = plan.ranges[file.topic][number]
            if span.first_offset < first or span.last_offset >= end:
                raise SparrowError(
                    f"{file.topic}-{number} was read from {span.first_offset} to "
                    f"{span.last_offset}, not within [{first}, {end}); nothing was archived"
                )


def _journal(directory: TableDirectory, run: str, plan: _Plan, files: list[ArchivedFile]) -> ExchangeJournal:
    staged = directory.staged(run)
    topics = dict(plan.manifest.topics)
    for topic in plan.topics:
        own = [file for file in files if file.topic == topic.name]
        known = topics.get(topic.name, TopicArchive(topic.id))
        topics[topic.name] = extended(known, own, plan.ranges[topic.name], plan.gaps[topic.name])
    manifest = msgspec.structs.replace(plan.manifest, topics=topics, files=[*plan.manifest.files, *files])
    moves = [Move(f"{staged}/{file.path}{STAGED_SUFFIX}", file.path) for file in files]
    return ExchangeJournal(run, moves=moves, manifest=manifest)


def _outcomes(plan: _Plan, files: list[ArchivedFile]) -> Iterator[ArchivedTopic]:
    for topic in plan.topics:
        own = [file for file in files if file.topic == topic.name]
        yield ArchivedTopic(
            topic.name,
            sum(file.rows for file in own),
            len(own),
            sum(file.size_bytes for file in own),
            tuple(plan.gaps[topic.name]),
        )
