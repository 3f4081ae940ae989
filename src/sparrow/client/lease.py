"""A lease: records that one LEASED frame brought, and those of them that are not settled yet.

The batches stay encoded until a record is needed, so waiting leases cost only their bytes.
`deadline` is the client's own count, from the arrival of the frame: the broker's count began a
moment earlier, and the broker decides.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from itertools import pairwise, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import LeaseExpired
from sparrow.client.settlements import ACK, NACK, QUIET, REJECT
from sparrow.records.readable import decode_batches

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from sparrow.base.errors import CorruptBatch, SparrowError
    from sparrow.client.batch import RecordMetadata
    from sparrow.client.settlements import Part, SettlementKey
    from sparrow.protocol.native.messages import Leased
    from sparrow.records.record import Record

_logger = logging.getLogger("sparrow.client")

Range = tuple[int, int, int]
"""First offset, last offset, number of the delivery."""

_COPY_BELOW = 4
"""A view that is less than a fourth of the memory that it keeps alive is copied."""
_offset_of = attrgetter("offset")


class LeaseOwner(Protocol):
    """The consumer that leased the records."""

    queue: str

    @property
    def address(self) -> str:
        """The broker's host and port."""
        ...

    loop: asyncio.AbstractEventLoop
    lease_s: float
    publish: Callable[..., Awaitable[RecordMetadata]]

    def submit(self, lease: Lease, key: SettlementKey, first: int, last: int, outcome: object) -> None:
        """Settle the records `first` to `last`.

        Raises:
            NotLeased: the consumer is closed.
        """
        ...

    def report(self, part: Part, error: SparrowError, /) -> None:
        """Report a settlement that is not awaited and had no effect."""
        ...


class Lease:
    """Leased records of one partition. Loop thread only, except that any thread may read it."""

    __slots__ = (
        "ack_key",
        "data",
        "deadline",
        "delivery",
        "is_over",
        "latest_deadline",
        "lost",
        "owner",
        "partition",
        "ranges",
        "stale_at",
        "topic",
        "unsettled",
    )

    def __init__(
        self,
        owner: LeaseOwner,
        head: Leased,
        batches: memoryview,
        now: float,
    ) -> None:
        """Create a lease from a frame. `now` is monotonic, in seconds."""
        lease_s = head.lease_ms / 1000
        self.owner = owner
        self.topic = head.topic
        self.partition = head.partition
        self.ranges: list[Range] = head.ranges
        self.data: bytes | memoryview | None = batches
        """Encoded batches; None once they were decoded."""
        if len(batches) * _COPY_BELOW < memoryview(batches.obj).nbytes:
            self.data = bytes(batches)
        self.deadline = now + lease_s
        """Monotonic time (s) at which the lease ends, as it was given."""
        self.latest_deadline = self.deadline
        """The latest end that an extension gave to one of its records."""
        self.stale_at = now + lease_s / 2
        """Monotonic time (s) at which it is released if it was not handed out."""
        self.unsettled = 0
        """Number of records that are not settled."""
        self.delivery = self.ranges[0][2]
        """Number of the delivery of its records; 0 if they differ."""
        for first, last, count in self.ranges:
            self.unsettled += last - first + 1
            if count != self.delivery:
                self.delivery = 0
        self.is_over = False
        """True once it or its consumer has ended."""
        self.lost: list[tuple[int, int]] = []
        """Records of it that were leased again meanwhile."""
        self.ack_key: SettlementKey = self.key(ACK)

    def __repr__(self) -> str:
        where = f"queue {self.owner.queue!r} of {self.owner.address}"
        state = "over" if self.is_over else f"{self.unsettled} not settled"
        return f"<Lease of {self.size} records of {self.topic}-{self.partition}, {where}, {state}>"

    @property
    def size(self) -> int:
        """Number of leased records."""
        size = 0
        for first, last, _ in self.ranges:
            size += last - first + 1
        return size

    def key(self, verb: int, delay_ms: int = -1, text: str = "") -> SettlementKey:
        """Return the key of a settlement of some of its records."""
        return verb, self.topic, self.partition, delay_ms, text, self.delivery

    def key_of(self, key: SettlementKey, first: int, last: int) -> SettlementKey:
        """Return the key for the records `first` to `last` alone: with their delivery number, so
        that a later lease of them is not affected.
        """
        for range_first, range_last, count in self.ranges:
            if range_first <= first and last <= range_last:
                return (*key[:5], count)
        return key

    # ── records ───────────────────────────────────────────────────────────────────────────────────

    def records(self) -> list[Record]:
        """Decode and return the records; once only, because the batches are dropped.

        Offsets without a record (removed by compaction meanwhile) are acknowledged: no other
        consumer could do better.

        Batches whose records no reader can read are rejected: no later delivery could succeed.
        Batches that only exceed this reader's limits are nacked.

        Raises:
            CorruptBatch: there are damaged bytes, and nothing else.
        """
        assert self.data is not None  # otherwise all records would count as missing
        found = decode_batches(self.data, self.topic, self.partition, min_offset=self.ranges[0][0])
        key = self.ack_key
        if found.corrupt:
            damaged = [error for error in found.corrupt if error.offset < 0 and not error.is_limit]
            if damaged and not found.records:
                raise damaged[0]
            for error in found.corrupt:
                self._refuse_batch(error)
            if damaged:
                # Even the offsets of a batch may be wrong: missing records are not acknowledged.
                key = self.key(NACK, -1, damaged[0].text)
        records = _within(found.records, self.ranges)
        self.data = None
        if len(records) != self.size:
            self._finish_missing(records, key)
        return records

    def _refuse_batch(self, error: CorruptBatch) -> None:
        """Reject leased records of a batch that no reader can read; nack those that another reader
        may read.
        """
        _logger.warning("leased records cannot be read: %s", error.text)
        key = self.key(REJECT if error.offset >= 0 else NACK, -1, f"{error.code}: {error.text}")
        left: list[Range] = []
        for first, last, count in self.ranges:
            start, end = max(first, error.base_offset), min(last, error.next_offset - 1)
            if start > end:
                left.append((first, last, count))
                continue
            self.owner.submit(self, key, start, end, QUIET)
            left += [
                each for each in ((first, start - 1, count), (end + 1, last, count)) if each[0] <= each[1]
            ]
        self.ranges = left

    def counts(self, records: list[Record]) -> Iterator[int]:
        """Return the number of the delivery of each of its records; without an end if it is the
        same for all.
        """
        return repeat(self.delivery) if self.delivery else self._counts(records)

    def _counts(self, records: list[Record]) -> Iterator[int]:
        ranges = iter(self.ranges)
        last, count = -1, 0
        for record in records:
            while record.offset > last:
                _, last, count = next(ranges)
            yield count

    def _finish_missing(self, records: list[Record], key: SettlementKey) -> None:
        there: list[Range] = []
        offsets = [record.offset for record in records]
        for first, last, count in self.ranges:
            expected = first
            for offset in (*offsets[bisect_left(offsets, first) : bisect_right(offsets, last)], last + 1):
                if offset > expected:
                    self.owner.submit(self, key, expected, offset - 1, QUIET)
                if offset <= last:
                    there.append((offset, offset, count))
                expected = offset + 1
        self.ranges = there

    # ── records leased again ──────────────────────────────────────────────────────────────────────

    def mark_lost(self, ranges: Iterable[Range]) -> None:
        """Mark records as leased again: this lease may not settle them any more."""
        for first, last, _ in ranges:
            if any(mine[0] <= last and first <= mine[1] for mine in self.ranges):
                self.lost.append((first, last))

    def check(self, first: int, last: int) -> None:
        """Raise LeaseExpired if some of these records were leased again."""
        for lost_first, lost_last in self.lost:
            if lost_first <= last and first <= lost_last:
                raise LeaseExpired(
                    f"the lease of {self.topic}-{self.partition} at offset {max(first, lost_first)} ended, "
                    "and the record was delivered again; nothing was changed. Extend leases in time, or "
                    "give the queue a longer lease_ms"
                )


