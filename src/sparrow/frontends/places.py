"""How many connections all doors together may have, so that those who connect never take the files away that records are kept in.

Each door has its own limit besides (`max_connections`). Where the system's limit of open files does not leave so many for every door, they share what it leaves:
each is sure of a part, and may use what the others do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SURE_PART: Final = 4
"""A door is sure of one in so many of the places that an equal division would give it; the rest goes to whoever comes."""


NO_ROOM: Final = "The limit of open files (ulimit -n) leaves no room for another client; try again later."


class Places:
    """Shared by the doors of a broker. Loop thread only.

    Args:
        total: connections at a time; 0: as many as the doors allow.
    """

    def __init__(self, total: int = 0) -> None:
        self._total = total
        self._counts: list[Callable[[], int]] = []

    def of(self, count: Callable[[], int]) -> Callable[[], bool]:
        """For a door that has `count()` connections: whether it may have one more."""
        self._counts.append(count)
        return lambda: self._is_free(count)

    def _is_free(self, count: Callable[[], int]) -> bool:
        if not self._total:
            return True
        sure = self._total // (SURE_PART * len(self._counts))
        if count() < sure:
            return True
        taken = sum(max(other(), sure) for other in self._counts if other is not count)
        return taken + count() < self._total
