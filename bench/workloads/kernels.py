"""The kernels of the Spark part alone: batches in memory to Arrow and back, on one core, CRCs
checked and made.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.results import Measurement, Target
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.spark.kernels import DecodeOptions, Decoder, EncodeOptions, Encoder, warm

if TYPE_CHECKING:
    from sparrow.spark.kernels.selection import Implementation

NOW_MS = 1_700_000_000_000
CHUNK_BYTES = 8 << 20
"""Size of a fetch."""
HEADERS = [("content-type", b"text/plain"), ("traceparent", bytes(16))]
WITH_HEADERS = ("key", "value", "offset", "timestamp", "timestampType", "headers")


def both(runs: int, scale: float) -> list[Measurement]:
    """Decoding and encoding, of several shapes."""
    warm()
    seconds = 0.5 * scale
    return [
        *(_decoding(*shape, seconds=seconds, runs=runs) for shape in _DECODED),
        *(_encoding(*shape, seconds=seconds, runs=runs) for shape in _ENCODED),
    ]


def _decoding(
    name: str, value_bytes: int, batch_bytes: int, target: Target | None, options: dict[str, Any], **how: Any
) -> Measurement:
    options = {"has_headers": False, "codec": Compression.NONE, "implementation": "numba"} | options
    has_headers, codec = options.pop("has_headers"), options.pop("codec")
    chunk = _chunk(value_bytes, batch_bytes, has_headers=has_headers, codec=codec)
    wanted = DecodeOptions(**options)

    def once() -> int:
        decoder = Decoder("bench", 0, wanted)
        count = sum(block.num_rows for block in decoder.feed(chunk))
        return count + sum(block.num_rows for block in decoder.finish())

    return _measured(f"kernels: decode, {name}", once, target, wanted.implementation, **how)


def _encoding(
    name: str,
    value_bytes: int,
    batch_bytes: int,
    partitions: int,
    target: Target | None,
    implementation: Implementation,
    **how: Any,
) -> Measurement:
    count = 40_000 if value_bytes <= 100 else 8_000
    records = pa.record_batch({
        "key": pa.array([b"key-%06d" % n for n in range(count)], pa.binary()),
        "value": pa.array(_values(value_bytes, count), pa.binary()),
    })  # fmt: skip
    encoder = Encoder(EncodeOptions(partitions, max_batch_bytes=batch_bytes, implementation=implementation))

    def once() -> int:
        return sum(batch.record_count for batch in encoder.encode(records, timestamp_ms=NOW_MS))

    return _measured(f"kernels: encode, {name}", once, target, implementation, **how)


def _measured(
    name: str,
    once: Callable[[], int],
    target: Target | None,
    implementation: str,
    *,
    seconds: float,
    runs: int,
) -> Measurement:
    """Records per second while `once` is repeated for this many seconds."""
    row = Measurement(name, "M records/s", target, note=implementation)
    once()
    for _ in range(runs):
        started = time.perf_counter()
        count = 0
        while (passed := time.perf_counter() - started) < seconds:
            count += once()
        row.runs.append(count / passed / 1e6)
    return row


def _values(size_bytes: int, count: int) -> list[bytes]:
    """Letters, which compress as text does not quite."""
    letters = bytes(random.Random(1).choices(b"abcdefghijklmnopqrstuvwxyz ", k=size_bytes + count))
    return [letters[n : n + size_bytes] for n in range(count)]


def _chunk(value_bytes: int, batch_bytes: int, *, has_headers: bool, codec: Compression) -> bytes:
    per_batch = max(1, batch_bytes // (value_bytes + 20))
    values = _values(value_bytes, per_batch)
    keys = [b"key-%06d" % n for n in range(per_batch)]
    headers: Sequence[Any] | None = [HEADERS] * per_batch if has_headers else None
    batches, size_bytes = [], 0
    while size_bytes < CHUNK_BYTES:
        batches.append(
            build_batch(values, keys, headers, NOW_MS, codec, base_offset=per_batch * len(batches))
        )
        size_bytes += per_batch * (value_bytes + 20)
    return b"".join(batches)


_DECODED: list[tuple[str, int, int, Target | None, dict[str, Any]]] = [
    ("100 B in batches of 1 MiB", 100, 1 << 20, Target(8), {}),
    ("100 B in batches of 16 KiB", 100, 16 << 10, None, {}),
    ("… zstd, batches of 256 KiB", 100, 256 << 10, None, {"codec": Compression.ZSTD}),
    ("… lz4, batches of 256 KiB", 100, 256 << 10, None, {"codec": Compression.LZ4}),
    ("… two headers", 100, 1 << 20, None, {"has_headers": True, "columns": WITH_HEADERS}),
    ("… two headers, not asked for", 100, 1 << 20, None, {"has_headers": True}),
    ("… value alone", 100, 1 << 20, None, {"columns": ("value",)}),
    ("1 KB in batches of 1 MiB", 1000, 1 << 20, None, {}),
    ("100 B in batches of 1 MiB, without numba", 100, 1 << 20, None, {"implementation": "numpy"}),
]  # fmt: skip
_ENCODED: list[tuple[str, int, int, int, Target | None, Implementation]] = [
    ("100 B, one partition", 100, 1 << 20, 1, Target(10), "numba"),
    ("100 B, four partitions by key", 100, 1 << 20, 4, Target(10), "numba"),
    ("… batches of 16 KiB", 100, 16 << 10, 4, None, "numba"),
    ("1 KB, four partitions by key", 1000, 1 << 20, 4, None, "numba"),
    ("100 B, four partitions by key, without numba", 100, 1 << 20, 4, None, "numpy"),
]  # fmt: skip
