"""Leases of a subscriber: who has which records, until when, and what their last delivery left.
Pure.

Records that were delivered together, or that came back together, share one `Lease`; the value of a
record (`record_state.py`) has its number. A lease outlives its delivery: while a record waits to be
tried again, or moves to the dead letters, it says who had it last and what went wrong.

The table does not know the states of records. `SubscriberState` reports when records join or leave
a lease, and finds the records of a lease that is due.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrow.broker.queues.rules.record_state import LEASE_SHIFT, LEASED, STATE_MASK
from sparrow.broker.queues.rules.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_SHARED: Final = 256
_MAX_ERROR: Final = 4096


@dataclass(slots=True, eq=False)
class Lease:
    """Properties that records share which were delivered together, or came back together.

    `due_ms` is monotonic time: the end of the lease (LEASED), or of the delay (DELAYED).
    """

    consumer: str
    first_ms: int
    """Wall time of the first delivery."""
    last_ms: int
    """Wall time of the last delivery."""
    due_ms: int = 0
    error: str = ""
    reason: str = ""
    """Why the records go to the dead letters (MOVING)."""
    timer_ms: int = 0
    """When a timer for `due_ms` fires, maybe too early; 0: there is no timer."""
    records: int = 0
    """Number of records that have the lease now."""
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """(source, first, end) of all records that have the lease, and maybe of others."""

    encoded: bytes | None = None
    """The persisted form, or None. Set it to None when you change the lease."""


_NEVER_DELIVERED: Final = Lease("", -1, -1)


class LeaseTable:
    """The leases of one subscriber, by number. Number 0 means "never delivered"."""

    __slots__ = ("_last", "_shared", "by_number", "leased_counts", "timers")

    def __init__(self) -> None:
        self.by_number: dict[int, Lease] = {}
        self.leased_counts: dict[str, int] = {}
        """Number of leased records of each consumer."""
        self.timers = Timers(self.by_number.__contains__)
        """Monotonic time at which a lease is due."""
        self._last = 0
        self._shared: dict[tuple[int, int, str, str], int] = {}
        """Leases that records which come back one by one may share: without it each of a million
        would have its own.
        """

    def add(self, lease: Lease) -> int:
        """Add a lease that no record has yet, and return its number."""
        self._last += 1
        self.by_number[self._last] = lease
        return self._last

    def deliver(self, consumer: str, history: int, due_ms: int, wall_ms: int) -> int:
        """Return the number of a lease for a delivery to `consumer`.

        Args:
            history: number of the lease that the records had before.
            due_ms: monotonic time at which the lease ends.
        """
        before = self.by_number.get(history)
        number = self.add(
            Lease(
                consumer,
                before.first_ms if before else wall_ms,
                wall_ms,
                due_ms,
                before.error if before else "",
            )
        )
        self.arm(number)
        return number

    def share(self, history: int, due_ms: int, error: str, reason: str = "") -> int:
        """Return the number of a lease for records that were delivered together and now come back,
        or die, in the same way.

        Args:
            history: number of the lease that the records had.
            due_ms: monotonic time until which the records are delayed; 0: they are not.
            error: "": the one that is known.
        """
        error = error[:_MAX_ERROR]
        key = (history, due_ms, error, reason)
        number = self._shared.get(key, 0)
        if number in self.by_number:
            return number
        before = self.by_number.get(history) or _NEVER_DELIVERED
        number = self.add(
            Lease(before.consumer, before.first_ms, before.last_ms, due_ms, error or before.error, reason)
        )
        if due_ms:
            self.arm(number)
        if len(self._shared) >= _MAX_SHARED:
            self._shared.clear()
        self._shared[key] = number
        return number

    def extend(self, number: int, records: int, due_ms: int) -> int:
        """Have `records` of a lease end at `due_ms`. Return the number of the lease that they have
        then: the same if these are all records of the lease, else that of a new one.
        """
        lease = self.by_number[number]
        if lease.records == records:
            lease.due_ms, lease.encoded = due_ms, None
        else:
            number = self.add(Lease(lease.consumer, lease.first_ms, lease.last_ms, due_ms, lease.error))
        self.arm(number)
        return number

    # ── records that have a lease ─────────────────────────────────────────────────────────────────

    def join(self, value: int, source: int, first: int, end: int) -> None:
        """Count the records [first, end) among those of the lease that `value` names."""
        lease = self.by_number[value >> LEASE_SHIFT]
        count = end - first
        lease.records += count
        pieces = lease.pieces
        if pieces and pieces[-1][2] == first and pieces[-1][0] == source:
            pieces[-1] = (source, pieces[-1][1], end)
        else:
            pieces.append((source, first, end))
        if value & STATE_MASK == LEASED:
            self.leased_counts[lease.consumer] = self.leased_counts.get(lease.consumer, 0) + count

    def join_again(self, value: int, records: int, pieces: Iterable[tuple[int, int, int]]) -> None:
        """Count records that come back after a restart among those of the lease that `value` names.

        Args:
            pieces: (source, first, end) of all of them, and maybe of others.
        """
        lease = self.by_number[value >> LEASE_SHIFT]
        lease.records += records
        lease.pieces += pieces
        if value & STATE_MASK == LEASED:
            self.leased_counts[lease.consumer] = self.leased_counts.get(lease.consumer, 0) + records

    def leave(self, value: int, count: int) -> None:
        """Count `count` records less of the lease that `value` names. Drop it with its last
        record.
        """
        number = value >> LEASE_SHIFT
        lease = self.by_number[number]
        lease.records -= count
        if not lease.records:
            del self.by_number[number]
        if value & STATE_MASK == LEASED:
            left = self.leased_counts[lease.consumer] - count
            if left:
                self.leased_counts[lease.consumer] = left
            else:
                del self.leased_counts[lease.consumer]

    def of_consumer(self, consumer: str) -> Iterator[tuple[int, Lease]]:
        """Yield (number, lease) of a consumer, if it has leased records. Do not change the table
        meanwhile.
        """
        if self.leased_counts.get(consumer):
            for number, lease in self.by_number.items():
                if lease.consumer == consumer:
                    yield number, lease

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def arm(self, number: int) -> None:
        """Have a lease looked at when it is due. One whose end is put off keeps its timer, so that
        timers do not pile up.
        """
        lease = self.by_number[number]
        if not lease.timer_ms or lease.due_ms < lease.timer_ms:
            lease.timer_ms = lease.due_ms
            self.timers.add(lease.due_ms, number)

    def fire(self, number: int, time_ms: int, now_ms: int) -> Lease | None:
        """Return the lease whose timer for `time_ms` fired, if it is due now."""
        lease = self.by_number.get(number)
        if lease is None or time_ms != lease.timer_ms:  # settled, or another timer runs
            return None
        lease.timer_ms = 0
        if lease.due_ms > now_ms:  # extended
            self.arm(number)
            return None
        return lease

    def fire_again(self, number: int, done: int, rest: tuple[int, int, int], now_ms: int) -> None:
        """Replace the first `done` pieces of a lease by `rest`, and have it fire at the next
        tick.
        """
        lease = self.by_number[number]
        lease.pieces[:done] = [rest]
        lease.timer_ms = now_ms
        self.timers.add(now_ms, number)
