"""`replay`: writes a table back to a topic, as one transaction.

An archive is first checked against its manifest (every file's size and SHA-256). Then its records
are sent in the order of their offsets within each original partition: one task has all of a
partition. Other tables are sent in the order of their files. Readers of committed records see all
of it at once, at the end, or nothing.

With a sink id the replay can be repeated: the broker remembers that it was done, and a second one
does nothing.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import CorruptBatch, InvalidArgument, NotFound
from sparrow.base.faults import suggestion
from sparrow.base.units import counted
from sparrow.pipelines.builtin.cluster import Cluster, Progress, quiet
from sparrow.pipelines.builtin.conditions import check_condition
from sparrow.pipelines.builtin.directory import TableDirectory
from sparrow.pipelines.builtin.manifest import COLUMNS, ArchivedFile, Manifest
from sparrow.pipelines.builtin.tables import check_format, format_of, open_table, plain_path
from sparrow.pipelines.builtin.topics import connected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparrow.spark.wire.session import Session

ARCHIVE_COLUMNS: Final = ("topic", *(column.partition(" ")[0] for column in COLUMNS))
"""Columns of an archive's records for conditions."""
_MAX_TASKS: Final = 200
_JSON: Final = "json"
_ROWS_AT_A_TIME: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_USUAL_ROWS: Final = 10_000
_MIN_BATCH_BYTES: Final = 1 << 10
_USUAL_BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a run of `replay`."""

    source: str
    topic: str
    rows: int
    was_done: bool = False
    """Another run with this sink id had already done it."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Checked options of a replay."""

    source: str
    to: str
    from_topic: str | None
    where: str | None
    key: str | None
    value: str | None
    keeps_partitions: bool
    keeps_timestamps: bool
    per_second: float
    sink_id: str | None
    verifies: bool
    connection: Mapping[str, str]
    cluster: Cluster
    progress: Progress


def replay(
    source: str,
    to: str,
    *,
    from_topic: str | None = None,
    where: str | None = None,
    key: str | None = None,
    value: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's own word
    keep_partitions: bool = False,
    keep_timestamps: bool = False,
    per_second: float = 0,
    sink_id: str | None = None,
    verify: bool = True,
    connection: Mapping[str, str] | None = None,
    spark: Any = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    progress: Progress = quiet,
) -> Replayed:
    """Write a table to a topic, in one transaction.

    Args:
        source: the directory of an archive, or a Parquet, CSV, JSON, Delta or Iceberg table.
        to: the topic; made if it is missing and the broker's policy allows.
        from_topic: the topic of the archive; required if it has several.
        where: SQL over the columns; only rows for which it is true.
        key: the column that becomes the key; None: `key` if there is one.
        value: the column that becomes the value, or "json": all columns as a JSON object; None:
            `value` if there is one, else "json".
        format: of a table that is not an archive; None: detected from the directory.
        keep_partitions: write to the partitions of the same numbers, which are made if the topic is
            missing.
        keep_timestamps: keep the timestamps; otherwise records get the time of the write.
        per_second: at most this many rows per second; 0: no limit.
        sink_id: id under which the broker remembers that the replay was done.
        verify: first check an archive's files against the manifest.
        connection: options of `format("sparrow")` for the connection to the broker.
        spark, master, remote, conf: the session, as for `sparrow.spark.session`.
        progress: called with a sentence at each step.

    Raises:
        InvalidArgument: the source is not a table, an option does not fit it, or the condition is
            wrong.
        CorruptBatch: a file of the archive differs from the manifest; names it.
    """
    check_format(format)
    if not 0 <= per_second < math.inf:
        raise InvalidArgument(
            f"per_second is {per_second:g}; it is a number that is not negative, and 0 means no limit"
        )
    wanted = _Wanted(
        source,
        to,
        from_topic,
        where,
        key,
        value,
        keep_partitions,
        keep_timestamps,
        per_second,
        sink_id,
        verify,
        connection or {},
        Cluster(spark, master, remote, conf or {}),
        progress,
    )
    directory = TableDirectory(source)
    if format is None and directory.is_archive:
        with directory.shared():
            return _replay_archive(directory, wanted)
    return _replay_table(wanted, format or format_of(source))


# ── an archive ────────────────────────────────────────────────────────────────────────────────────


