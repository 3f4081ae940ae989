"""Leased records and their settlements, as frontends and queues exchange them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

DELIVERY_LIMIT: Final = "DELIVERY_LIMIT"
REJECTED: Final = "REJECTED"
"""Reasons why records became dead letters."""


class Verb(IntEnum):
    """Operation on leased records."""

    ACK = 0
    """Handled: done."""
    NACK = 1
    """Failed: try again, now or after a delay, until the delivery limit."""
    REJECT = 2
    """Can never be handled: move to the dead letters."""
    EXTEND = 3
    """Still being handled: the lease begins again."""
    RELEASE = 4
    """Unused: ready again, and the delivery does not count."""


class Settlement(Struct, frozen=True):
    """One operation on the records first … last (both included) of a partition."""

    verb: int
    """A `Verb`; a queue refuses other numbers."""
    topic: str
    partition: int
    first: int
    last: int
    delay_ms: int = -1
    """NACK: delay until the records are ready again; -1: by the queue's policy. EXTEND: length of
    the lease from now on; -1: the queue's lease time.
    """
    text: str = ""
    """NACK: the error. REJECT: the reason."""
    delivery: int = 0
    """Delivery count of the lease that is meant, so that a later lease of the same consumer is not
    settled by mistake. 0: any.
    """


LeasedRange = tuple[int, int, int]
"""First offset, last offset, delivery count."""


class Leased(NamedTuple):
    """Leased records of one partition, and of one priority unless the consumer takes by offset."""

    topic: str
    partition: int
    ranges: list[LeasedRange]
    """By offset."""
    data: bytes | memoryview
    """Whole record batches with these records, maybe with others: skip those."""
    lease_ms: int
    """Length of the lease from now on."""

    @property
    def records(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.ranges)

    def settlements(
        self, verb: Verb, delay_ms: int = -1, text: str = "", ranges: Iterable[LeasedRange] | None = None
    ) -> list[Settlement]:
        """Return one operation on all leased records, or on those in `ranges`."""
        return [
            Settlement(verb, self.topic, self.partition, first, last, delay_ms, text, count)
            for first, last, count in (self.ranges if ranges is None else ranges)
        ]
