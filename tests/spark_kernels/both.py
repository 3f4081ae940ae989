"""Decoding and encoding by both implementations at once, with equal results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparrow.base.errors import BadInput
from sparrow.records.compression import Compression
from sparrow.spark.kernels import DecodeOptions, Decoder, EncodedBatch, EncodeOptions, Encoder
from sparrow.spark.kernels.decoder import MAX_OFFSET

IMPLEMENTATIONS = ("numba", "numpy")
EVERYTHING = ("key", "value", "offset", "timestamp", "timestampType", "headers")


class Outcome:
    """Result of a decoder."""

    def __init__(self, blocks: list[Any], decoder: Decoder, error: BadInput | None) -> None:
        for block in blocks:
            block.validate(full=True)
            assert block.schema.equals(decoder.schema)
        self.blocks = blocks
        self.table = pa.Table.from_batches(blocks, decoder.schema)
        self.next_offset = decoder.next_offset
        self.skipped_batches = decoder.skipped_batches
        self.last_skipped = decoder.last_skipped
        self.error = error

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return (offset, timestamp, key, value, headers), as `tests.records.naive.fields_of`
        does.
        """
        return [
            (
                row["offset"],
                row["timestamp"],
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            )
            for row in self.table.to_pylist()
        ]

    def described(self) -> tuple[Any, ...]:
        """Return all of it, to compare."""
        error = (type(self.error), str(self.error))
        rows = [block.num_rows for block in self.blocks]
        return self.table, rows, self.next_offset, self.skipped_batches, self.last_skipped, error


def try_decoding(
    chunks: Iterable[bytes],
    options: DecodeOptions | None = None,
    *,
    low: int = 0,
    high: int = MAX_OFFSET,
    aborted: Sequence[tuple[int, int]] = (),
) -> Outcome:
    """Decode the chunks by both implementations."""
    outcomes = []
    chunks = list(chunks)
    for implementation in IMPLEMENTATIONS:
        wanted = replace(options or DecodeOptions(EVERYTHING), implementation=implementation)  # type: ignore[arg-type]
        decoder = Decoder("orders", 3, wanted, low=low, high=high)
        blocks: list[Any] = []
        error = None
        try:
            for chunk in chunks:
                blocks += decoder.feed(chunk, aborted)
            blocks += decoder.finish()
        except BadInput as caught:
            error = caught
        outcomes.append(Outcome(blocks, decoder, error))
    first, second = outcomes
    assert first.described() == second.described()
    return first


def decoded(*chunks: bytes, **options: Any) -> Outcome:
    """Decode as `try_decoding`, without any fault."""
    outcome = try_decoding(chunks, **options)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def encoded(
    columns: dict[str, Any],
    partitions: int = 1,
    *,
    timestamp_ms: int = 0,
    first_unkeyed: int = 0,
    compression: Compression = Compression.NONE,
    **options: Any,
) -> list[EncodedBatch]:
    """Encode the columns by both implementations."""
    records = pa.record_batch(columns)
    found = []
    for implementation in IMPLEMENTATIONS:
        wanted = EncodeOptions(
            partitions,
            compression=compression,
            implementation=implementation,
            **options,  # type: ignore[arg-type]
        )
        encoder = Encoder(wanted, first_unkeyed=first_unkeyed)
        found.append(list(encoder.encode(records, timestamp_ms=timestamp_ms)))
    assert found[0] == found[1]
    return found[0]


def arrow(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns of `tests.records.columns` as Arrow arrays."""
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    kinds = {"value": pa.binary(), "key": pa.binary(), "timestamp": pa.int64()}
    found = {
        name: pa.array(columns[f"{name}s"], kind)
        for name, kind in kinds.items()
        if columns[f"{name}s"] is not None
    }
    if columns["headers"] is not None:
        found["headers"] = pa.array(
            [[{"key": name, "value": value} for name, value in row] for row in columns["headers"]], pairs
        )
    return found
