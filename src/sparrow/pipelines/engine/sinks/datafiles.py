"""Parquet files written by the tasks of a batch, for tables whose commits are made outside Spark.

Each task writes its own files under new names, and returns one row per file. Files of a task that
was repeated, or of a batch that was never committed, belong to no table: they take space until the
table's own clean-up (`vacuum`, orphan files) removes them.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

MAX_OPEN_FILES: Final = 64
_RESULT: Final = "path string, bytes bigint, rows bigint, part string"
_RESULT_SCHEMA: Final = pa.schema(
    [("path", pa.string()), ("bytes", pa.int64()), ("rows", pa.int64()), ("part", pa.string())]
)


@dataclass(frozen=True)
class DataFile:
    """A file as a task wrote it. `part` has the values of the partition columns, as Delta Lake
    writes them.
    """

    path: str
    size_bytes: int
    rows: int
    part: dict[str, str | None]


def write_files(
    df: DataFrame, directory: str, partition_by: Sequence[str] = (), *, keeps_parts: bool = False
) -> list[DataFile]:
    """Write the rows; the paths are relative to the directory.

    Args:
        keeps_parts: True if the files contain the partition columns, too.
    """
    write = _task(directory, tuple(partition_by), keeps_parts)
    rows = df.mapInArrow(write, _RESULT).collect()
    return [DataFile(row["path"], row["bytes"], row["rows"], json.loads(row["part"])) for row in rows]


def plain_types(schema: pa.Schema) -> pa.Schema:
    """Return Spark's Arrow types as tables have them: times in UTC, whatever the session's zone,
    and nullable.
    """
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def file_system(directory: str) -> tuple[Any, str]:
    """Return Arrow's file system of a path or URI, and the path in it."""
    if "://" in directory:
        system, path = fs.FileSystem.from_uri(directory)
        return system, path
    return fs.LocalFileSystem(), directory


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def _task(
    directory: str,
    partition_by: tuple[str, ...],
    keeps_parts: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Files(directory, () if keeps_parts else partition_by)
        try:
            for batch in batches:
                for part, rows in _split(pa.Table.from_batches([batch]), partition_by):
                    files.write(part, rows)
        finally:
            files.close()
        yield pa.RecordBatch.from_pylist(files.written, schema=_RESULT_SCHEMA)

    return write


def _split(table: pa.Table, partition_by: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by the values of the columns. Yield the values as JSON, and their rows."""
    if not partition_by:
        if table.num_rows:
            yield "{}", table
        return
    for values in table.select(partition_by).group_by(list(partition_by)).aggregate([]).to_pylist():
        mask = None
        for name, value in values.items():
            column = table[name]
            same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
            same = pc.fill_null(same, fill_value=False)
            mask = same if mask is None else pc.and_(mask, same)
        yield json.dumps({name: _part_text(value) for name, value in values.items()}), table.filter(mask)


def _part_text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dt.datetime):
        moment = value.astimezone(dt.UTC) if value.tzinfo else value
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


class _Files:
    """The open files of a task, by the values of their partition; the least recently used one is
    closed when there are too many.
    """

    def __init__(self, directory: str, left_out: tuple[str, ...]) -> None:
        self._system, self._directory = file_system(directory)
        self._system.create_dir(self._directory, recursive=True)
        self._left_out = list(left_out)
        self._open: OrderedDict[str, tuple[str, pq.ParquetWriter, int]] = OrderedDict()
        self.written: list[dict[str, Any]] = []

    def write(self, part: str, rows: pa.Table) -> None:
        rows = rows.drop_columns(self._left_out)
        rows = rows.cast(plain_types(rows.schema))
        name, writer, count = self._open.pop(part) if part in self._open else self._begun(rows.schema)
        writer.write_table(rows)
        self._open[part] = (name, writer, count + rows.num_rows)
        if len(self._open) > MAX_OPEN_FILES:
            self._end(next(iter(self._open)))

    def close(self) -> None:
        for part in list(self._open):
            self._end(part)

    def _begun(self, schema: pa.Schema) -> tuple[str, pq.ParquetWriter, int]:
        name = f"part-{uuid.uuid4().hex}.parquet"
        path = f"{self._directory.rstrip('/')}/{name}"
        return name, pq.ParquetWriter(path, schema, filesystem=self._system, compression="zstd"), 0

    def _end(self, part: str) -> None:
        name, writer, count = self._open.pop(part)
        writer.close()
        size = self._system.get_file_info(f"{self._directory.rstrip('/')}/{name}").size
        self.written.append({"path": name, "bytes": size, "rows": count, "part": part})
