"""Leases and their records."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch, LeaseExpired
from sparrow.client.job import Job
from sparrow.client.job_batch import JobBatch
from sparrow.client.lease import Lease
from sparrow.client.settlements import ACK, NACK
from sparrow.protocol.native.messages import Leased
from sparrow.records.builder import build_batch


@dataclass
class Submitted:
    """An owner that only records submissions."""

    queue: str = "jobs"
    lease_s: float = 30.0
    said: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def submit(
        self, lease: Lease, key: tuple[int, str, int, int, str], first: int, last: int, outcome: object
    ) -> None:
        self.said.append((key[0], first, last))

    def report(self, part: object, error: object) -> None:
        raise AssertionError


def lease_of(
    batches: list[tuple[int, int]], ranges: list[tuple[int, int, int]], owner: Submitted | None = None
) -> Lease:
    """Return a lease. Batches are (first offset, records); a record's value is its offset."""
    data = b"".join(
        build_batch([b"%d" % (first + i) for i in range(count)], base_offset=first)
        for first, count in batches
    )
    return Lease(owner or Submitted(), Leased(-1, "t", 3, 30_000, ranges), memoryview(data), 100.0)


def ranges_of(offsets: list[int], counts: list[int]) -> list[tuple[int, int, int]]:
    ranges: list[tuple[int, int, int]] = []
    for offset, count in zip(offsets, counts, strict=False):
        if ranges and ranges[-1][1] == offset - 1 and ranges[-1][2] == count:
            ranges[-1] = (ranges[-1][0], offset, count)
        else:
            ranges.append((offset, offset, count))
    return ranges


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.data(),
)
def test_exactly_the_leased_records_are_handed_out(
    sizes: list[int], holes: list[int], data: st.DataObject
) -> None:
    batches, first = [], 0
    for size, hole in zip(sizes, holes, strict=False):
        batches.append((first + hole, size))
        first += hole + size
    there = [offset for start, count in batches for offset in range(start, start + count)]
    leased = sorted(data.draw(st.sets(st.sampled_from(there), min_size=1)))
    counts = data.draw(st.lists(st.integers(1, 3), min_size=len(leased), max_size=len(leased)))
    owner = Submitted()
    lease = lease_of(batches, ranges_of(leased, counts), owner)
    records = lease.records()
    assert [record.offset for record in records] == leased
    assert [record.value for record in records] == [b"%d" % offset for offset in leased]
    assert [count for _, count in zip(records, lease.counts(records), strict=False)] == counts
    assert (lease.size, lease.unsettled, owner.said) == (len(leased), len(leased), [])


@given(st.sets(st.integers(0, 20), min_size=1), st.sets(st.integers(0, 20), min_size=1))
def test_leased_offsets_without_a_record_are_acknowledged(there: set[int], leased: set[int]) -> None:
    owner = Submitted()
    batches = [(offset, 1) for offset in sorted(there)]
    lease = lease_of(batches, ranges_of(sorted(leased), [1] * len(leased)), owner)
    records = lease.records()
    assert [record.offset for record in records] == sorted(there & leased)
    assert all(verb == ACK for verb, _, _ in owner.said)
    said = [offset for _, first, last in owner.said for offset in range(first, last + 1)]
    assert sorted(said) == sorted(leased - there)
    assert lease.size == len(records)
    assert len(owner.said) == len({(first, last) for _, first, last in owner.said})


def test_a_damaged_batch_is_an_error() -> None:
    lease = lease_of([(0, 3)], [(0, 2, 1)])
    assert lease.data is not None
    data = bytearray(lease.data)
    data[-1] ^= 1
    lease.data = bytes(data)
    with pytest.raises(CorruptBatch):
        lease.records()


