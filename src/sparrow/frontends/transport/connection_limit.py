"""The number of connections that all frontends together may have, so that clients cannot use up the
file descriptors that the log needs.

Besides, each frontend has its own limit (`max_connections`). If the limit of open files does not
allow that many for every frontend, they share what it allows: each has a guaranteed part and may
use what the others leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.transport.admission import AddressLimits, Admission

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

GUARANTEED_SHARE: Final = 4
"""Each frontend is guaranteed this fraction (1/4) of an equal share; the rest is first come, first
served.
"""


class ConnectionLimit:
    """The limit that all frontends of a broker share. Loop thread only.

    Args:
        total: most connections at a time; 0: no limit besides those of the frontends.
        addresses: limits per address; None: no limits.
        max_strangers: most connections per frontend that have not logged in; 0: half of its limit.
    """

    def __init__(
        self, total: int = 0, *, addresses: AddressLimits | None = None, max_strangers: int = 0
    ) -> None:
        self._total = total
        self._addresses = addresses or AddressLimits()
        self._max_strangers = max_strangers
        self._counts: list[Callable[[], int]] = []

    @property
    def connections(self) -> int:
        """Number of connected clients at all listeners together."""
        return sum(count() for count in self._counts)

    def of(self, count: Callable[[], int]) -> Callable[[], bool]:
        """Register a frontend by the function that counts its connections. Return a function that
        returns True if it may have one more.
        """
        self._counts.append(count)
        return lambda: self._is_free(count)

    def admission(self, count: Callable[[], int], max_connections: int, refusals: Counter[str]) -> Admission:
        """Return the admission of a frontend that has `count()` connections; `refusals` counts
        refused ones.
        """
        return Admission(
            self._addresses,
            max_connections=max_connections,
            max_strangers=self._max_strangers,
            has_files=self.of(count),
            refusals=refusals,
        )

    def _is_free(self, count: Callable[[], int]) -> bool:
        if not self._total:
            return True
        sure = self._total // (GUARANTEED_SHARE * len(self._counts))
        if count() < sure:
            return True
        taken = sum(max(other(), sure) for other in self._counts if other is not count)
        return taken + count() < self._total
