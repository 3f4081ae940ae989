"""Plan of which small files of a directory become one, and the task that rewrites them. The plan is
pure.

Only adjacent files are joined, so that an archive's records keep their order. Large files are not
changed, and neither is a file without small neighbours, since a rewrite would gain nothing.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sparrow.base.errors import CorruptBatch, StorageFailed
from sparrow.pipelines.builtin.manifest import ArchivedFile, OffsetSpan

LARGE_SHARE: Final = 0.75
"""Files of at least this share of the target size are not changed."""


class MergeWork(msgspec.Struct, frozen=True):
    """Files that one task rewrites as one."""

    root: str
    directory: str
    """Their directory relative to the root; "" is the root itself."""
    target: str
    """The new file's path."""
    sources: list[str]
    """Paths relative to the root."""
    hashes: list[str]
    """SHA-256 hashes in the manifest; empty without a manifest."""
    compression: str


class Done(msgspec.Struct, frozen=True):
    """Result of the work."""

    directory: str
    target: str
    sources: list[str]
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file as the plan needs it."""

    path: str
    size_bytes: int
    sha256: str = ""


def grouped(files: Iterable[SmallFile], target_bytes: int) -> list[list[SmallFile]]:
    """Return groups of adjacent files that become one each, of about the target size; the files are
    given in their order.
    """
    groups: list[list[SmallFile]] = []
    group: list[SmallFile] = []
    for file in files:
        is_large = file.size_bytes >= target_bytes * LARGE_SHARE
        if group and (is_large or sum(each.size_bytes for each in group) + file.size_bytes > target_bytes):
            groups.append(group)
            group = []
        if not is_large:
            group.append(file)
    return [each for each in [*groups, group] if len(each) > 1]


def merged(sources: Sequence[ArchivedFile], done: Done, path: str) -> ArchivedFile:
    """Return the manifest's entry of the file that replaces the sources."""
    spans: dict[int, OffsetSpan] = {}
    for file in sources:
        for number, span in file.partitions.items():
            before = spans.get(number)
            spans[number] = span if before is None else _both(before, span)
    return ArchivedFile(
        path, sources[0].topic, done.rows, done.size_bytes, done.sha256, dict(sorted(spans.items()))
    )


def _both(one: OffsetSpan, other: OffsetSpan) -> OffsetSpan:
    return OffsetSpan(
        min(one.first_offset, other.first_offset),
        max(one.last_offset, other.last_offset),
        one.rows + other.rows,
        one.bytes + other.bytes,
    )


# ── the task ──────────────────────────────────────────────────────────────────────────────────────


def rewrite(work: MergeWork) -> Done:
    """Rewrite the files of one piece of work as one, row group by row group.

    Raises:
        CorruptBatch: a file differs from the manifest, or is not Parquet; names it.
        StorageFailed: the new file does not have the rows of the old ones.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sparrow.pipelines.builtin.parquetfile import ParquetFile

    for source, sha256 in zip(work.sources, work.hashes, strict=False):
        _check_hash(work, source, sha256)
    # A failed attempt may have left its file.
    target = f"{work.target}.{uuid.uuid4().hex[:8]}"
    try:
        schema = pq.read_schema(os.path.join(work.root, work.sources[0])).remove_metadata()
        with ParquetFile(target, schema, work.compression) as made:
            expected = 0
            for source in work.sources:
                with pq.ParquetFile(os.path.join(work.root, source)) as file:
                    expected += file.metadata.num_rows
                    for batch in file.iter_batches(batch_size=1 << 16):
                        made.add(_fitting(batch, schema, source))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise CorruptBatch(f"one of {', '.join(work.sources[:5])} in {work.root}: {error}") from None
    if made.rows != expected:
        raise StorageFailed(
            f"{target} has {made.rows} rows, its sources have {expected}; nothing was changed"
        )
    return Done(work.directory, target, work.sources, made.rows, made.file.size_bytes, made.file.sha256)


def _fitting(batch: Any, schema: Any, source: str) -> Any:
    if batch.schema.remove_metadata().equals(schema):
        return batch
    import pyarrow as pa

    if set(batch.schema.names) != set(schema.names):
        raise CorruptBatch(
            f"{source} has other columns than the files beside it: {', '.join(batch.schema.names)}"
        )
    return pa.RecordBatch.from_arrays(
        [batch.column(field.name).cast(field.type) for field in schema], schema=schema
    )


def _check_hash(work: MergeWork, source: str, sha256: str) -> None:
    with open(os.path.join(work.root, source), "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise CorruptBatch(
            f"{work.root}: {source} has another SHA-256 than its manifest says; nothing was changed"
        )


def rewrite_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Do the work of each row. Yield rows with the results."""
    import pyarrow as pa

    for batch in batches:
        for text in batch.column(0).to_pylist():
            done = rewrite(msgspec.json.decode(text, type=MergeWork))
            yield pa.RecordBatch.from_pydict({"done": [msgspec.json.encode(done).decode()]})