def _replay_archive(directory: TableDirectory, wanted: _Wanted) -> Replayed:
    if wanted.key or wanted.value:
        raise InvalidArgument(
            f"{wanted.source} is an archive: its records have keys and values; key and value are "
            "for other tables"
        )
    if wanted.where:
        check_condition(wanted.where, ARCHIVE_COLUMNS)
    manifest = directory.maybe_manifest()
    assert manifest is not None
    topic = _chosen(manifest, wanted)
    files = [file for file in manifest.files if file.topic == topic]
    partitions = sorted(manifest.topics[topic].partitions)
    if wanted.verifies:
        wanted.progress(f"checking {counted(len(files), 'file')}")
        check_hashes(directory, files)
    if not files:
        return Replayed(directory.root, wanted.to, 0)
    wanted.progress(
        f"replaying {counted(sum(file.rows for file in files), 'record')} of {topic} to {wanted.to}"
    )

    def rows(spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as f

        paths = [plain_path(directory.path(file.path)) for file in sorted(files, key=lambda file: file.order)]
        found = spark.read.schema(", ".join(COLUMNS)).parquet(*paths).withColumn("topic", f.lit(topic))
        if wanted.where:
            found = found.where(wanted.where)
        tasks = min(len(partitions), _MAX_TASKS)
        return found.repartition(tasks, "partition").sortWithinPartitions("partition", "offset")

    return _write(wanted, rows, partitions[-1] + 1, has_headers=True)


def _chosen(manifest: Manifest, wanted: _Wanted) -> str:
    names = sorted(manifest.topics)
    if wanted.from_topic is None and len(names) == 1:
        return names[0]
    if wanted.from_topic in manifest.topics:
        return str(wanted.from_topic)
    if wanted.from_topic is None:
        raise InvalidArgument(
            f"{wanted.source} has {counted(len(names), 'topic')} ({', '.join(names[:10])}); say "
            "which one to replay (--from)"
        )
    raise InvalidArgument(
        f"{wanted.source} has no topic "
        f"{wanted.from_topic!r}{suggestion(wanted.from_topic, names) or '.'} It has {', '.join(names[:10])}."
    )


def check_hashes(directory: TableDirectory, files: Iterable[ArchivedFile]) -> None:
    """Check the files against the manifest.

    Raises:
        CorruptBatch: names the files that differ.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        faults = [fault for fault in threads.map(lambda file: _fault(directory, file), files) if fault]
    if faults:
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise CorruptBatch(
            f"{directory.root} is not what its manifest says, nothing was done: "
            f"{'; '.join(faults[:5])}{more}."
            " Take the files from a copy, or archive again."
        )


def _fault(directory: TableDirectory, file: ArchivedFile) -> str:
    path = directory.path(file.path)
    try:
        size_bytes = os.path.getsize(path)
        if size_bytes != file.size_bytes:
            return f"{file.path} has {size_bytes} bytes, not {file.size_bytes}"
        with open(path, "rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        return f"{file.path} cannot be read ({error.strerror})"
    return (
        ""
        if found == file.sha256
        else f"{file.path} has another SHA-256: {found[:16]}…, not {file.sha256[:16]}…"
    )


# ── any table ─────────────────────────────────────────────────────────────────────────────────────


def _replay_table(wanted: _Wanted, kind: str) -> Replayed:
    if wanted.from_topic is not None:
        raise InvalidArgument(f"{wanted.source} is no archive, it has no topics to choose from (--from)")
    if wanted.where:
        check_condition(wanted.where, None)
    wanted.progress(f"replaying {kind} table {wanted.source} to {wanted.to}")
    with wanted.cluster.session("sparrow-replay") as spark:
        table = open_table(spark, wanted.source, kind)
        if wanted.where:
            check_condition(wanted.where, table.columns)
            table = table.where(wanted.where)
        rows, partitions = _as_records(table, wanted)
        has_headers = "headers" in rows.columns
        return _write(wanted, lambda _: rows, partitions, has_headers=has_headers)


def _as_records(table: DataFrame, wanted: _Wanted) -> tuple[DataFrame, int]:
    """Return the rows with the columns of the sink, and the number of partitions that they need."""
    from pyspark.sql import functions as f

    columns = table.columns
    for option, name in (("key", wanted.key), ("value", wanted.value if wanted.value != _JSON else None)):
        if name is not None and name not in columns:
            raise InvalidArgument(
                f"--{option} {name}: {wanted.source} has no such "
                f"column{suggestion(name, columns) or '.'} It has {', '.join(columns)}."
            )
    _check_kept(wanted, columns)
    key = wanted.key or ("key" if "key" in columns else None)
    value = wanted.value or ("value" if "value" in columns else _JSON)
    chosen: list[Column] = [
        f.to_json(f.struct(*columns)).alias("value")
        if value == _JSON
        else _bytes(table, value).alias("value")
    ]
    if key is not None:
        chosen.insert(0, _bytes(table, key).alias("key"))
    if value != _JSON and "headers" in columns:
        chosen.append(f.col("headers"))
    kept = [*["partition"] * wanted.keeps_partitions, *["timestamp"] * wanted.keeps_timestamps]
    chosen += [f.col(name) for name in kept]
    partitions = 0
    if wanted.keeps_partitions:
        partitions = (table.agg(f.max("partition")).collect()[0][0] or 0) + 1
    return table.select(*chosen), partitions


def _check_kept(wanted: _Wanted, columns: list[str]) -> None:
    for is_kept, name in ((wanted.keeps_partitions, "partition"), (wanted.keeps_timestamps, "timestamp")):
        if is_kept and name not in columns:
            raise InvalidArgument(
                f"{wanted.source} has no column {name!r} to keep; it has {', '.join(columns)}"
            )


def _bytes(table: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as f

    kind = dict(table.dtypes)[name]
    column = f.col(f"`{name}`")
    if kind in ("string", "binary"):
        return column
    return f.to_json(column) if kind.startswith(("struct", "array", "map")) else column.cast("string")


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


def _write(wanted: _Wanted, rows: Any, partitions: int, *, has_headers: bool) -> Replayed:
    with connected(wanted.connection) as session:
        _make_room(session, wanted, partitions)
        if wanted.sink_id and was_committed(session, wanted.sink_id):
            return Replayed(wanted.source, wanted.to, 0, was_done=True)
    with wanted.cluster.session("sparrow-replay") as spark:
        found = rows(spark)
        names = ["key", "value", *["headers"] * has_headers]
        names += [*["partition"] * wanted.keeps_partitions, *["timestamp"] * wanted.keeps_timestamps]
        records = found.select(*[name for name in names if name in found.columns])
        if not wanted.per_second:
            return Replayed(wanted.source, wanted.to, write_counted(records, wanted.to, wanted))
        with _by_few_rows(spark, wanted.per_second):
            slow = paced(records.coalesce(1), wanted.per_second)
            return Replayed(wanted.source, wanted.to, write_counted(slow, wanted.to, wanted))


@contextmanager
def _by_few_rows(spark: SparkSession, per_second: float) -> Iterator[None]:
    before = spark.conf.get(_ROWS_AT_A_TIME)
    spark.conf.set(_ROWS_AT_A_TIME, rows_at_a_time(per_second))
    try:
        yield
    finally:
        spark.conf.set(_ROWS_AT_A_TIME, before or _USUAL_ROWS)


def _make_room(session: Session, wanted: _Wanted, partitions: int) -> None:
    """Make sure that the topic has the partitions that are kept."""
    if not wanted.keeps_partitions:
        return
    try:
        have = session.call("topic.describe", {"name": wanted.to})["partition_count"]
    except NotFound:
        session.call("topic.create", {"name": wanted.to, "partitions": partitions, "config": {}})
        return
    if have < partitions:
        raise InvalidArgument(
            f"the topic {wanted.to!r} has {counted(have, 'partition')}, the records come from "
            f"{partitions}; add some"
            " (sparrow topic add-partitions) or do not keep partitions"
        )


def was_committed(session: Session, sink_id: str) -> bool:
    """Return True if a replay with this sink id was done."""
    try:
        return int(session.call("sink.describe", {"sink": sink_id}).get("last_batch", -1)) >= 0
    except NotFound:
        return False


def write_counted(records: DataFrame, topic: str, wanted: _Wanted) -> int:
    """Write records as one transaction. Return their number."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    counted_rows = Observation()
    options = {
        **wanted.connection,
        "topic": topic,
        "includeHeaders": str("headers" in records.columns).lower(),
    }
    if wanted.per_second:
        options |= {"maxBatchBytes": str(batch_bytes_for(wanted.per_second))}
    if wanted.sink_id:
        options |= {"sinkId": wanted.sink_id, "batchId": "0"}
    observed = records.observe(counted_rows, f.count(f.lit(1)).alias("rows"))
    observed.write.format("sparrow").mode("append").options(**options).save()
    return int(counted_rows.get["rows"])


def rows_at_a_time(per_second: float) -> int:
    """Return the number of rows that Spark passes to the sink at once: those of some seconds. Its
    usual 10,000 may take hours, and a stage that sends nothing expires.
    """
    return min(_USUAL_ROWS, max(1, int(per_second * 5)))


def batch_bytes_for(per_second: float) -> int:
    """Return the size of the sink's batches in bytes, limited for the same reason."""
    return min(_USUAL_BATCH_BYTES, max(_MIN_BATCH_BYTES, int(per_second * 64)))


def paced(records: DataFrame, per_second: float) -> DataFrame:
    """Return the same records, by one task, at most this many per second."""

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        begun_s, given = time.monotonic(), 0
        step = max(1, int(per_second / 10))
        for batch in batches:
            for first in range(0, batch.num_rows, step):
                part = batch.slice(first, step)
                yield part
                given += part.num_rows
                time.sleep(max(0.0, begun_s + given / per_second - time.monotonic()))

    return records.mapInArrow(slowly, records.schema)
