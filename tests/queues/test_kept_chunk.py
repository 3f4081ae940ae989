"""The last chunk that was read of a partition: it gives the same as a read of the log."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparrow.broker.queues.kept_chunk import KeptChunk, KeptChunks
from sparrow.records.batch import parse_header, split
from sparrow.records.builder import build_batch
from sparrow.storage.store import Chunk

FIRST = 50


def chunk_of(counts: list[int], gaps: list[int]) -> Chunk:
    """Return batches of these numbers of records, with gaps of offsets behind them."""
    offset, parts = FIRST, []
    for count, gap in zip(counts, gaps, strict=True):
        parts.append(build_batch([b"value"] * count, timestamps=1, base_offset=offset))
        offset += count + gap
    end = parse_header(parts[-1]).next_offset
    return Chunk(b"".join(parts), FIRST, end, end - FIRST)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(1, 1000)), max_size=12),
)
def test_requests_that_move_forward_get_the_batches_of_their_records(
    batches: list[tuple[int, int]], requests: list[tuple[int, int, int]]
) -> None:
    chunk = chunk_of([count for count, _ in batches], [gap for _, gap in batches])
    kept = KeptChunk(chunk)
    headers = [header for header, _ in split(chunk.data)]
    for offset, count, max_bytes in sorted((FIRST + at, count, size) for at, count, size in requests):
        end = offset + count
        found = kept.maybe_chunk(offset, end, max_bytes)
        if offset >= chunk.next_offset:
            assert found is None
            continue
        if found is None:  # in a gap before the batch that is the first one now
            assert any(a.next_offset <= offset < b.base_offset for a, b in pairwise(headers))
            continue
        got = [header for header, _ in split(found.data)]
        wanted = [each for each in headers if each.next_offset > offset]
        assert got == wanted[: len(got)]
        assert found.next_offset == got[-1].next_offset
        is_whole = found.next_offset >= min(end, chunk.next_offset)
        assert is_whole or len(found.data) >= max_bytes
        assert len(got) == 1 or len(found.data) - got[-1].size_bytes < max_bytes


def test_batches_before_the_last_request_are_gone() -> None:
    kept = KeptChunk(chunk_of([2, 2, 2], [0, 0, 0]))
    assert kept.maybe_chunk(FIRST + 4, FIRST + 5, 1) is not None
    assert kept.maybe_chunk(FIRST + 1, FIRST + 2, 1) is None
    assert kept.maybe_chunk(FIRST + 5, FIRST + 6, 1) is not None
    assert kept.maybe_chunk(FIRST + 6, FIRST + 7, 1) is None


def test_chunks_that_were_kept_first_give_way_and_large_ones_are_not_kept() -> None:
    chunk = chunk_of([1], [0])
    size = len(chunk.data)
    kept = KeptChunks(max_bytes=4 * size)
    for reader in range(5):
        kept.keep(reader, chunk)
    assert kept.size_bytes == 4 * size
    assert [kept.maybe_chunk(reader, FIRST, FIRST + 1, 1) is None for reader in range(5)] == [True] + 4 * [
        False
    ]
    kept.keep(4, chunk_of([2], [0]))  # more than a quarter: the one before is gone, too
    assert kept.maybe_chunk(4, FIRST, FIRST + 1, 1) is None
    kept.keep(3, Chunk(b"", FIRST, FIRST, 0))
    assert kept.size_bytes == 2 * size
    for reader in range(5):
        kept.forget(reader)
    assert kept.size_bytes == 0
