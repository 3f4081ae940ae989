"""`compact-table`: rewrites many small files as a few large ones.

A directory of Parquet files, an archive or not, is compacted directory by directory. Spark's tasks
write the new files, and a copy of the directory is made beside it in which they replace the small
ones (unchanged files are hard links). Then the two directories are exchanged in one step;
`directory.py` describes what readers see of that. The rows of new and old files are counted, and an
archive's hashes checked, before anything changes; its manifest is updated by the same journal.
Delta tables are compacted by their own library, as a transaction of the table. Iceberg's Python
library cannot compact, so such a table is refused.

A Spark stream lists its own files in `_spark_metadata`; replacing them would lose rows for Spark's
readers, so such a directory is refused.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import suggestion
from sparrow.base.units import counted, format_size
from sparrow.pipelines.builtin.cluster import Cluster, Progress, quiet
from sparrow.pipelines.builtin.directory import (
    STAGED_SUFFIX,
    STATE,
    Exchange,
    ExchangeJournal,
    TableDirectory,
    exchange_root,
    remove_leftovers,
    root_sibling,
)
from sparrow.pipelines.builtin.smallfiles import Done, MergeWork, SmallFile, grouped, merged
from sparrow.pipelines.builtin.tables import delta_table, format_of
from sparrow.pipelines.sparklist import LIST

if TYPE_CHECKING:
    from sparrow.pipelines.builtin.manifest import ArchivedFile, Manifest

DEFAULT_TARGET_BYTES: Final = 128 << 20
MIN_TARGET_BYTES: Final = 1 << 10
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
_MAX_TASKS: Final = 200


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a run of `compact_table`."""

    directory: str
    format: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int

    @property
    def has_changed(self) -> bool:
        """Return True if there was anything to do."""
        return self.files_before != self.files_after


def compact_table(
    directory: str,
    *,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    compression: str = "zstd",
    spark: Any = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    progress: Progress = quiet,
) -> Compacted:
    """Rewrite the small files of a table as a few large ones.

    Args:
        directory: an archive, a directory of Parquet files, or a Delta table.
        target_bytes: approximate size of a new file.
        compression: of new files.
        spark, master, remote, conf: the session, as for `sparrow.spark.session`.
        progress: called with a sentence at each step.

    Raises:
        InvalidArgument: the directory is not such a table, or cannot be compacted.
        Conflict: another process works in it.
        CorruptBatch: a file differs from the manifest; names it.
    """
    if target_bytes < MIN_TARGET_BYTES:
        raise InvalidArgument(f"the target size is {target_bytes} bytes; it is at least {MIN_TARGET_BYTES}")
    if compression not in COMPRESSIONS:
        raise InvalidArgument(
            f"compression is {compression!r}{suggestion(compression, COMPRESSIONS) or '.'} It is "
            f"one of {', '.join(COMPRESSIONS)}."
        )
    table = TableDirectory(directory)
    kind = "archive" if table.is_archive else format_of(directory)
    if kind == "delta":
        return _compact_delta(directory, target_bytes)
    _check_plain(directory, kind)
    cluster = Cluster(spark, master, remote, conf or {})
    with table.exclusive():
        remove_leftovers(table)
        return _compact(table, _Wish(kind, target_bytes, compression, cluster, progress))


def _check_plain(directory: str, kind: str) -> None:
    if kind == "iceberg":
        raise InvalidArgument(
            f"{directory} is an Iceberg table; PyIceberg cannot compact. Spark with Iceberg's JAR "
            "can: CALL system.rewrite_data_files"
        )
    if kind not in ("archive", "parquet") or not os.path.isdir(directory):
        raise InvalidArgument(
            f"{directory} is no directory of Parquet files ({kind}); only those are compacted"
        )
    if os.path.exists(os.path.join(directory, LIST)):
        raise InvalidArgument(
            f"{directory} is written by a Spark stream, whose readers go by the list in "
            f"{LIST}: files that are replaced would be lost"
            f" to them. When the stream has ended for good, delete {LIST} and compact; for a "
            "table that grows, use delta"
        )


# ── Parquet ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Wish:
    kind: str
    target_bytes: int
    compression: str
    cluster: Cluster
    progress: Progress


def _compact(table: TableDirectory, wish: _Wish) -> Compacted:
    manifest = table.maybe_manifest()
    files = dict(_archived(manifest)) if manifest else dict(_found(table))
    run = uuid.uuid4().hex[:12]
    work = [each for name, own in sorted(files.items()) for each in _work(table, run, name, own, wish)]
    sizes = [file.size_bytes for own in files.values() for file in own]
    before = Compacted(table.root, wish.kind, len(sizes), len(sizes), sum(sizes), sum(sizes))
    if not work:
        return before
    wish.progress(f"compacting {counted(sum(len(each.sources) for each in work), 'file')} into {len(work)}")
    done = _rewritten(work, wish.cluster)
    old_bytes = {file.path: file.size_bytes for own in files.values() for file in own}
    _put_in_place(table, run, manifest, done)
    saved = sum(len(each.sources) - 1 for each in done)
    change = sum(each.size_bytes - sum(old_bytes[path] for path in each.sources) for each in done)
    return Compacted(table.root, wish.kind, len(sizes), len(sizes) - saved, sum(sizes), sum(sizes) + change)


def _archived(manifest: Manifest) -> Iterator[tuple[str, list[SmallFile]]]:
    for directory in sorted({file.directory for file in manifest.files}):
        own = sorted(
            (file for file in manifest.files if file.directory == directory), key=lambda file: file.order
        )
        yield directory, [SmallFile(file.path, file.size_bytes, file.sha256) for file in own]


