"""Spark task of an archive: it writes the rows of its records into Parquet files, by topic and
time, and returns the files' descriptions to the driver.

The task writes Parquet by Arrow, not by Spark: that is about five times as fast, and the file's
hash and offsets are known when it is written. File names are unique to an attempt of the task;
files of a lost attempt are in no result, and are removed with the staging directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.pipelines.builtin.manifest import ArchivedFile
from sparrow.pipelines.builtin.parquetfile import SCHEMA, ArchiveFile

RESULT: Final = pa.schema([("file", pa.string())])
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_END_US: Final = 253_402_300_800 * _SECOND_US
"""The year 10000, for which ISO 8601 has no name."""
_NO_TIME: Final = "date=__HIVE_DEFAULT_PARTITION__"
_NEVER: Final = -1
_MAX_OPEN: Final = 24
_MAX_BUFFERED_BYTES: Final = 96 << 20
_FILE_BYTES: Final = 512 << 20


def _month(days: int) -> str:
    return f"month={np.datetime64(days, 'D').astype('datetime64[M]')}"


def _day(days: int) -> str:
    return f"date={np.datetime64(days, 'D')}"


def _hour(hours: int) -> str:
    return f"date={np.datetime64(hours // 24, 'D')}/hour={hours % 24:02d}"


def _all(_: int) -> str:
    return ""


BY: Final[dict[str, tuple[int, Callable[[int], str]]]] = {
    "month": (_DAY_US, _month),
    "day": (_DAY_US, _day),
    "hour": (3600 * _SECOND_US, _hour),
    "none": (_END_US, _all),
}
"""Length of a period (in microseconds), and the function that names its directory."""


@dataclass(slots=True)
class ArchiveTask:
    """Writer of a task's rows. Made on the driver, run in a Python worker."""

    root: str
    """The staging directory of the run."""
    by: str
    compression: str
    suffix: str
    open: dict[tuple[str, str], ArchiveFile] = field(default_factory=dict)
    """Files by topic and directory, the most recently written one last."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files. Yield a row for each file."""
        try:
            yield from self._run(batches)
        finally:
            for file in self.open.values():
                file.parquet.give_up()

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for topic, directory, rows in self._sorted_out(batch):
                file = self._file(topic, directory)
                file.add(rows)
                if file.parquet.file.size_bytes >= _FILE_BYTES:
                    yield self._closed((topic, directory))
            yield from self._closed_in_excess()
        for key in list(self.open):
            yield self._closed(key)

    def _sorted_out(self, batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
        names = batch.column("topic")
        for topic in pc.unique(names).to_pylist():
            rows = batch.filter(pc.equal(names, topic)) if batch.num_rows else batch
            plain = pa.RecordBatch.from_arrays(
                [rows.column(name).cast(SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA
            )
            for directory, part in self._by_time(plain):
                yield topic, f"topic={topic}/{directory}".rstrip("/"), part

    def _by_time(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        length_us, name = BY[self.by]
        if self.by == "none":
            yield "", rows
            return
        times = rows.column("timestamp").cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        stretches = np.where((times >= 0) & (times < _END_US), times // length_us, _NEVER)
        found = np.unique(stretches)
        for stretch in found.tolist():
            directory = _NO_TIME if stretch == _NEVER else name(stretch)
            yield directory, rows if len(found) == 1 else rows.filter(pa.array(stretches == stretch))

    def _file(self, topic: str, directory: str) -> ArchiveFile:
        key = (topic, directory)
        file = self.open.pop(key, None)
        if file is None:
            path = f"{directory}/part-{uuid.uuid4().hex}.parquet"
            file = ArchiveFile(f"{self.root}/{path}{self.suffix}", path, topic, self.compression)
        self.open[key] = file
        return file

    def _closed_in_excess(self) -> Iterator[pa.RecordBatch]:
        """Close and flush files, so that out-of-order timestamps use a bounded number of files and
        amount of memory.
        """
        while len(self.open) > _MAX_OPEN:
            yield self._closed(next(iter(self.open)))
        if sum(file.parquet.buffered_bytes for file in self.open.values()) > _MAX_BUFFERED_BYTES:
            max(self.open.values(), key=lambda file: file.parquet.buffered_bytes).parquet.flush()

    def _closed(self, key: tuple[str, str]) -> pa.RecordBatch:
        return result(self.open.pop(key).close())


def result(file: ArchivedFile) -> pa.RecordBatch:
    """Return the row that describes a file to the driver."""
    return pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(file).decode()])], schema=RESULT)


def files_of(rows: Iterable[Any]) -> list[ArchivedFile]:
    """Return the files that the rows of all tasks describe. Runs on the driver."""
    return sorted(
        (msgspec.json.decode(row[0], type=ArchivedFile) for row in rows), key=lambda file: file.path
    )
