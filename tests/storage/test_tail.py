"""The newest batches of a log, in memory: equal to what its file has, and bounded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparrow.storage import tail as tails
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.resources import MemoryBudget
from sparrow.storage.store import LogConfig
from sparrow.storage.tail import Tail
from tests.conformance.log_store import ORDERS
from tests.storage.batches import append, numbered


def filled(sizes: list[int], shared: MemoryBudget | None = None) -> Tail:
    """Return a tail of batches of these sizes, with two offsets each, from offset 10 on."""
    tail = Tail(shared or MemoryBudget(tails.MAX_BYTES))
    position = 100
    for number, size in enumerate(sizes):
        tail.add(10 + 2 * number, 12 + 2 * number, 7, position, bytes([number % 256]) * size)
        position += size
    return tail


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(0, 140), st.integers(1, 9000))
def test_it_gives_whole_batches_from_the_one_with_the_offset(
    sizes: list[int], offset: int, max_bytes: int
) -> None:
    tail = filled(sizes)
    chunk = tail.maybe_chunk(offset, max_bytes)
    end = 10 + 2 * len(sizes)
    if chunk is None:
        total = sum(sizes[max(0, (offset - 10) // 2) :])
        assert not 10 <= offset < end or total > tails._MAX_LOG_BYTES
        return
    assert chunk.base_offset <= offset < chunk.base_offset + 2
    numbers = range((chunk.base_offset - 10) // 2, (chunk.next_offset - 10) // 2)
    assert chunk.data == b"".join(bytes([n]) * sizes[n] for n in numbers)
    assert chunk.records == chunk.next_offset - chunk.base_offset
    assert len(chunk.data) <= max_bytes or len(numbers) == 1
    if chunk.next_offset < end:
        assert len(chunk.data) + sizes[numbers[-1] + 1] > max_bytes


def test_bytes_of_the_file_are_whole_batches_up_to_the_end() -> None:
    tail = filled([5, 6, 7])
    assert tail.maybe_bytes(7, 111, 118) == b"\2" * 7
    assert tail.maybe_bytes(7, 105, 118) == b"\1" * 6 + b"\2" * 7
    for segment, start, end in ((8, 111, 118), (7, 110, 118), (7, 105, 111), (7, 90, 118)):
        assert tail.maybe_bytes(segment, start, end) is None


def test_a_log_keeps_a_bounded_number_of_bytes_and_batches() -> None:
    tail = filled([10] * 1000)
    assert tail.maybe_chunk(10, 1) is None
    assert tail.maybe_chunk(10 + 2 * 999, 1) is not None
    assert len(tail._batches) == tails._MAX_BATCHES
    tail = filled([10_000] * 20)
    assert tail._size <= tails._MAX_LOG_BYTES
    tail.clear()
    assert tail.maybe_chunk(10 + 2 * 19, 1) is None


def test_all_logs_together_keep_a_bounded_number_of_bytes() -> None:
    shared = MemoryBudget(100)
    first, second = filled([40], shared), filled([40], shared)
    first.add(12, 14, 7, 140, bytes(20))
    third = filled([30], shared)
    assert second.maybe_chunk(10, 1) is None, "it was quiet for the longest time"
    assert first.maybe_chunk(10, 1) is not None
    third.clear()
    second.add(20, 22, 7, 0, bytes(40))
    assert first.maybe_chunk(10, 1) is not None, "there is room for both"


async def test_a_log_reads_the_same_from_its_tail_and_from_its_file() -> None:
    fs = FaultyFileSystem()
    log = LocalLogStore("/data", fs).open(ORDERS, LogConfig())
    for number in range(30):
        append(log, numbered(number, 3, size=number * 100))
    kept = [log.read_nowait(offset, 4000) for offset in range(90)]
    append(log, numbered(1, 1, size=tails.MAX_BATCH_BYTES))  # a large one is not kept
    assert log._tail.maybe_chunk(90, 1) is None  # type: ignore[attr-defined]
    for offset, chunk in enumerate(kept):
        read = log.read_nowait(offset, 4000)
        assert chunk is not None
        assert read is not None
        assert bytes(chunk.data) == bytes(read.data)[: len(chunk.data)]
        assert (chunk.base_offset, chunk.data[:8]) == (read.base_offset, read.data[:8])
    assert all(a is not None and b is not None for a, b in pairwise(kept))
