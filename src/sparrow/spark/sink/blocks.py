"""Rows in blocks that give each partition batches of a good size.

Spark hands out Arrow batches of 10,000 rows whatever their size. A topic with many partitions would
get batches of a few records from them, which cost more everywhere; so they are joined up to some
megabytes first, and cut where they are larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from sparrow.spark.sink.schema import SinkColumns

_BATCHES = 8
_MAX_BLOCK_BYTES = 64 << 20


def block_bytes_for(max_batch_bytes: int) -> int:
    """Return the size of a block for batches of a size: enough for several partitions, little
    enough for a worker's memory.
    """
    return max(max_batch_bytes, min(_BATCHES * max_batch_bytes, _MAX_BLOCK_BYTES))


def blocks_of(batches: Iterable[Any], columns: SinkColumns, *, block_bytes: int) -> Iterator[Any]:
    """Yield Arrow record batches with the columns of records, in the order of the rows; none is
    empty.
    """
    held: list[Any] = []
    held_bytes = 0
    for batch in batches:
        picked = _picked(batch, columns)
        for part in _parts(picked, block_bytes):
            if held and held_bytes + part.nbytes > block_bytes:
                yield _joined(held)
                held, held_bytes = [], 0
            held.append(part)
            held_bytes += part.nbytes
    if held:
        yield _joined(held)


def _picked(batch: Any, columns: SinkColumns) -> Any:
    arrays = [batch.column(index) for index in columns.indexes.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns.indexes))


def _parts(batch: Any, block_bytes: int) -> Iterator[Any]:
    """Yield the batch in pieces of about the size of a block; nothing of an empty one."""
    if not batch.num_rows:
        return
    rows = max(1, batch.num_rows * block_bytes // max(1, batch.nbytes))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