class LeaseTable:
    """The leases of a consumer that have unsettled records. Loop thread only.

    Pure: times are arguments, monotonic seconds.
    """

    def __init__(self) -> None:
        self._leases: dict[Lease, None] = {}

    def __bool__(self) -> bool:
        return bool(self._leases)

    @property
    def records(self) -> int:
        """Number of leased records that are not settled."""
        return sum(lease.unsettled for lease in self._leases)

    def add(self, lease: Lease) -> None:
        """Add a lease. Older leases of the same records have expired unnoticed, and must not settle
        the new one.
        """
        if lease.delivery != 1:
            for older in self._leases:
                if older.topic == lease.topic and older.partition == lease.partition:
                    older.mark_lost(lease.ranges)
        self._leases[lease] = None

    def settled(self, lease: Lease, records: int) -> None:
        """Count records of a lease as settled."""
        lease.unsettled -= records
        if lease.unsettled <= 0:
            self._leases.pop(lease, None)

    def remove_expired(self, now: float) -> int:
        """Remove the expired leases; return the number of their unsettled records."""
        ended = [lease for lease in self._leases if lease.latest_deadline <= now]
        for lease in ended:
            lease.is_over = True
            del self._leases[lease]
        return sum(lease.unsettled for lease in ended)

    def end(self) -> None:
        """End all leases, as the consumer has ended."""
        for lease in self._leases:
            lease.is_over = True
        self._leases.clear()


def _within(records: list[Record], ranges: list[Range]) -> list[Record]:
    """Return the records whose offsets are in the ranges; both are sorted."""
    if (
        records
        and ranges
        and ranges[0][0] <= records[0].offset
        and records[-1].offset <= ranges[-1][1]
        and (len(ranges) == 1 or all(before[1] + 1 == after[0] for before, after in pairwise(ranges)))
    ):
        return records
    found: list[Record] = []
    position = 0
    for first, last, _ in ranges:
        start = bisect_left(records, first, position, key=_offset_of)
        position = bisect_right(records, last, start, key=_offset_of)
        found += records[start:position]
    return found
