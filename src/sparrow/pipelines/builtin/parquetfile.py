"""Parquet file of an archive, which computes its hash and its offsets while it is written.

Rows are buffered up to the size of a good row group, because Spark delivers only some thousand at a
time. The file is synced before it counts as written.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrow.pipelines.builtin.manifest import ArchivedFile, OffsetSpan

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Schema of the files of an archive."""
_GROUP_ROWS: Final = 1 << 18
_GROUP_BYTES: Final = 32 << 20


class HashedFile:
    """A new file that computes the SHA-256 of the bytes written to it."""

    closed = False

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115 - closed by `close`
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        """Write all of the data."""
        view = memoryview(data)
        self._digest.update(view)
        self.size_bytes += view.nbytes
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        """Return the end; the file is never read or sought."""
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: the sync at the end is enough."""

    def close(self) -> None:
        """Make the file durable and close it."""
        if not self.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.closed = True

    def let_go(self) -> None:
        """Close the file without a sync; it will not be read."""
        self._file.close()
        self.closed = True

    @property
    def sha256(self) -> str:
        """Return the hash of the bytes written so far."""
        return self._digest.hexdigest()


class ParquetFile:
    """A Parquet file of any schema that is being written. As a context manager, it is closed at the
    end, or given up by an error.
    """

    def __init__(self, path: str, schema: pa.Schema, compression: str) -> None:
        self.file = HashedFile(path)
        self.schema = schema
        self.rows = 0
        self.buffered_bytes = 0
        self._buffered_rows = 0
        self._buffered: list[pa.RecordBatch] = []
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self.file, mode="w"), schema, compression=compression, coerce_timestamps="us"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.give_up()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that have the file's schema."""
        self._buffered.append(batch)
        self._buffered_rows += batch.num_rows
        self.buffered_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._buffered_rows >= _GROUP_ROWS or self.buffered_bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        if self._buffered:
            self._writer.write_table(pa.Table.from_batches(self._buffered, self.schema))
            self._buffered, self._buffered_rows, self.buffered_bytes = [], 0, 0

    def give_up(self) -> None:
        """Close the file unfinished."""
        # Otherwise the garbage collector would write the end of the file.
        self._writer.is_open = False
        self.file.let_go()

    def close(self) -> None:
        """Write the rest, durably."""
        self.flush()
        self._writer.close()
        self.file.close()


class ArchiveFile:
    """A file of an archive, with its offsets of each partition."""

    def __init__(self, path: str, final_path: str, topic: str, compression: str) -> None:
        self.parquet = ParquetFile(path, SCHEMA, compression)
        self._final_path = final_path
        self._topic = topic
        self._spans: dict[int, OffsetSpan] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the archive's schema, those of each partition in the order of their
        offsets.
        """
        numbers = batch.column("partition")
        for number in pc.unique(numbers).to_pylist():
            self._note(number, batch.filter(pc.equal(numbers, number)))
        self.parquet.add(batch)

    def _note(self, number: int, rows: pa.RecordBatch) -> None:
        offsets = pc.min_max(rows.column("offset")).as_py()
        before = self._spans.get(number)
        self._spans[number] = OffsetSpan(
            min(offsets["min"], before.first_offset) if before else offsets["min"],
            max(offsets["max"], before.last_offset) if before else offsets["max"],
            rows.num_rows + (before.rows if before else 0),
            _content_bytes(rows) + (before.bytes if before else 0),
        )

    def close(self) -> ArchivedFile:
        """Write the rest, durably. Return the file's entry in the manifest."""
        self.parquet.close()
        return ArchivedFile(
            self._final_path,
            self._topic,
            self.parquet.rows,
            self.parquet.file.size_bytes,
            self.parquet.file.sha256,
            dict(sorted(self._spans.items())),
        )


def _content_bytes(rows: pa.RecordBatch) -> int:
    return sum(pc.sum(pc.binary_length(rows.column(name))).as_py() or 0 for name in ("key", "value"))
