"""Arrow batches of any size become blocks of about one size, without losing or moving a row."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparrow.spark.sink.blocks import blocks_of
from sparrow.spark.sink.schema import SinkColumns

COLUMNS = SinkColumns({"value": 1, "key": 0})


def batch(values: list[bytes]) -> pa.RecordBatch:
    keys = pa.array([value[:1] for value in values], pa.binary())
    return pa.record_batch([keys, pa.array(values, pa.binary())], names=["key", "value"])


@given(st.lists(st.lists(st.binary(max_size=40), max_size=30), max_size=8), st.integers(1, 400))
def test_blocks_have_all_rows_in_their_order_and_none_is_empty(values, block_bytes):
    blocks = list(blocks_of(map(batch, values), COLUMNS, block_bytes=block_bytes))

    assert [row for block in blocks for row in block.column("value").to_pylist()] == list(chain(*values))
    assert all(block.num_rows for block in blocks)
    assert all(block.schema.names == ["value", "key"] for block in blocks)


def test_small_batches_are_joined_up_to_the_size_of_a_block():
    small = [batch([b"x" * 90] * 10) for _ in range(100)]

    blocks = list(blocks_of(small, COLUMNS, block_bytes=20_000))

    assert all(block.nbytes <= 20_000 for block in blocks)
    assert len(blocks) <= 7


def test_a_batch_larger_than_a_block_is_cut():
    blocks = list(blocks_of([batch([b"x" * 1000] * 100)], COLUMNS, block_bytes=20_000))

    assert len(blocks) > 4
    assert sum(block.num_rows for block in blocks) == 100


def test_a_row_larger_than_a_block_is_a_block_of_its_own():
    blocks = list(blocks_of([batch([b"a" * 50_000, b"b" * 50_000])], COLUMNS, block_bytes=20_000))

    assert [block.num_rows for block in blocks] == [1, 1]


def test_memory_is_bounded_by_a_block_and_a_batch():
    taken = []

    def batches():
        for number in range(50):
            taken.append(number)
            yield batch([b"x" * 990] * 10)

    found = blocks_of(batches(), COLUMNS, block_bytes=40_000)
    next(found)

    assert len(taken) <= 6
