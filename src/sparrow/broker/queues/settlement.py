"""What consumers say about records that they leased, and what they get: the words between doors and queues."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Verb(IntEnum):
    """What is to become of leased records."""

    ACK = 0
    """Handled: done."""
    NACK = 1
    """Not handled: try again, now or after a delay, until the delivery limit."""
    REJECT = 2
    """Can never be handled: to the dead letters."""
    EXTEND = 3
    """Still being handled: the lease begins anew."""
    RETURN = 4
    """Not begun: ready again, and the delivery does not count."""


class Settlement(NamedTuple):
    """One verb for the records first … last (both included) of a partition."""

    verb: Verb
    topic: str
    partition: int
    first: int
    last: int
    delay_ms: int = -1
    """NACK: until it is ready again; -1: by the queue's policy. EXTEND: from now on; -1: the queue's lease time."""
    text: str = ""
    """NACK: what went wrong. REJECT: why."""
    delivery: int = 0
    """The delivery count of the lease that is meant: one that ended, and was followed by another of the same consumer, is over. 0: any."""


class Leased(NamedTuple):
    """Records of one partition and (unless the consumer takes by offset) one priority that a consumer got."""

    topic: str
    partition: int
    ranges: list[tuple[int, int, int]]
    """(first, last, delivery count), by offset."""
    data: bytes | memoryview
    """Whole record batches with these records, maybe with others: skip those."""
    lease_ms: int
    """How long they are leased from now on."""

    @property
    def records(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.ranges)
