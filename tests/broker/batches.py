"""Batches as publishers build them, and records out of what readers get."""

from __future__ import annotations

from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import decode


def batch(*values: bytes, key: bytes | None = None, timestamp_ms: int = 0, **fields: int) -> bytes:
    """Return one batch; `fields` are producer_id, producer_epoch, base_sequence."""
    import time

    now_ms = timestamp_ms or time.time_ns() // 1_000_000
    count = len(values)
    return build_batch(list(values), keys=[key] * count, timestamps=[now_ms] * count, **fields)


def values(data: bytes | memoryview, offset: int = 0) -> list[bytes | None]:
    """Return the values of all records from `offset` on."""
    return [r.value for _, view in split(data) for r in decode(view) if r.offset >= offset]
