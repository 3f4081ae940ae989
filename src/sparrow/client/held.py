"""The leases that a consumer holds: those with records of which nothing was said yet.

Pure: time is passed in, monotonic seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.client.lease import Lease


class Held:
    """Loop thread only."""

    def __init__(self) -> None:
        self._leases: dict[Lease, None] = {}

    def __bool__(self) -> bool:
        return bool(self._leases)

    @property
    def records(self) -> int:
        """How many are held."""
        return sum(lease.unsettled for lease in self._leases)

    def add(self, lease: Lease) -> None:
        """A lease came. What is in hand of the same records has lost its lease unnoticed, and must not settle the new one."""
        if any(count > 1 for _, _, count in lease.ranges):
            for held in self._leases:
                if held.topic == lease.topic and held.partition == lease.partition:
                    held.lose(lease.ranges)
        self._leases[lease] = None

    def settled(self, lease: Lease, records: int) -> None:
        """So many records of a lease are not held any more."""
        lease.unsettled -= records
        if lease.unsettled <= 0:
            self._leases.pop(lease, None)

    def take_ended(self, now: float) -> int:
        """Let go of the leases whose time is over; returns how many records they still had."""
        ended = [lease for lease in self._leases if lease.held_until <= now]
        for lease in ended:
            lease.is_over = True
            del self._leases[lease]
        return sum(lease.unsettled for lease in ended)

    def end(self) -> None:
        """The consumer is over."""
        for lease in self._leases:
            lease.is_over = True
        self._leases.clear()
