"""Records of a lease."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrow.broker.queues.rules.settlement import Leased
from sparrow.frontends.leased_records import LeasedRecords, decode_leased, read_leased, split_by_batch
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression


def batch_at(offset: int, count: int, codec: Compression = Compression.NONE) -> bytes:
    values = [b"%d" % (offset + n) for n in range(count)]
    return build_batch(values, compression=codec, base_offset=offset)


def covered(found: LeasedRecords) -> list[tuple[int, int]]:
    """Return offset and delivery count of each missing record."""
    return [(offset, count) for first, last, count in found.missing for offset in range(first, last + 1)]


@given(
    gaps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=5),
    leased=st.sets(st.integers(0, 45), min_size=1),
)
def test_leased_offsets_are_records_or_missing(gaps: list[tuple[int, int]], leased: set[int]) -> None:
    data, there, position = b"", set(), 0
    for gap, count in gaps:
        position += gap
        data += batch_at(position, count)
        there |= set(range(position, position + count))
        position += count
    ranges = [(offset, offset, offset % 3 + 1) for offset in sorted(leased)]
    whole = Leased("t", 0, ranges, data, 1000)
    found = decode_leased(whole)
    parts = [decode_leased(each) for each in split_by_batch(whole)]
    assert [each for part in parts for each in part.records] == found.records
    assert {each for part in parts for each in covered(part)} == set(covered(found))
    assert [each.record.offset for each in found.records] == sorted(leased & there)
    assert all(each.record.value == b"%d" % each.record.offset for each in found.records)
    assert all(each.delivery_count == each.record.offset % 3 + 1 for each in found.records)
    assert {offset for first, last, _ in found.missing for offset in range(first, last + 1)} == leased - there


def test_a_range_with_holes_is_reported_in_its_parts() -> None:
    data = batch_at(2, 2) + batch_at(6, 1)
    found = decode_leased(Leased("t", 0, [(0, 3, 1), (5, 9, 2)], data, 1000))
    assert [(each.record.offset, each.delivery_count) for each in found.records] == [(2, 1), (3, 1), (6, 2)]
    assert found.missing == [(0, 1, 1), (5, 5, 2), (7, 9, 2)]


async def test_compressed_and_large_batches_are_read_as_well() -> None:
    for data in (batch_at(0, 9, Compression.GZIP), batch_at(0, 30_000)):
        found = await read_leased(Leased("t", 0, [(0, 8, 1)], data, 1000))
        assert [each.record.offset for each in found.records] == list(range(9))


async def test_a_broken_batch_is_reported_beside_the_others() -> None:
    broken = bytearray(batch_at(2, 3))
    broken[-1] ^= 1
    data = batch_at(0, 2) + bytes(broken) + batch_at(5, 2)
    found = await read_leased(Leased("t", 0, [(1, 2, 1), (4, 9, 2)], data, 1000))
    assert [each.record.offset for each in found.records] == [1, 5, 6]
    assert found.missing == [(7, 9, 2)]
    (unreadable,) = found.unreadable
    assert unreadable.ranges == [(2, 2, 1), (4, 4, 2)]
    assert (unreadable.error.base_offset, unreadable.error.next_offset) == (2, 5)