def with_unknown_codec(batch: bytes | memoryview) -> bytes:
    """Return a valid batch with a codec that only another reader may know."""
    data = bytearray(batch)
    data[22] |= 7
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize("others", [0, 2])
def test_a_batch_beyond_the_limits_of_this_reader_is_given_back_even_where_it_is_all_of_a_lease(
    others: int,
) -> None:
    owner = Submitted()
    lease = lease_of([(0, 3)], [(0, 2 + others, 1)], owner)
    assert lease.data is not None
    after = lease_of([(3, 2)], [(3, 4, 1)]).data or b""
    lease.data = with_unknown_codec(lease.data) + (bytes(after) if others else b"")
    assert [record.offset for record in lease.records()] == list(range(3, 3 + others))
    assert owner.said == [(NACK, 0, 2)]
    assert lease.size == others


def test_record_missing_beside_damaged_bytes_is_not_taken_as_done() -> None:
    """The damaged batch may be that of other offsets."""
    owner = Submitted()
    lease = lease_of([(0, 3), (6, 2)], [(0, 7, 1)], owner)
    data = bytearray(lease.data or b"")
    data[26] ^= 1  # the last offset delta of the first batch, 2, says 3 now
    lease.data = bytes(data)
    assert [record.offset for record in lease.records()] == [6, 7]
    assert {verb for verb, _, _ in owner.said} == {NACK}
    assert sorted(at for _, first, last in owner.said for at in range(first, last + 1)) == list(range(6))


def test_a_small_view_of_a_large_chunk_is_copied() -> None:
    batch = build_batch([b"x"])
    chunk = memoryview(batch + bytes(100_000))
    lease = Lease(Submitted(), Leased(-1, "t", 0, 1000, [(0, 0, 1)]), chunk[: len(batch)], 0.0)
    assert isinstance(lease.data, bytes)
    assert len(lease.records()) == 1


def test_a_record_that_was_leased_again_cannot_be_settled_by_its_old_job() -> None:
    lease = lease_of([(0, 10)], [(0, 4, 1), (6, 9, 1)])
    lease.mark_lost([(3, 7, 2), (20, 30, 2)])
    lease.check(0, 2)
    lease.check(8, 9)
    with pytest.raises(LeaseExpired, match="offset 3"):
        lease.check(2, 5)
    assert lease.lost == [(3, 7)]


async def test_a_batch_makes_nothing_per_record_until_it_is_asked_for() -> None:
    owner = Submitted()
    lease = lease_of([(0, 10)], [(0, 9, 2)], owner)
    batch = JobBatch(owner, [lease], Job)
    assert len(batch) == 10
    assert batch.ranges == [("t", 3, 0, 9, 2)]
    assert batch.deadline == 130.0
    assert batch.values == [b"%d" % i for i in range(10)]
    batch.ack_nowait()
    assert owner.said == [(ACK, 0, 9)]
    assert all(job.is_settled for job in batch)


async def test_a_batch_leaves_out_the_jobs_that_were_settled_by_themselves() -> None:
    owner = Submitted()
    batch = JobBatch(owner, [lease_of([(0, 4)], [(0, 3, 1)], owner)], Job)
    jobs = batch.jobs
    jobs[1].nack_nowait()
    batch.ack_nowait()
    assert owner.said[1:] == [(ACK, 0, 0), (ACK, 2, 2), (ACK, 3, 3)]


async def test_an_empty_batch_is_false_and_can_be_settled() -> None:
    batch = JobBatch(Submitted(), [], Job)
    assert not batch
    assert (batch.records, batch.values, batch.jobs, batch.deadline) == ([], [], [], 0.0)
    await batch.ack()


async def test_a_batch_that_is_damaged_can_still_be_given_back() -> None:
    owner = Submitted()
    leases = [lease_of([(0, 2)], [(0, 1, 1)], owner), lease_of([(2, 2)], [(2, 3, 1)], owner)]
    data = bytearray(leases[1].data or b"")
    data[-1] ^= 1
    leases[1].data = bytes(data)
    batch = JobBatch(owner, leases, Job)
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            _ = batch.records
    batch.nack_nowait(error="damaged")
    assert owner.said == [(NACK, 0, 1), (NACK, 2, 3)]