def _found(table: TableDirectory) -> Iterator[tuple[str, list[SmallFile]]]:
    """Yield the directories with Parquet files. Refuse one with subdirectories, which an exchange
    of the directory would remove.
    """
    for path, directories, names in os.walk(table.root):
        directories[:] = [name for name in sorted(directories) if not name.startswith(("_", "."))]
        data = sorted(name for name in names if not name.startswith(("_", ".")))
        relative = os.path.relpath(path, table.root).replace(os.sep, "/")
        prefix = "" if relative == "." else f"{relative}/"
        if data and directories:
            raise InvalidArgument(
                f"{path} has files ({data[0]}) beside directories ({directories[0]}); a table has "
                "its files in directories of one level"
            )
        if data:
            yield (
                prefix.rstrip("/"),
                [
                    SmallFile(f"{prefix}{name}", os.path.getsize(os.path.join(path, name)))
                    for name in data
                    if name.endswith(".parquet")
                ],
            )


def _work(
    table: TableDirectory, run: str, directory: str, files: list[SmallFile], wish: _Wish
) -> Iterator[MergeWork]:
    for group in grouped(files, wish.target_bytes):
        name = f"part-{uuid.uuid4().hex}.parquet{STAGED_SUFFIX}"
        yield MergeWork(
            table.root,
            directory,
            table.path(f"{table.staged(run)}/new/{name}"),
            [file.path for file in group],
            [file.sha256 for file in group if file.sha256],
            wish.compression,
        )


def _rewritten(work: list[MergeWork], cluster: Cluster) -> list[Done]:
    from sparrow.pipelines.builtin.smallfiles import rewrite_rows
    from sparrow.spark.plain_errors import with_plain_errors

    @with_plain_errors
    def rewrite(batches: Iterable[Any]) -> Iterator[Any]:
        yield from rewrite_rows(batches)

    rows = [(msgspec.json.encode(each).decode(),) for each in work]
    with cluster.session("sparrow-compact-table") as spark:
        wanted = spark.createDataFrame(rows, "work string").repartition(min(len(rows), _MAX_TASKS))
        found = wanted.mapInArrow(rewrite, "done string").collect()
    return [msgspec.json.decode(row[0], type=Done) for row in found]


def _put_in_place(table: TableDirectory, run: str, manifest: Manifest | None, done: list[Done]) -> None:
    exchanges: list[Exchange] = []
    files = {file.path: file for file in manifest.files} if manifest else {}
    for directory in sorted({each.directory for each in done}):
        own = [each for each in done if each.directory == directory]
        if not directory:
            exchange_root(table, _prepared(table, root_sibling(table, run), own).path)
            return
        prepared = f"{table.staged(run)}/directories/{directory}"
        names = _prepared(table, table.path(prepared), own)
        exchanges.append(Exchange(prepared, directory, next(iter(names.made.values()))))
        for each in own if manifest else ():
            sources = [files.pop(path) for path in each.sources]
            new = merged(sources, each, f"{directory}/{names.made[each.target]}")
            files[new.path] = new
    table.commit(ExchangeJournal(run, exchanges=exchanges, manifest=_updated(manifest, files.values())))


def _updated(manifest: Manifest | None, files: Iterable[ArchivedFile]) -> Manifest | None:
    if manifest is None:
        return None
    ordered = sorted(files, key=lambda file: (file.topic, file.directory, file.order))
    return msgspec.structs.replace(manifest, files=ordered)


@dataclass(frozen=True, slots=True)
class PreparedCopy:
    """A directory that is to replace another one."""

    path: str
    made: dict[str, str]
    """The name of each new file in it, by the path that its task wrote."""


def _prepared(table: TableDirectory, path: str, done: list[Done]) -> PreparedCopy:
    """Return a copy of a directory, with the new files instead of the small ones."""
    live = table.path(done[0].directory) if done[0].directory else table.root
    replaced = {os.path.basename(source) for each in done for source in each.sources}
    os.makedirs(path)
    for entry in os.scandir(live):
        if entry.name not in replaced and entry.name != STATE:
            _link(entry, os.path.join(path, entry.name))
    made: dict[str, str] = {}
    for each in done:
        made[each.target] = os.path.basename(each.target).partition(STAGED_SUFFIX)[0]
        os.rename(each.target, os.path.join(path, made[each.target]))
    shutil.copystat(live, path)
    return PreparedCopy(path, made)


def _link(entry: os.DirEntry[str], target: str) -> None:
    if entry.is_dir(follow_symlinks=False):
        raise InvalidArgument(
            f"{entry.path} is a directory beside files; if nobody writes there any more, delete it "
            "and compact again"
        )
    try:
        os.link(entry.path, target, follow_symlinks=False)
    except OSError:  # The file system has no hard links.
        shutil.copy2(entry.path, target, follow_symlinks=False)


# ── Delta ─────────────────────────────────────────────────────────────────────────────────────────


def _compact_delta(directory: str, target_bytes: int) -> Compacted:
    table = delta_table(directory)
    before = _delta_sizes(table)
    table.optimize.compact(target_size=target_bytes)
    table.update_incremental()
    after = _delta_sizes(table)
    return Compacted(directory, "delta", len(before), len(after), sum(before), sum(after))


def _delta_sizes(table: Any) -> list[int]:
    import pyarrow as pa

    return [int(size) for size in pa.table(table.get_add_actions()).column("size_bytes").to_pylist()]


def sentence(done: Compacted) -> str:
    """Return the result as a sentence."""
    if not done.has_changed:
        return f"{done.directory}: {counted(done.files_before, 'file')}, nothing to compact"
    return (
        f"{done.directory}: {counted(done.files_before, 'file')} ({format_size(done.bytes_before)}) became"
        f" {done.files_after} ({format_size(done.bytes_after)})"
    )
