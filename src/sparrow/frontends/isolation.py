"""Isolation levels of readers, by the names of the native protocol."""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import InvalidArgument

READ_COMMITTED: Final = "read_committed"
ISOLATIONS: Final = ("read_uncommitted", READ_COMMITTED)


def check_isolation(isolation: str) -> None:
    """Raise InvalidArgument if there is no such isolation level."""
    if isolation not in ISOLATIONS:
        raise InvalidArgument(
            f"Isolation {isolation[:80]!r} does not exist; there are {' and '.join(ISOLATIONS)}."
        )
