"""A lease: records that one LEASED frame brought, and what the consumer still has to say of them.

The batches stay as they came until somebody asks for a record, so what waits costs its bytes. `deadline` is the client's own count, from
when the frame came: the broker's began a moment earlier, and the broker decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import LeaseExpired
from sparrow.client.settling import ACK, QUIET
from sparrow.records.batch import parse_header
from sparrow.records.record import Record, decode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from sparrow.base.errors import SparrowError
    from sparrow.client.settling import Key, Part
    from sparrow.protocol.native.messages import Leased

Range = tuple[int, int, int]
"""First offset, last offset, which delivery it is."""

_COPY_BELOW = 4
"""A view that is less than a fourth of what it keeps alive is copied."""
_offset_of = attrgetter("offset")


class Owner(Protocol):
    """Who leased: the consumer."""

    queue: str
    loop: asyncio.AbstractEventLoop
    lease_s: float

    def submit(self, lease: Lease, key: Key, first: int, last: int, outcome: object) -> None:
        """Say something of the records `first` to `last`.

        Raises:
            NotLeased: the consumer is closed.
        """
        ...

    def report(self, part: Part, error: SparrowError, /) -> None:
        """What was said without waiting had no effect."""
        ...


class Lease:
    """Loop thread only, but that any thread may read it."""

    __slots__ = (
        "ack_key",
        "data",
        "deadline",
        "delivery",
        "held_until",
        "is_over",
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
        owner: Owner,
        head: Leased,
        batches: memoryview,
        now: float,
    ) -> None:
        """`now` is monotonic, in seconds."""
        lease_s = head.lease_ms / 1000
        self.owner = owner
        self.topic = head.topic
        self.partition = head.partition
        self.ranges: list[Range] = head.ranges
        self.data: bytes | memoryview | None = batches
        """None: they were decoded for good."""
        if len(batches) * _COPY_BELOW < memoryview(batches.obj).nbytes:
            self.data = bytes(batches)
        self.deadline = now + lease_s
        """Monotonic time (s) at which the lease ends, as it was given."""
        self.held_until = self.deadline
        """The latest end that an extension gave to one of its records."""
        self.stale_at = now + lease_s / 2
        """When what was not handed out goes back."""
        self.unsettled = self.size
        """Records."""
        self.is_over = False
        """Whether it ended, or its consumer did."""
        self.lost: list[tuple[int, int]] = []
        """Records of it that were leased once more meanwhile."""
        counts = {count for _, _, count in head.ranges}
        self.delivery = counts.pop() if len(counts) == 1 else 0
        """Which delivery of its records it is; 0: not the same of all."""
        self.ack_key: Key = self.key(ACK)

    @property
    def size(self) -> int:
        """How many records were leased."""
        return sum(last - first for first, last, _ in self.ranges) + len(self.ranges)

    def key(self, verb: int, delay_ms: int = -1, text: str = "") -> Key:
        """What is to be said of some of its records."""
        return verb, self.topic, self.partition, delay_ms, text, self.delivery

    def key_of(self, key: Key, first: int, last: int) -> Key:
        """What is said of all of it, of the records `first` to `last`: a lease of them that followed is not meant."""
        for range_first, range_last, count in self.ranges:
            if range_first <= first and last <= range_last:
                return (*key[:5], count)
        return key

    # ── records ───────────────────────────────────────────────────────────────────────────────────

    def records(self) -> list[Record]:
        """The records, decoded; once only, as the batches are let go.

        Offsets that have no record any more (compaction came in between) are acknowledged: nobody else could do better.

        Raises:
            CorruptBatch: the batches are damaged.
        """
        assert self.data is not None  # else everything would count as missing
        records = _within(_decoded(self.data, self.topic, self.partition, self.ranges[0][0]), self.ranges)
        self.data = None
        if len(records) != self.size:
            self._finish_missing(records)
        return records

    def counted(self, records: list[Record]) -> Iterator[tuple[Record, int]]:
        """Each of its records, with the number of its delivery."""
        if len(self.ranges) == 1:
            count = self.ranges[0][2]
            return ((record, count) for record in records)
        return self._counted(records)

    def _counted(self, records: list[Record]) -> Iterator[tuple[Record, int]]:
        ranges = iter(self.ranges)
        last, count = -1, 0
        for record in records:
            while record.offset > last:
                _, last, count = next(ranges)
            yield record, count

    def _finish_missing(self, records: list[Record]) -> None:
        there: list[Range] = []
        offsets = [record.offset for record in records]
        for first, last, count in self.ranges:
            expected = first
            for offset in (*offsets[bisect_left(offsets, first) : bisect_right(offsets, last)], last + 1):
                if offset > expected:
                    self.owner.submit(self, self.ack_key, expected, offset - 1, QUIET)
                if offset <= last:
                    there.append((offset, offset, count))
                expected = offset + 1
        self.ranges = there

    # ── records that are leased a second time ─────────────────────────────────────────────────────

    def lose(self, ranges: Iterable[Range]) -> None:
        """These were leased once more: what is in hand of them is not ours any more."""
        for first, last, _ in ranges:
            if any(mine[0] <= last and first <= mine[1] for mine in self.ranges):
                self.lost.append((first, last))

    def check(self, first: int, last: int) -> None:
        """Raises LeaseExpired where some of these records were leased once more."""
        for lost_first, lost_last in self.lost:
            if lost_first <= last and first <= lost_last:
                raise LeaseExpired(
                    f"the lease of {self.topic}-{self.partition} at offset {max(first, lost_first)} ended, and the record was"
                    " delivered again; nothing was changed. Extend leases in time, or give the queue a longer lease_ms"
                )


def _within(records: list[Record], ranges: list[Range]) -> list[Record]:
    """The records whose offsets are in the ranges; both in order."""
    if records and _is_whole(ranges, records[0].offset, records[-1].offset):
        return records
    found: list[Record] = []
    position = 0
    for first, last, _ in ranges:
        start = bisect_left(records, first, position, key=_offset_of)
        position = bisect_right(records, last, start, key=_offset_of)
        found += records[start:position]
    return found


def _is_whole(ranges: list[Range], first: int, last: int) -> bool:
    """Whether the ranges cover `first` to `last` without a hole."""
    if first < ranges[0][0] or last > ranges[-1][1]:
        return False
    return all(before[1] + 1 == after[0] for before, after in pairwise(ranges))


def _decoded(data: bytes | memoryview, topic: str, partition: int, min_offset: int) -> list[Record]:
    """The records of batches, back to back."""
    if not data:
        return []
    if parse_header(data).size_bytes == len(data):
        return decode(data, topic, partition, min_offset=min_offset)
    records: list[Record] = []
    view, position = memoryview(data), 0
    while position < len(view):
        end = position + parse_header(view, position).size_bytes
        records += decode(view[position:end], topic, partition, min_offset=min_offset)
        position = end
    return records
