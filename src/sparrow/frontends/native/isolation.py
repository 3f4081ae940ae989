"""Which records a reader sees, by the words that travel."""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import InvalidArgument

READ_COMMITTED: Final = "read_committed"
ISOLATIONS: Final = ("read_uncommitted", READ_COMMITTED)


def check_isolation(isolation: str) -> None:
    """Raise InvalidArgument where there is no such level."""
    if isolation not in ISOLATIONS:
        raise InvalidArgument(
            f"Isolation {isolation[:80]!r} does not exist; there are {' and '.join(ISOLATIONS)}."
        )
